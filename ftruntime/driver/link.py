"""One rank's connections to others: who owns them, when they are made, and what their end means.

Each direction is a connection of its own, owned by the sender: it dials, notices the end, and dials again.

    state     leaves to  when
    --------  ---------  ------------------------------------------------------------------------
    UNKNOWN   DIALLING   the peer's seat is known
    DIALLING  UP         it has proved who it is
              AWAY       refused, or another life answers: what was queued is lost
    UP        MENDING    the connection broke, but the process may live: it is dialled again at once
              AWAY       ... within the own replica, where nothing may be lost
    MENDING   UP         the same life answered: what was on its way is lost, a transient error
              AWAY       nobody listens any more: the peer is lost
    AWAY      DIALLING   a later life has a seat; or after a rest, since a stopped process may go on

So the death of a process is told as ``lost`` in the time of two packets, and a connection that was merely
reset as ``mended``. A rank of another replica that is unknown or away refuses what is sent to it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ftruntime.protocol.ids import Address, Incarnation, Replica
from ftruntime.stores import Seat
from ftruntime.wire import Connection, Dial, Frame, Loop, Who, decoder

REST_S: Final = 1.0  # before a peer that is away is tried again
WAITING: Final = 4096  # frames kept for a connection that is being made


class Named(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """From who was dialled: it has registered as this incarnation."""

    incarnation: Incarnation


class State(enum.IntEnum):
    UNKNOWN = 0
    DIALLING = 1
    UP = 2
    MENDING = 3
    AWAY = 4


MOVES: Final = {
    State.UNKNOWN: {State.DIALLING},
    State.DIALLING: {State.UP, State.AWAY, State.DIALLING},
    State.UP: {State.MENDING, State.AWAY, State.DIALLING},
    State.MENDING: {State.UP, State.AWAY, State.DIALLING},
    State.AWAY: {State.DIALLING},
}
_decode = decoder(Named)


class Told(NamedTuple):
    """What a link tells its rank. All are called from the loop, never from within ``send``."""

    lost: Callable[[Address, Incarnation, str], object]
    mended: Callable[[Address, str], object]
    settled: Callable[[], object]
    lives: Lives


class Lives:
    """Which incarnation each life of each replica has registered as; the last few of them."""

    KEPT: Final = 8

    def __init__(self) -> None:
        self._known: dict[Replica, dict[int, Incarnation]] = {}

    def name(self, replica: Replica, life: int, incarnation: Incarnation) -> None:
        if incarnation:
            lives = self._known.setdefault(replica, {})
            lives[life] = incarnation
            while len(lives) > self.KEPT:
                del lives[min(lives)]

    def of(self, replica: Replica, life: int) -> Incarnation:
        """0 while it is not known to have registered."""
        return self._known.get(replica, {}).get(life, 0)


class Link:
    """The way to the rank at ``address``, in one lane."""

    def __init__(self, loop: Loop, address: Address, token: bytes, me: Callable[[], Who], told: Told) -> None:
        self._loop, self.address, self._token, self._me, self._told = loop, address, token, me, told
        self.state = State.UNKNOWN
        self._seat: Seat | None = None
        self._connection: Connection | None = None
        self._waiting: deque[Frame] = deque()
        self._reported = False  # that it is away
        self._source = ""

    @property
    def mate(self) -> bool:
        """Within the own replica."""
        return self.address[0] == self._me().replica

    @property
    def queued(self) -> bool:
        """Whether something waits to be sent over a connection that is up."""
        return self._connection is not None and self._connection.open and self._connection.queued > 0

    def aim(self, seat: Seat, source: str) -> None:
        """The peer sits at ``seat``; a later life replaces an earlier one."""
        if self._seat is not None and (seat == self._seat or seat.life < self._seat.life):
            return
        former, was = self._seat, self.state
        self._seat, self._source = seat, source
        if was in (State.UP, State.MENDING) and former is not None:
            self._close()
            self._report(former, "a later life of it has begun")
        self._reported = False
        self._dial()

    def send(self, frame: Frame) -> None:
        """Send, keep until the connection is up, or report that nobody is there."""
        if self.state is State.UP and self._connection is not None:
            self._connection.send(frame)
        elif self.state is State.AWAY or (self.state is State.UNKNOWN and not self.mate):
            self._loop.soon(self._refuse)
        elif len(self._waiting) < WAITING:
            self._waiting.append(frame)
        else:
            self._loop.soon(lambda: self._away("too much waits for its connection"))

    def withdraw(self, tag: object) -> None:
        """Send nothing of ``tag`` that has not begun."""
        self._waiting = deque(frame for frame in self._waiting if frame.tag != tag)
        if self._connection is not None:
            self._connection.withdraw(tag)

    def renew(self) -> None:
        """A fresh connection in place of this one; ``mended`` or ``lost`` tells what became of it."""
        if self.state is State.UP:
            self._close()
            self._broke("a fresh connection is wanted")
        elif self.state is not State.MENDING:
            self._loop.soon(self._refuse)

    # -- the connection ------------------------------------------------------------------------

    def _dial(self) -> None:
        assert self._seat is not None
        self._move(State.DIALLING)
        self._reach(self._seat, self._up, self._away)

    def _reach(
        self, seat: Seat, met: Callable[[Connection, Who], None], failed: Callable[[str], None]
    ) -> None:
        """Dial ``seat``; what comes of it counts only while the link still aims there."""

        def arrived(connection: Connection, who: Who) -> None:
            if seat is not self._seat:
                connection.close()
            elif (who.replica, who.position, who.life) != (seat.replica, seat.position, seat.life):
                connection.close()
                failed(f"rank {who.replica}/{who.position} in its life {who.life} answers instead")
            else:
                met(connection, who)

        def refused(reason: str) -> None:
            if seat is self._seat:
                failed(reason)

        Dial(self._loop, seat.endpoint, self._token, self._me(), _decode, arrived, refused, self._source)

    def _up(self, connection: Connection, who: Who) -> None:
        mended = self.state is State.MENDING
        self._move(State.UP)
        self._reported = False
        self._connection = connection
        lives = self._told.lives
        lives.name(who.replica, who.life, who.incarnation)
        connection.on_message = lambda message, _: lives.name(who.replica, who.life, message.incarnation)
        connection.on_lost = lambda reason: self._ended(connection, reason)
        if mended:
            self._waiting.clear()  # the protocol says again what was lost, in order
            self._told.mended(self.address, "the connection was reset")
        while self._waiting:
            connection.send(self._waiting.popleft())
        self._told.settled()

    def _ended(self, connection: Connection, reason: str) -> None:
        """It may have been replaced since."""
        if connection is self._connection:
            self._broke(reason)

    def _broke(self, reason: str) -> None:
        """The process may be alive: who listens at its seat tells."""
        self._connection = None
        if self.mate:
            return self._away(reason)
        self._move(State.MENDING)
        assert self._seat is not None
        self._reach(self._seat, self._up, lambda why: self._away(f"{reason}; {why}"))

    def _away(self, reason: str) -> None:
        seat = self._seat
        if seat is None or self.state is State.AWAY:
            return
        had = self.state is not State.DIALLING or bool(self._waiting)
        self._close()
        self._move(State.AWAY)
        self._waiting.clear()
        if had:
            self._report(seat, reason)
        self._loop.after(REST_S, lambda: self._try_again(seat))
        self._told.settled()

    def _try_again(self, seat: Seat) -> None:
        if seat is self._seat and self.state is State.AWAY:
            self._dial()

    def _refuse(self) -> None:
        """Somebody sends to a peer that is not there: it is told once for each time that it went away."""
        if self.state is State.AWAY and not self._reported and self._seat is not None:
            self._report(self._seat, "connection refused")
        elif self.state is State.UNKNOWN:
            self._told.lost(self.address, 0, "it has never been there")

    def _report(self, seat: Seat, reason: str) -> None:
        self._reported = True
        self._told.lost(self.address, self._told.lives.of(seat.replica, seat.life), reason)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """The rank ends."""
        self._seat = None
        self._waiting.clear()
        self._close()

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"link to {self.address}: {self.state.name} to {state.name}"
        self.state = state
