"""Positions whose rings are in the same state do the same: one of them runs, the others become it.

When all gradients of a bucket are there, the rings of all positions usually stand alike: equal
counters, equal times, equal messages under way. Then one position's ring runs as always, event by
event through the protocol; what came of it (the state of its rings, the times of its NICs, what is still
under way) is copied to the other positions, and each rank's sums are added up from its own gradients.
A position that differs in anything runs by itself, and so does every position when something other than
chunks and acknowledgements passed. ``tests/emulator/test_alike.py`` holds the traces of both ways together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Position, Replica, Round
from ftruntime.protocol.share import Share

from .kernel import Lane
from .process import Process

if TYPE_CHECKING:
    from .emulation import Emulation

Due = list[tuple[float, list[Any]]]
FEWEST = 4  # lanes for which looking whether they are alike is worth its while


class Way(NamedTuple):
    """What running a lane left, for each process of the lane, and beside them.

    rings, shares, sent, stale, free:  per process: image, progress, messages sent, ignored, its NIC's time
    measured:  (process, time) of each Measure, in order: the only thing that left the lane
    due:       what is still due, by time: (process that hears, event) without positions
    buckets:   (first, end) of the buckets that were reduced
    last:      time of the last event
    """

    rings: list[tuple[object, ...]]
    shares: list[Any]
    sent: list[int]
    stale: list[int]
    free: list[float]
    measured: list[tuple[int, float]]
    due: list[tuple[float, list[tuple[int, Replica, m.Message]]]]
    buckets: tuple[int, int]
    events: int
    last: float


class Alike:
    """Runs lanes for the kernel, alike ones once. ``folded`` counts the lanes that were not run."""

    def __init__(self, job: Emulation) -> None:
        self._job = job
        self._replicas = range(job.config.replicas)
        self.folded = 0
        self._recorded = 0

    def run(self, lanes: list[Lane], first: float) -> int:
        """Every lane of ``lanes`` up to the kernel's limit; returns how many events that were."""
        kernel, known, count = self._job.kernel, {}, 0
        worth = len(lanes) >= FEWEST
        for lane in lanes:
            if lane.next_time >= kernel.limit:
                continue
            kernel.now = first
            standing = self._standing(lane) if worth else None
            if standing is None:
                count += lane.run()
                continue
            processes, key, start = standing
            if key not in known:
                known[key] = self._record(lane, processes, start)
                way = known[key]
                count += self._recorded if way is None else way.events
            else:
                way = known[key]
                fits = way is not None and way.last < kernel.limit
                count += self._follow(lane, processes, way) if fits and way else lane.run()
        return count

    # -- alike? ------------------------------------------------------------------------------------

    def _standing(self, lane: Lane) -> tuple[list[Process], object, int] | None:
        """The lane's processes, a key that is equal for lanes that stand alike, and the bucket that is to be
        reduced; None for a lane that must run by itself."""
        job, position = self._job, lane.number
        processes = [p for r in self._replicas if (p := job.processes.get((r, position))) is not None]
        rings, start = [], -1
        for process in processes:
            share = _only_share(process)
            if share is None or share.ring is None:
                return None
            ring = share.ring
            bucket = _boundary(ring.geometry.bucket_end, ring.received)
            if ring.received != ring.consumed or bucket is None or start not in (-1, bucket):
                return None
            start = bucket
            nic, free = job.network.nic(process.address)
            rings.append((ring.image(), share.progress(), free[nic], process.member))
        due = _without_position(lane.due(), lane.number)
        if due is None or not processes:
            return None
        chunks = tuple((t, tuple((r, s, _content(x)) for r, s, x in events)) for t, events in due)
        return processes, (tuple(rings), chunks), start

    # -- run one ---------------------------------------------------------------------------------

    def _record(self, lane: Lane, processes: list[Process], start: int) -> Way | None:
        """Run the lane, and what came of it; None if it cannot be a pattern for others."""
        job = self._job
        round = next(iter(processes[0].rank.member.shares))
        before = [(p.sent, p.rank.member.stale) for p in processes]
        job.recording, outside = [], job.kernel.outside
        self._recorded = events = lane.run()
        measured, job.recording = job.recording, None
        if job.kernel.outside - outside != len(measured) or not all(p.alive for p in processes):
            return None
        rings = [p.rank.member.shares[round].ring for p in processes if round in p.rank.member.shares]
        due = _without_position(lane.due(), lane.number)
        if len(rings) != len(processes) or due is None or _has_chunks(due):
            return None
        ends = {_boundary(ring.geometry.bucket_end, ring.consumed) for ring in rings if ring is not None}
        end = ends.pop()
        if ends or end is None or any(ring.received != ring.consumed for ring in rings if ring is not None):
            return None  # in mid-bucket, or a chunk that nobody took waits with its data
        number = {p.address[0]: i for i, p in enumerate(processes)}
        shares = [p.rank.member.shares[round] for p in processes]
        return Way(
            rings=[ring.image() for ring in rings if ring is not None],
            shares=[share.progress() for share in shares],
            sent=[p.sent - old[0] for p, old in zip(processes, before, strict=True)],
            stale=[p.rank.member.stale - old[1] for p, old in zip(processes, before, strict=True)],
            free=[job.network.nic(p.address)[1][job.network.nic(p.address)[0]] for p in processes],
            measured=[(number[replica], at) for replica, at in measured],
            due=due,
            buckets=(start, end),
            events=events,
            last=job.kernel.now,
        )

    # -- let others follow ---------------------------------------------------------------------------

    def _follow(self, lane: Lane, processes: list[Process], way: Way) -> int:
        """The lane's processes become what those of the recorded lane became."""
        job, round = self._job, next(iter(processes[0].rank.member.shares))
        self._reduce(processes, round, way)
        for i, process in enumerate(processes):
            member = process.rank.member
            share = member.shares[round]
            assert share.ring is not None
            share.ring.become(way.rings[i])
            share.become(way.shares[i])
            member.stale += way.stale[i]
            process.sent += way.sent[i]
            nic, free = job.network.nic(process.address)
            free[nic] = way.free[i]
        lane.replace([(t, _with_position(job, events, lane.number)) for t, events in way.due])
        for i, at in way.measured:
            job.kernel.now = at
            processes[i].measure(f.Measure(round), at)
        self.folded += 1
        return way.events

    def _reduce(self, processes: list[Process], round: Round, way: Way) -> None:
        """Each rank has the sums of what the ranks of its own position computed."""
        exchanges = [p.device.buffer(round) for p in processes]
        for bucket in range(*way.buckets):
            exchanges[0].finish_together(exchanges, bucket)


