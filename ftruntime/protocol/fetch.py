"""The catcher's side of a fetch: one rank brings its shard over in ranges from several donors.

Every range of a fetch carries one lineage, the target's, so what arrives from different donors
fits together bit for bit (design 3.5). A range that has arrived is never asked for again,
whatever becomes of the donor that sent it.

    state      meaning                              leaves to
    ---------  -----------------------------------  ------------------------------------------
    FETCHING   some donor is usable                 STARVED, COMPLETE, CANCELLED
    STARVED    no donor is usable                   FETCHING (new plan; a late range pardons its
                                                    donor), COMPLETE (late ranges), CANCELLED
    COMPLETE   every range is staged                CANCELLED
    CANCELLED  the staging buffer is thrown away    -

    a donor is   when                                        until
    -----------  ------------------------------------------  ---------------------------------
    usable       named, here and under ``max_strikes``       one of the lines below
    not here     it answered NotHere                         a plan names it again
    struck out   corrupt or late ``max_strikes`` times more  it sends an intact range; or a plan
                 often than it sent an intact range          leaves nobody better
    unknown      its connection was lost, or the plan does   a plan names it again
                 not name it: nothing it sends has an effect
"""

from __future__ import annotations

import copy
import enum

from .effects import Effect, Send, SetTimer, Stage, Unstage
from .ids import Incarnation, MemberId, Position, Replica
from .messages import NotHere, RangeData, RangeRequest
from .plan import Target

TIMER = "range"


class State(enum.IntEnum):
    FETCHING = 1
    STARVED = 2
    COMPLETE = 3
    CANCELLED = 4


MOVES: dict[State, tuple[State, ...]] = {
    State.FETCHING: (State.STARVED, State.COMPLETE, State.CANCELLED),
    State.STARVED: (State.FETCHING, State.COMPLETE, State.CANCELLED),
    State.COMPLETE: (State.CANCELLED,),
    State.CANCELLED: (),
}


class _Source:
    """What the fetch knows of one donor. ``asked``: index -> time when it counts as late."""

    __slots__ = ("asked", "here", "member", "strikes")

    def __init__(self, member: MemberId) -> None:
        self.member = member
        self.asked: dict[int, float] = {}
        self.strikes = 0
        self.here = True

    def clone(self) -> _Source:
        twin = _Source(self.member)
        twin.asked = dict(self.asked)
        twin.strikes, twin.here = self.strikes, self.here
        return twin


