"""Positions whose rings are in the same state do the same: one of them runs, the others become it.

Until something from outside comes between, the rings of all positions usually stand alike: equal
counters, equal times, equal messages under way. Then one position's ring runs as always, event by
event through the protocol; what came of it (the state of its rings, the times of its NICs, what is still
under way) is copied to the other positions. What differs is worked out for each rank: the data, from the
gradients of its own position, and its vote, by the protocol itself.
A position that differs in anything runs by itself, and so does every position when something other than
messages of the ring passed. ``tests/emulator/test_alike.py`` holds the traces of both ways together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.ids import Position, Replica, Round
from ftruntime.protocol.share import Share, State
from ftruntime.protocol.task import Task

from .kernel import Handler, Lane
from .process import RING, Process

if TYPE_CHECKING:
    from .emulation import Emulation

Due = list[tuple[float, list[Any]]]
Plain = list[tuple[float, list[tuple[Replica, Replica, m.Message]]]]  # hears, speaks, what; without data
KEPT = 4  # rounds whose gradients are kept
SHORT = 48  # events of a lane that are run sooner than they are copied
FEWEST = 4  # lanes for which looking whether they are alike is worth its while


class Part(NamedTuple):
    """A rank of a lane, and the round that it reduces, if it does."""

    process: Process
    share: Share | None

    @property
    def round(self) -> Round:
        return -1 if self.share is None else self.share.plan.round

    def image(self, free: float) -> object:
        """All that matters to what this rank does in its lane, but for its position and data."""
        if self.share is None:
            return self.process.member
        assert self.share.ring is not None
        return self.share.ring.image(), self.share.image(), free


Party = list[Part]  # the ranks of one position, by replica


class Mark(NamedTuple):
    """What running a lane left of one rank of it.

    ring, share: images; the share as it was before the vote, if it has come so far
    sent, stale: messages sent, beside the vote, and messages ignored
    free:        the NIC's time
    """

    ring: tuple[object, ...]
    share: tuple[object, ...]
    sent: int
    stale: int
    free: float


class Way(NamedTuple):
    """What running a lane left.

    marks: of each rank of the party
    ready: (time, number) of each rank that may vote, or has voted, in order of time
    due:   what is still under way
    voting: whether a rank may have voted
    """

    marks: list[Mark]
    ready: list[tuple[float, int]]
    due: Plain
    voting: bool
    events: int


class _Known:
    """Ways by how the lane stood. They are few, and mostly the last one fits again: comparing is quicker than
    hashing a key of some hundred numbers.

    way: of the key that ``has`` found
    """

    def __init__(self) -> None:
        self.way: Way | None = None
        self._ways: list[tuple[object, Way | None]] = []

    def has(self, key: object) -> bool:
        for place, (standing, way) in enumerate(self._ways):
            if standing == key:
                self.way = way
                if place:
                    self._ways.insert(0, self._ways.pop(place))
                return True
        return False

    def add(self, key: object, way: Way | None) -> None:
        self._ways.append((key, way))


class Alike:
    """Runs lanes for the kernel, alike ones once. ``folded`` counts the lanes that were not run."""

    def __init__(self, job: Emulation) -> None:
        self._job = job
        self._replicas = range(job.config.replicas)
        self.folded = 0
        self._recorded = 0
        # What the members of a ring put in: position -> round.
        self._shares: list[dict[Round, Any]] = [{} for _ in range(job.config.ranks_per_replica)]

    def opened(self, position: Position, task: Task, round: Round, shape: Geometry, exchange: Any) -> None:
        """A rank has buffers for ``round``."""
        rounds = self._shares[position]
        if round not in rounds:
            rounds[round] = exchange.shares(shape)
            for old in [number for number in rounds if number <= round - KEPT]:
                del rounds[old]
        rounds[round].put(task.index, exchange.gradients)

    def run(self, lanes: list[Lane], first: float) -> int:
        """Every lane of ``lanes`` up to the kernel's limit; returns how many events that were."""
        kernel, known, count = self._job.kernel, _Known(), 0
        worth = len(lanes) >= FEWEST
        for lane in lanes:
            if lane.next_time >= kernel.limit:
                continue
            kernel.now = first
            standing = self._standing(lane) if worth else None
            if standing is None:
                count += lane.run()
                continue
            party, key = standing
            if not known.has(key):
                known.add(key, self._record(lane, party))
                count += self._recorded
                worth = self._recorded > SHORT
            else:
                way = known.way
                count += lane.run() if way is None else self._follow(lane, party, way)
        return count

    # -- alike? ------------------------------------------------------------------------------------

    def _standing(self, lane: Lane) -> tuple[Party, object] | None:
        """The ranks of the lane, and a key that is equal for lanes that stand alike; None for a lane
        that must run by itself."""
        party = self._party(lane.number)
        due = _plain(lane.due(), party) if party is not None else None
        if party is None or due is None:
            return None
        images = tuple([part.image(self._free(part.process)) for part in party])
        moving = tuple([(time, tuple(events)) for time, events in due])
        return party, (lane.voting, images, moving)

    def _party(self, position: int) -> Party | None:
        """The ranks of a lane, if all that they do in it is to reduce one round each."""
        party: Party = []
        for replica in self._replicas:
            process = self._job.processes.get((replica, position))
            if process is None:
                continue
            if process.deaf or process.stall or process.leads or process.odd is not None:
                return None
            shares = process.rank.member.shares
            share = next(iter(shares.values()), None)
            if share is not None and (len(shares) > 1 or share.ring is None):
                return None
            if share is not None and share.plan.round not in self._shares[position]:
                return None  # of long ago: what was put in is no longer kept
            party.append(Part(process, share))
        return party if any(part.share for part in party) else None

    def _free(self, process: Process) -> float:
        nic, free = self._job.network.nic(process.address)
        return free[nic]

    # -- run one ---------------------------------------------------------------------------------

    def _record(self, lane: Lane, party: Party) -> Way | None:
        """Run the lane, and what came of it; None if it cannot be a pattern for others."""
        job = self._job
        before = [_Before(part) for part in party]
        job.votes, outside = [], job.kernel.outside
        ready = _Ready(party)
        self._recorded = events = lane.run(ready.look)
        votes, job.votes = job.votes, None
        if job.kernel.outside - outside != len(votes) or self._party(lane.number) != party:
            return None
        due = _plain(lane.due(), party)
        if due is None:
            return None
        marks = [old.mark(votes, self._free(old.part.process)) for old in before]
        return Way(marks, sorted((time, i) for i, time in ready.times.items()), due, lane.voting, events)

    # -- let others follow ---------------------------------------------------------------------------

    def _follow(self, lane: Lane, party: Party, way: Way) -> int:
        """The ranks of the party become what those of the recorded one became."""
        job = self._job
        for part, mark in zip(party, way.marks, strict=True):
            process, share = part
            process.rank.member.stale += mark.stale
            process.sent += mark.sent
            nic, free = job.network.nic(process.address)
            free[nic] = mark.free
            if share is not None:
                assert share.ring is not None
                share.ring.become(mark.ring)
                share.become(mark.share)
                self._fill(process, share)
        lane.voting = way.voting
        lane.replace(self._due(party, way.due, lane.number))
        for time, i in way.ready:
            job.kernel.now, (process, _) = time, party[i]
            scalars = process.device.measure(party[i].round) if job.config.scalars else ()
            process.handle(e.Measured(party[i].round, scalars), time)
        self.folded += 1
        return way.events

    def _fill(self, process: Process, share: Share) -> None:
        """Give a rank the data that its counters say it has: finished chunks, and what lies in slots."""
        ring, round, i = share.ring, share.plan.round, share.task.index
        assert ring is not None
        shares = self._shares[process.address[1]][round]
        exchange = process.device.buffer(round)
        count = ring.finished_count
        if count > exchange.done and ring.geometry.members > 1:
            exchange.finish(count, shares.totals())
        buffers = process.rings[round]
        slots = len(buffers.slots)
        for number in range(ring.freed, ring.filled):
            buffers.slots[number % slots] = shares.passed(i, number)
        for number in range(ring.consumed, ring.received):
            buffers.incoming[number % slots] = shares.passed(i - 1, number)

    def _due(self, party: Party, due: Plain, position: int) -> Due:
        """What is under way, for the ranks of another position."""
        of = {part.process.address[0]: part for part in party}
        found = []
        for time, events in due:
            flat: list[Any] = []
            for to, source, message in events:
                part = of[to]
                if type(message) is m.Chunk:
                    data = self._chunk_data(part, message)
                    fields = (message.round, message.incarnation, message.seq, message.push, data)
                    flat += [part.process.chunk_handler, m.Chunk(*fields)]
                else:
                    flat += [part.process.handler, e.Received((source, position), message)]
            found.append((time, flat))
        return found

    def _chunk_data(self, part: Part, chunk: m.Chunk) -> Any:
        """The data of a chunk on its way to ``part``; one of a round that is over there is not looked at."""
        process, share = part
        if share is None or share.plan.round != chunk.round:
            return None
        return self._shares[process.address[1]][chunk.round].passed(share.task.index - 1, chunk.seq)