def _only_share(process: Process) -> Share | None:
    """The round of a process that does nothing but reduce it, and has not come to the vote."""
    shares = process.rank.member.shares
    if process.deaf or process.stall or process.leads or len(shares) != 1:
        return None
    for share in shares.values():
        if share.source is None and share.sink is None and share.scalars is None:
            return share
    return None


def _boundary(ends: tuple[int, ...], taken: int) -> int | None:
    """How many buckets end with ``taken`` chunks, if a bucket ends there."""
    if taken == 0:
        return 0
    return ends.index(taken) + 1 if taken in ends else None


def _without_position(
    due: Due, position: Position
) -> list[tuple[float, list[tuple[int, Replica, m.Message]]]] | None:
    """What is due in a lane as (replica that hears, replica that speaks, message)."""
    found = []
    for time, flat in due:
        events = []
        for handler, event in zip(flat[::2], flat[1::2], strict=True):
            process = handler.__self__
            if type(event) is m.Chunk and event.round in process.rings:
                events.append((process.address[0], process.rings[event.round].left, event))
            elif type(event) is e.Received and type(event.message) is m.Ack:
                events.append((process.address[0], event.source[0], event.message))
            else:
                return None
        found.append((time, events))
    return found


def _with_position(
    job: Emulation, events: list[tuple[int, Replica, m.Message]], position: Position
) -> list[Any]:
    """The same for the ranks of another position: only acknowledgements, which carry no data."""
    flat: list[Any] = []
    for to, source, message in events:
        flat += [job.processes[to, position].handler, e.Received((source, position), message)]
    return flat


def _content(message: m.Message) -> object:
    """A message without its data."""
    if type(message) is m.Chunk:
        return message.round, message.incarnation, message.seq, message.push
    return message


def _has_chunks(due: list[tuple[float, list[tuple[int, Replica, m.Message]]]]) -> bool:
    return any(type(message) is m.Chunk for _, events in due for _, _, message in events)