class Fetch:
    """Fetches ``ranges`` ranges of ``target``; at most one per rank at a time (design 3.5).

    tag:            names this fetch's timers among all fetches of this process
    window:         requests that may be unanswered at one donor
    range_timeout:  seconds; a range is late between one and two of them after it was asked for
    max_strikes:    see the table of donors above
    """

    __slots__ = (
        "_armed",
        "_donors",
        "_have",
        "_lost",
        "_max_strikes",
        "_me",
        "_next",
        "_position",
        "_range_timeout",
        "_ranges",
        "_retry",
        "_window",
        "state",
        "tag",
        "target",
    )

    def __init__(
        self,
        target: Target,
        position: Position,
        me: MemberId,
        ranges: int,
        donors: tuple[MemberId, ...],
        *,
        window: int,
        range_timeout: float,
        max_strikes: int,
        tag: int,
    ) -> None:
        assert ranges > 0 and window > 0 and range_timeout > 0 and max_strikes > 0
        assert me not in donors, "a catcher is not its own donor"
        self.target, self.tag, self.state = target, tag, State.FETCHING
        self._position, self._me, self._ranges = position, me, ranges
        self._window, self._range_timeout, self._max_strikes = window, range_timeout, max_strikes
        self._donors = {member: _Source(member) for member in donors}
        self._lost: tuple[MemberId, ...] = ()  # donors of this plan whose connection was lost
        self._have = 0  # bit i: range i is staged
        self._next = 0  # ranges from here on were never asked for
        self._retry: dict[int, MemberId] = {}  # ranges to ask for again -> who failed with it
        self._armed = False

    # -- read-only --------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return self.state is State.COMPLETE

    @property
    def starved(self) -> bool:
        return self.state is State.STARVED

    @property
    def fetched(self) -> int:
        """Number of ranges staged."""
        return self._have.bit_count()

    @property
    def donors(self) -> tuple[MemberId, ...]:
        """Donors whose answers count, in the order of the plan."""
        return tuple(self._donors)

    @property
    def unreachable(self) -> tuple[MemberId, ...]:
        """Donors that should have served and did not answer: lost, or struck out."""
        struck = (m for m, s in self._donors.items() if s.here and s.strikes >= self._max_strikes)
        return (*self._lost, *struck)

    def outstanding(self) -> dict[MemberId, int]:
        """Unanswered requests per donor."""
        return {member: len(source.asked) for member, source in self._donors.items()}

    def clone(self) -> Fetch:
        """An independent copy."""
        twin = copy.copy(self)
        twin._donors = {member: source.clone() for member, source in self._donors.items()}
        twin._retry = dict(self._retry)
        return twin

    # -- events -----------------------------------------------------------------------------

    def start(self, now: float, out: list[Effect]) -> None:
        """Ask for the first ranges."""
        self._settle(now, out)

    def data(self, message: RangeData, now: float, out: list[Effect]) -> None:
        """A range arrived: stage it if it is intact and still missing."""
        source = self._sender(message)
        if source is None or not 0 <= message.index < self._ranges:
            return
        answered = source.asked.pop(message.index, None) is not None
        if not self._has(message.index):
            if message.intact:
                self._stage(source, message.index, out)
            else:
                source.strikes += 1
                if answered:
                    self._retry[message.index] = source.member
        self._settle(now, out)

    def not_here(self, message: NotHere, now: float, out: list[Effect]) -> None:
        """The donor has no frozen copy: of no use until a plan names it again."""
        source = self._sender(message)
        if source is not None:
            source.here = False
            self._settle(now, out)

    def donor_lost(self, replica: Replica, incarnation: Incarnation, now: float, out: list[Effect]) -> None:
        """The connection to a donor is gone; its unanswered ranges move to the others."""
        source = self._donors.pop(MemberId(replica, incarnation), None)
        if source is not None and self._running():
            self._lost += (source.member,)
            self._take_back(source, tuple(source.asked))
            self._settle(now, out)

    def donors_changed(self, donors: tuple[MemberId, ...], now: float, out: list[Effect]) -> None:
        """A new plan names ``donors`` for the same target. Nothing that arrived is lost.

        A donor that the plan names again is believed to have its copy. Strikes stay, unless that
        would leave nobody: a bad donor is better than none, and the checksum guards against it.
        """
        assert self._me not in donors, "a catcher is not its own donor"
        if not self._running():
            return
        self._lost = ()
        for member in [m for m in self._donors if m not in donors]:
            source = self._donors.pop(member)
            self._take_back(source, tuple(source.asked))
        self._donors = {member: self._donors.get(member) or _Source(member) for member in donors}
        for source in self._donors.values():
            source.here = True
        if not self._usable():
            for source in self._donors.values():
                source.strikes = 0
        self._settle(now, out)

    def timer(self, tag: int, now: float, out: list[Effect]) -> None:
        """Late ranges move to another donor; with no other they stay, as links lose nothing.

        A donor gets one strike a time, however many of its ranges are late.
        """
        if tag != self.tag:
            return
        self._armed = False
        for source in self._usable():
            # Nothing is due later than a time-out from now, unless the clock went back: late, too (!).
            beyond = now + self._range_timeout
            late = tuple(index for index, due in source.asked.items() if due <= now or due > beyond)
            if late:
                source.strikes += 1
                self._put_off(source, late, now)
        self._settle(now, out)

    def cancel(self, out: list[Effect]) -> None:
        """Throw away what was staged."""
        if self.state is not State.CANCELLED:
            self._move(State.CANCELLED)
            out.append(Unstage(self.target.lineage))

    # -- inside -----------------------------------------------------------------------------

    def _running(self) -> bool:
        return self.state is State.FETCHING or self.state is State.STARVED

    def _has(self, index: int) -> bool:
        return bool(self._have >> index & 1)

    def _sender(self, message: RangeData | NotHere) -> _Source | None:
        """The donor that sent ``message``, or None when it must have no effect."""
        if not self._running() or message.lineage != self.target.lineage:
            return None
        return self._donors.get(MemberId(message.replica, message.incarnation))

    def _stage(self, source: _Source, index: int, out: list[Effect]) -> None:
        # An intact range makes up for one strike: a long fetch outlives rare faults of a good
        # donor, and a donor that fails more often than not still goes.
        source.strikes = max(0, source.strikes - 1)
        self._have |= 1 << index
        self._retry.pop(index, None)
        out.append(Stage(self.target.lineage, index))

    def _usable(self) -> list[_Source]:
        return [s for s in self._donors.values() if s.here and s.strikes < self._max_strikes]

    def _take_back(self, source: _Source, indices: tuple[int, ...]) -> None:
        """``source`` no longer owes ``indices``; those still missing are asked for again."""
        for index in indices:
            del source.asked[index]
            if not self._has(index):
                self._retry[index] = source.member

    def _put_off(self, source: _Source, indices: tuple[int, ...], now: float) -> None:
        if any(other is not source for other in self._usable()):
            self._take_back(source, indices)
            return
        for index in indices:
            source.asked[index] = now + self._range_timeout

    def _settle(self, now: float, out: list[Effect]) -> None:
        """Draw the conclusions of an event: finish, starve, or keep every window full."""
        if not self._running():
            return
        if self.fetched == self._ranges:
            self._finish()
            return
        usable = self._usable()
        for source in self._donors.values():
            if source not in usable:
                self._take_back(source, tuple(source.asked))
        self._move(State.FETCHING if usable else State.STARVED)
        if usable:
            self._fill(usable, now, out)
            self._arm(out)

    def _finish(self) -> None:
        self._move(State.COMPLETE)
        assert not self._retry, "a staged range is not asked for again"
        for source in self._donors.values():
            source.asked.clear()

    def _fill(self, usable: list[_Source], now: float, out: list[Effect]) -> None:
        """Spread requests evenly, in order of index, up to each donor's allowance."""
        room = list(usable)
        while room:
            source = min(room, key=lambda s: len(s.asked))  # on a tie the first of the plan
            # Halved per strike: a donor that is late has its old requests to answer first.
            full = len(source.asked) >= max(1, self._window >> source.strikes)
            index = None if full else self._pick(source, alone=len(usable) == 1)
            if index is None:
                room.remove(source)
                continue
            source.asked[index] = now + self._range_timeout
            request = RangeRequest(self.target.lineage, index, self._me.replica, self._me.incarnation)
            out.append(Send((source.member.replica, self._position), request))

    def _pick(self, source: _Source, alone: bool) -> int | None:
        """The first missing range that nobody owes and that ``source`` did not just fail with."""
        again = [i for i, failed in self._retry.items() if alone or failed != source.member]
        if again:
            index = min(again)
            del self._retry[index]
            return index
        while self._next < self._ranges and self._has(self._next):
            self._next += 1
        if self._next == self._ranges:
            return None
        self._next += 1
        return self._next - 1

    def _arm(self, out: list[Effect]) -> None:
        if not self._armed:
            self._armed = True
            out.append(SetTimer(TIMER, self.tag, self._range_timeout))

    def _move(self, state: State) -> None:
        if state is not self.state:
            assert state in MOVES[self.state], f"no way from {self.state.name} to {state.name}"
            self.state = state