class _Before:
    """What a rank had before its lane ran."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._sent, self._stale = part.process.sent, part.process.rank.member.stale
        self._voted = part.share is not None and part.share.state >= State.VOTED

    def mark(self, votes: list[Process], free: float) -> Mark:
        """What it has now; but for its vote, which each rank casts for itself."""
        process, share = self.part
        sent = process.sent - self._sent - votes.count(process)
        stale = process.rank.member.stale - self._stale
        if share is None:
            return Mark((), (), sent, stale, free)
        assert share.ring is not None
        state, *others = share.image()
        if state is State.VOTED and not self._voted:
            state = State.WHOLE
        return Mark(share.ring.image(), (state, *others), sent, stale, free)


class _Ready:
    """When each rank of a party was measured or, later, had its last acknowledgement: what a vote needs."""

    def __init__(self, party: Party) -> None:
        self.times: dict[int, float] = {}
        self._measured = {part.process for part in party if part.share and part.share.scalars is not None}
        self._shares = {
            part.process: (i, part.share)
            for i, part in enumerate(party)
            if part.share is not None and part.share.state < State.VOTED
        }

    def look(self, handler: Handler, now: float) -> None:
        """``handler`` has just run."""
        process = handler.__self__  # type: ignore[attr-defined]
        found = self._shares.get(process)
        if found is None:
            return
        i, share = found
        if share.scalars is not None and process not in self._measured:
            self._measured.add(process)
            self.times[i] = now
        if share.state is State.VOTED:
            self.times[i] = now
            del self._shares[process]


def _plain(due: Due, party: Party) -> Plain | None:
    """What is due in a lane, without positions and data; None if it is not all of rings."""
    shares = {part.process: part.share for part in party}
    found: Plain = []
    for time, flat in due:
        events: list[tuple[Replica, Replica, m.Message]] = []
        for handler, event in zip(flat[::2], flat[1::2], strict=True):
            process = handler.__self__
            if process not in shares:
                return None
            if type(event) is m.Chunk:
                events.append((process.address[0], -1, _without_data(event)))
            elif type(event) is e.Received and _heard_in_ring(event.message, shares[process]):
                events.append((process.address[0], event.source[0], event.message))
            else:
                return None
        found.append((time, events))
    return found


def _without_data(chunk: m.Chunk) -> m.Chunk:
    return m.Chunk(chunk.round, chunk.incarnation, chunk.seq, chunk.push)


def _heard_in_ring(message: m.Message, share: Share | None) -> bool:
    """Whether ``message`` does no more than move a ring on, or comes to one that is gone."""
    kind = type(message)
    return kind is m.Ack or (kind in RING and share is not None and message.round == share.plan.round)  # type: ignore[attr-defined]
