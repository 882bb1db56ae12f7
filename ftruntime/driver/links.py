"""All connections of one rank: those that it owns, one for each peer and lane, and those that others own.

Lanes keep what is large and can wait (``bulk``: ranges of a fetch, finished chunks for learners) from
standing before what cannot (``ring``: everything else). Within a lane everything is in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address, Incarnation
from ftruntime.stores import Seat
from ftruntime.wire import Connection, Frame, Listener, Loop, Who, decoder

from .link import Link, Lives, Named, State, Told

BULK = frozenset({m.Tap, m.TapEnd, m.RangeData, m.NotHere})
decode_messages = decoder(
    m.Begin, m.Enlist, m.Outcome, m.Seal, m.StartFetch, m.StopFetch, m.Install, m.WriteCheckpoint,
    m.RollCall, m.Finish, m.Vote, m.Sealed, m.Done, m.Fetched, m.Prepared, m.Join, m.Chunk, m.Ack, m.Probe,
    m.Waiting, m.Tap, m.TapAck, m.TapEnd, m.RangeRequest, m.RangeData, m.NotHere,
)  # fmt: skip

Landing = Callable[[Address, Any, int], memoryview | None]
Heard = Callable[[Address, Any, memoryview | None], object]


class Links:
    """The connections of the rank ``who()``; it listens at ``host``, and dials from there.

    landing, heard:  as of a connection, with the address of the sender
    lost, mended:    of a peer: the process is gone; or it lives, and what was on its way is lost
    Raises OSError if ``host`` cannot be listened at.
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        token: bytes,
        who: Callable[[], Who],
        landing: Landing,
        heard: Heard,
        lost: Callable[[Address, Incarnation, str], object],
        mended: Callable[[Address, str], object],
        settled: Callable[[], object],
    ) -> None:
        self._loop, self._host, self._token, self._who = loop, host, token, who
        self._landing, self._heard, self._lost = landing, heard, lost
        self.lives = Lives()
        self._told = {
            "ring": Told(lost, mended, settled, self.lives),
            "bulk": Told(lost, _mended_aside, settled, self.lives),
        }
        self._seats: dict[Address, Seat] = {}
        self._links: dict[tuple[Address, str], Link] = {}
        self._incoming: dict[int, tuple[Connection, Who]] = {}
        self._met = 0
        self._listener = Listener(loop, host, 0, token, who, decode_messages, self._welcome)
        self.endpoint = self._listener.endpoint

    # -- out -----------------------------------------------------------------------------------

    def send(self, to: Address, message: m.Message) -> None:
        self.transfer(to, Frame(message), bulk=type(message) in BULK)

    def transfer(self, to: Address, frame: Frame, bulk: bool = False) -> None:
        self._link(to, "bulk" if bulk else "ring").send(frame)

    def connect(self, peers: Iterable[Address]) -> None:
        """Make connections ahead of need, in both lanes."""
        for peer in peers:
            for lane in ("ring", "bulk"):
                self._link(peer, lane)

    def renew(self, peer: Address) -> None:
        self._link(peer, "ring").renew()

    def up(self, peer: Address) -> bool:
        link = self._links.get((peer, "ring"))
        return link is not None and link.state is State.UP

    def withdraw(self, tag: object) -> None:
        for link in self._links.values():
            link.withdraw(tag)

    @property
    def settled(self) -> bool:
        """No connection is being made."""
        return all(link.state not in (State.DIALLING, State.MENDING) for link in self._links.values())

    @property
    def drained(self) -> bool:
        """Nothing waits to be sent to anybody."""
        return not any(link.queued for link in self._links.values())

    def seated(self, seats: Iterable[Seat]) -> None:
        """Where ranks listen, as far as it has changed."""
        for seat in seats:
            address = (seat.replica, seat.position)
            self._seats[address] = seat
            for lane in ("ring", "bulk"):
                link = self._links.get((address, lane))
                if link is not None:
                    self._aim(link, seat)

    def _link(self, address: Address, lane: str) -> Link:
        link = self._links.get((address, lane))
        if link is None:
            link = Link(self._loop, address, self._token, lambda: self._in(lane), self._told[lane])
            self._links[address, lane] = link
            if address in self._seats:
                self._aim(link, self._seats[address])
        return link

    def _aim(self, link: Link, seat: Seat) -> None:
        if not link.mate or seat.life == self._who().life:
            link.aim(seat, self._host)

    def _in(self, lane: str) -> Who:
        me = self._who()
        return Who(me.kind, me.job, me.replica, me.position, me.life, me.incarnation, lane)

    # -- in ------------------------------------------------------------------------------------

    def _welcome(self, connection: Connection, who: Who) -> None:
        me = self._who()
        mate = who.replica == me.replica
        if who.kind != "rank" or (who.life != me.life if mate else who.position != me.position):
            connection.close()
            return
        self._met += 1
        number, source = self._met, (who.replica, who.position)
        self._incoming[number] = (connection, who)
        self.lives.name(who.replica, who.life, who.incarnation)
        connection.landing = lambda message, size: self._landing(source, message, size)
        connection.on_message = lambda message, payload: self._heard(source, message, payload)
        connection.on_lost = lambda reason: self._left(number, reason)
        if me.incarnation:
            connection.send(Frame(Named(me.incarnation)))

    def _left(self, number: int, reason: str) -> None:
        """Who owned the connection may dial again. A mate that ends takes its replica with it."""
        _, who = self._incoming.pop(number)
        if who.replica == self._who().replica:
            self._lost((who.replica, who.position), self._who().incarnation, reason)

    def name(self, incarnation: Incarnation) -> None:
        """Tell everybody as whom this rank has registered."""
        for connection, _ in self._incoming.values():
            connection.send(Frame(Named(incarnation)))

    def close(self) -> None:
        self._listener.close()
        for link in self._links.values():
            link.close()
        for connection, _ in self._incoming.values():
            connection.close()


def _mended_aside(peer: Address, reason: str) -> None:
    """What was lost beside the ring is asked for again, or makes a gap that a newer fetch closes."""
