"""The end of a job, seen by one leader: who still needs the last state, and when to go (design 3.7).

A head whose chain has reached ``until`` is final: it is never committed onto and never rolled back. Its plan
is of kind CATCH_UP, as are all that follow: whoever has the last state hands it to those who have not.

    state      event                          next       what the leader does
    ---------  -----------------------------  ---------  ------------------------------------------
    WORKING    the head is final              LINGERING  waits for ``linger`` seconds at most
    LINGERING  everybody has the last state,  OVER       tells its ranks, gives its lease up; the
               or ``linger`` has passed                  processes end well
    LINGERING  it has not the last state, and UNSERVED   exits for good, and says so
               nobody can hand it over
    LINGERING  a life has registered that is  WORKING    trains on
               to go on beyond the end

For one who is there and fetches, the others linger ``PATIENCE`` times as long as for one who is away.
"""

from __future__ import annotations

import enum

from .config import JobConfig
from .effects import Effect, Note, SetTimer
from .head import Commit, Head, Status
from .ids import MemberId, Replica
from .planner import Members
from .record import Record

PATIENCE = 10


class State(enum.IntEnum):
    WORKING = 1
    LINGERING = 2
    OVER = 3
    UNSERVED = 4


MOVES: dict[State, frozenset[State]] = {
    State.WORKING: frozenset({State.LINGERING}),
    State.LINGERING: frozenset({State.OVER, State.UNSERVED, State.WORKING}),
    State.OVER: frozenset(),
    State.UNSERVED: frozenset(),
}


class Ending:
    """What one leader makes of a final head. ``last``: the end of the job, while it is known."""

    __slots__ = ("_number", "_passed", "last", "state")

    def __init__(self) -> None:
        self.state = State.WORKING
        self.last: Commit | None = None
        self._number = 0  # of the timer that counts
        self._passed = 0  # how often ``linger`` has passed

    def clone(self) -> Ending:
        other = Ending()
        other.state, other.last = self.state, self.last
        other._number, other._passed = self._number, self._passed
        return other

    def awaits(self, tag: int) -> bool:
        """Whether the timer ``linger`` with ``tag`` still means anything."""
        return self.state is State.LINGERING and tag == self._number

    def timer(self, tag: int, config: JobConfig, out: list[Effect]) -> None:
        """Timer ``linger``."""
        if self.awaits(tag):
            self._passed += 1
            self._wait(config, out)

    def see(self, head: Head, config: JobConfig, out: list[Effect]) -> None:
        """The newest head is, or is no longer, final."""
        if self.state is State.WORKING and head.finished:
            self._move(State.LINGERING)
            self.last, self._passed = head.end, 0
            out.append(Note("final", head.end.round, f"step {head.end.step} is the last"))
            self._wait(config, out)
        elif self.state is State.LINGERING and not head.finished:
            self._move(State.WORKING)
            self.last = None
            out.append(Note("goes-on", head.round, f"the job goes on to step {head.until}"))

    def part(self, head: Head, config: JobConfig, members: Members, me: MemberId, busy: bool) -> bool:
        """This replica has the last state: whether it may go now. ``busy``: it still writes a checkpoint."""
        if self._passed >= PATIENCE:
            return self._over()
        waits = self._passed == 0 and bool(awaited(head, members))
        if busy or waits or any(m != me for m in behind(head, members)):
            return False
        return self._over()

    def bereft(self) -> bool:
        """The store has lost its head, this replica has the last state: whether it has waited long enough."""
        return self._passed > 0 and self._over()

    def stranded(self, head: Head, members: Members, me: MemberId) -> bool:
        """This replica has not the last state: whether there is nobody left to get it from."""
        hope = bool(servers(head, members, me) or readable(head, members))
        if head.status is not Status.RUNNING:  # leases were lost with the store, and come back
            hope = hope or self._passed == 0
        if hope and self._passed < PATIENCE:
            return False
        self._move(State.UNSERVED)
        return True

    def _over(self) -> bool:
        self._move(State.OVER)
        return True

    def _wait(self, config: JobConfig, out: list[Effect]) -> None:
        self._number += 1
        out.append(SetTimer("linger", self._number, config.timeouts.linger))

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"ending: {self.state.name} to {state.name}"
        self.state = state


def _has_it(head: Head, record: Record | None) -> bool:
    return record is not None and record.holds(head.end.lineage)


def awaited(head: Head, members: Members) -> list[Replica]:
    """Replicas whose present life has not said that it holds the end; one taken out is not waited for."""
    found = []
    for replica, (incarnation, _) in enumerate(head.incarnations):
        record = members.record(MemberId(replica, incarnation))
        if not _has_it(head, record) and not (record is not None and record.leaving):
            found.append(replica)
    return found


def behind(head: Head, members: Members) -> list[MemberId]:
    """Who is there and has not said yet that it holds the end."""
    live = sorted(m for m in members.leased if head.current(m))
    return [m for m in live if not _has_it(head, members.record(m))]


def servers(head: Head, members: Members, me: MemberId) -> list[MemberId]:
    """Who is there, and holds the end, or has not said yet what became of the last round there."""
    found = []
    for member in sorted(m for m in members.leased if head.current(m) and m != me):
        record = members.record(member)
        if record is None or record.as_of <= head.end.round or _has_it(head, record):
            found.append(member)
    return found


def readable(head: Head, members: Members) -> str:
    """The recorded checkpoint of the end of the chain, if nobody has failed to read it; or ""."""
    name = head.stored(head.end.lineage)
    return "" if name in members.unreadable(head) else name
