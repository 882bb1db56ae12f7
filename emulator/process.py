"""One emulated process: the protocol of a rank, its mock GPU, and its links to the others.

The driver does what effects ask for and nothing of its own: when a device is done, when a message
arrives and when a timer fires, the protocol hears of it as an event. Every entry of the event log
about a device is written here, from what the device did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.geometry import Geometry, geometry
from ftruntime.protocol.ids import Address, Incarnation, MemberId, Position, Replica, Round, Step
from ftruntime.protocol.plan import Plan
from ftruntime.protocol.rank import Rank
from ftruntime.protocol.task import Part, Task

from . import broken_links
from .commands import Life
from .device import FingerprintDevice
from .kernel import Handler
from .memory import OutOfMemory
from .network import CONTROL_BYTES, HOST
from .odd import Odd, asks_doomed_donor, kernel_fails, samples_at, send_spoilt, sends_range
from .resending import Resending
from .ring_buffers import RingBuffers
from .shards import install, restore, save_shard

if TYPE_CHECKING:
    from .emulation import Emulation


class Process:
    """A rank's process. ``alive`` until it crashes or is ended; ``stuck``: it hangs, and hears nothing.

    leads: what it does is what its replica does: at position 0, and not taken for dead
    mates: the processes of its life of the replica, by position
    odd:   what faults have left in it (``odd.py``); None while it is well
    sent:  messages sent, for the report; weight: for how many positions (``folding.py``)
    """

    __slots__ = (
        "address", "alive", "backlog", "chunk_handler", "computing", "deaf", "device", "handler",
        "hear_chunk", "host_free", "job", "lane", "leads", "life", "mates", "nay", "near", "odd", "pending",
        "rank",
        "reported", "rings", "sent", "source", "stall", "step", "stuck", "tapped", "unsent", "weight",
    )  # fmt: skip

    def __init__(
        self, job: Emulation, rank: Rank, device: FingerprintDevice, address: Address, life: Life
    ) -> None:
        self.job, self.rank, self.device, self.address, self.life = job, rank, device, address, life
        self.alive, self.stuck, self.stall = True, False, False
        self.leads = address[1] == 0
        self.mates: dict[Position, Process] = {}
        self.near: dict[Position, tuple[float, Handler | None]] = {}  # way to a mate: seconds, who hears
        self.unsent: dict[Address, Resending] = {}  # to mates, over links that fail
        self.lane = job.lanes[address[1]]
        self.deaf = False  # dead, stuck or paused
        self.odd: Odd | None = None
        self.step, self.hear_chunk = rank.step, rank.chunk
        self.backlog: list[tuple[Callable[[Any, float], None], Any]] | None = None  # while paused
        self.rings: dict[Round, RingBuffers] = {}
        self.computing: Round = -1
        self.pending: list[Any] | None = None  # the log entry of a change that the device carries out
        self.tapped: Any = None  # data of the message that is being handled
        self.reported: dict[Replica, float] = {}  # link failures that are on their way to the protocol
        self.source = ""  # where the staged state comes from
        self.host_free = 0.0
        self.nay = 0.0  # when the last no that was said arrives
        self.sent, self.weight = 0, 1
        self.handler = self.handle
        self.chunk_handler = self.on_chunk

    @property
    def member(self) -> MemberId:
        return self.rank.member.me

    @property
    def incarnation(self) -> Incarnation:
        return self.rank.member.me.incarnation

    @property
    def at_step(self) -> Step:
        """The step of the state that the replica holds, for its leader."""
        return self.rank.member.step

    @property
    def trains(self) -> bool:
        """Whether the replica is in a round that trains it, for its leader."""
        return self.rank.leader is not None and self.rank.leader.run is not None

    # -- events ----------------------------------------------------------------------------------

    def handle(self, event: Any, now: float) -> None:
        """An event for the protocol."""
        if self.deaf:
            self._keep(self.handler, event)
            return
        for effect in self.step(event, now):
            CARRY_OUT[type(effect)](self, effect, now)
            if not self.alive:
                return  # a fault fell due, or it ended itself

    def on_chunk(self, chunk: m.Chunk, now: float) -> None:
        """A chunk of the left neighbour was written into a receive slot."""
        if self.deaf:
            self._keep(self.chunk_handler, chunk)
            return
        buffers = self.rings.get(chunk.round)
        if buffers is None:
            return  # of a round that is over here; its slots are gone
        buffers.incoming[chunk.seq % len(buffers.incoming)] = chunk.data
        for effect in self.hear_chunk(buffers.left, chunk, now):
            if type(effect) is f.Post:
                self.post(effect, now)
            else:
                CARRY_OUT[type(effect)](self, effect, now)
                if not self.alive:
                    return

    def _keep(self, handler: Callable[[Any, float], None], event: Any) -> None:
        """A paused process hears of it later, one that is stuck or dead never."""
        if self.backlog is not None:
            self.backlog.append((handler, event))

    def on_tap(self, event: e.Received, now: float) -> None:
        """A finished chunk arrived, with its data."""
        if self.deaf:
            self._keep(self.on_tap, event)
            return
        self.tapped = event.message.data  # type: ignore[attr-defined]
        self.handle(event, now)

    def on_range(self, event: e.Received, now: float) -> None:
        """A range arrived: the device checks its checksum before the protocol hears of it."""
        if self.deaf:
            self._keep(self.on_range, event)
            return
        message = event.message
        assert isinstance(message, m.RangeData)
        self.tapped = message.data
        intact = self.device.intact(message.index, message.data)
        if intact != message.intact:
            fields = (message.lineage, message.index, message.replica, message.incarnation)
            event = e.Received(event.source, m.RangeData(*fields, intact, message.data))
        self.handle(event, now)

    def on_last_bucket(self, event: e.BucketReady, now: float) -> None:
        """Backward is done: the device's activations are free."""
        if self.deaf:
            self._keep(self.on_last_bucket, event)
            return
        if self.computing == event.round:
            self.computing = -1
            self.device.computed()
            if self.leads:
                self.job.hub_of_leaders.reducing(self, event.round, now)
        self.handle(event, now)

    def on_changed(self, event: e.Applied, now: float) -> None:
        """The device holds the new state."""
        if self.deaf:
            self._keep(self.on_changed, event)
            return
        entry, self.pending = self.pending, None
        assert entry is not None, "a device finished what it was not told to do"
        if entry:  # empty: the log has it already
            entry[1] = now
            self.job.log(entry)
        if event.round >= 0:
            self.job.changed(self, now)
        self.handle(event, now)

    # -- pause and resume ------------------------------------------------------------------------

    def pause(self) -> None:
        """SIGSTOP: what happens meanwhile waits."""
        if not self.deaf:
            self.backlog, self.deaf = [], True

    def resume(self, now: float) -> None:
        """SIGCONT: everything that waited happens at once, in its order."""
        backlog, self.backlog = self.backlog, None
        self.deaf = not self.alive or self.stuck
        for handler, event in backlog or ():
            handler(event, now)

    def stick(self) -> None:
        """The process lives on and does nothing any more."""
        self.stuck = self.deaf = True

    def die(self) -> None:
        self.alive, self.deaf, self.backlog = False, True, None

    # -- talk ------------------------------------------------------------------------------------

    def post(self, effect: f.Post, now: float) -> None:
        """The hot path: reduce and forward one chunk."""
        buffers = self.rings[effect.round]
        give, take = effect.give, effect.take
        if take >= 0:
            data = buffers.take(take, buffers.incoming[take % len(buffers.incoming)])
            if give < 0:
                return
        elif effect.filled:
            data = buffers.slots[give % len(buffers.slots)]
        else:
            data = buffers.produce(give)
        buffers.slots[give % len(buffers.slots)] = data
        if effect.send:
            self.sent += 1
            size = buffers.sizes[give]
            start = now + size * buffers.reduce_s
            if buffers.network.faulty:
                arrival = buffers.network.arrival(self.address, buffers.target, size, start)
                if buffers.network.doubled and buffers.right is not None:
                    chunk = m.Chunk(effect.round, buffers.incarnation, give, effect.push, data)
                    buffers.at(arrival, buffers.right, chunk)
            else:  # Network.arrival, for one link
                free, nic = buffers.free, buffers.nic
                if free[nic] > start:
                    start = free[nic]
                free[nic] = start = start + size * buffers.byte_s
                arrival = start + buffers.latency_s
            chunk = m.Chunk(effect.round, buffers.incarnation, give, effect.push, data)
            if buffers.slow or arrival == math.inf:
                self._deliver_chunk(buffers, chunk, arrival, now)
            else:
                buffers.at(arrival, buffers.right, chunk)

    def _deliver_chunk(self, buffers: RingBuffers, chunk: m.Chunk, arrival: float, now: float) -> None:
        """The neighbour is gone, the link fails, or the end of a transfer must be told."""
        if buffers.right is None and self.job.elsewhere is None:
            broken_links.refused(self, buffers.target, now, now)
            return
        if arrival == math.inf:
            broken_links.failed(self, buffers.target, chunk.round, now)
            return
        if buffers.right is not None:
            if not send_spoilt(self, buffers, chunk, arrival):
                buffers.at(arrival, buffers.right, chunk)
        elif not self.job.elsewhere.carry(self, buffers.target, chunk, arrival):  # type: ignore[union-attr]
            broken_links.refused(self, buffers.target, now, now)
            return
        if self.job.completions:
            self.lane.at(arrival, self.handler, e.Sent(chunk.round, chunk.seq + 1))

    def send(self, effect: f.Send, now: float) -> None:
        """A message over the network, or to a rank of the own replica."""
        to, message = effect.to, effect.message
        if to[0] != self.address[0]:
            size = HOST if type(message) in FETCH else CONTROL_BYTES
            if self.odd is not None:
                asks_doomed_donor(self, message, to, now)
            self._transmit(to, message, size, now, Process.handle)
        elif self.unsent or self.job.network.touched(self.address, now):
            self._tell_mate(to, message, now)
        elif self.job.folds is not None:
            self.job.folds.tell(self, to, message, now)
        else:
            self._tell_near(to, message, now)

    def _tell_near(self, to: Address, message: m.Message, now: float) -> None:
        """To a rank of the own replica, over a link that works: what ``_transmit`` comes to."""
        found = self.near.get(to[1])
        if found is None:
            latency, _ = self.job.network.link(self.address, to)
            mate = self.mates.get(to[1])
            found = self.near[to[1]] = latency, None if mate is None else mate.handler
        self.sent += 1
        self.tell_mate(to, found[1], message, now + found[0])

    def tell_mate(self, to: Address, hearer: Handler | None, message: m.Message, arrival: float) -> None:
        """``message`` reaches a rank of the own replica; ``hearer`` is None where that is run elsewhere."""
        job, kernel, kind = self.job, self.job.kernel, type(message)
        left, ordered = kernel.left_lane, False
        if kind is m.Vote:
            ordered = self._told_no(message.yes, arrival)  # type: ignore[attr-defined]
        elif kind is m.Sealed or kind is m.Fetched:
            ordered = True  # what is passed on of several answers depends on which is heard first
        if hearer is None:
            assert job.crossing is not None, f"position {to[1]} is run nowhere"
            job.crossing.tell(self, to, message, arrival, ordered)
        elif ordered:
            kernel.in_order(arrival, self.address, hearer, e.Received(self.address, message))
        else:
            kernel.at(arrival, hearer, e.Received(self.address, message))
        if kind is m.Vote and not ordered:
            kernel.left_lane = left  # of a yes nothing comes soon, so a lane runs on past it
            if job.votes is not None:
                job.votes.append(self)
        elif kind is m.Seal:
            job.lanes[to[1]].voting = True  # what it answers may end the round without any vote

    def _told_no(self, yes: bool, arrival: float) -> bool:
        """Of several no's only the first to be heard is passed on; so those of one instant are heard in the
        order of speakers, as is what follows them. Returns whether this is one of them."""
        if not yes:
            self.nay = arrival
        return self.nay == arrival

    def _tell_mate(self, to: Address, message: m.Message, now: float) -> None:
        """Over a link that may fail."""
        waiting = self.unsent.get(to)
        if waiting is None:
            waiting = self.unsent[to] = Resending(self, to, now)
        waiting.add(message)

    def _transmit(
        self,
        to: Address,
        message: m.Message,
        size: int,
        now: float,
        handler: Callable[[Process, Any, float], None],
        extra: float = 0.0,
    ) -> None:
        """To a rank of another replica: when the network says; a process that is gone refuses it."""
        job = self.job
        self.sent += 1
        arrival = job.network.arrival(self.address, to, size, now)
        if arrival == math.inf:
            broken_links.failed(self, to, getattr(message, "round", -1), now)
            return
        target = job.processes.get(to)
        if target is not None and target.alive and target.member.incarnation:
            bound = target.handler if handler is Process.handle else handler.__get__(target)
            at = self.lane.at if type(message) in RING else job.kernel.at
            at(arrival + extra, bound, e.Received(self.address, message))
            if job.network.faulty and job.network.doubled:
                at(arrival + extra, bound, e.Received(self.address, message))
        elif job.elsewhere is None or not job.elsewhere.carry(self, to, message, arrival + extra):
            broken_links.refused(self, to, arrival + (arrival - now), now)

    def post_tap(self, effect: f.PostTap, now: float) -> None:
        data = self.device.buffer(effect.round).finished(effect.index)
        message = m.Tap(effect.round, self.member.incarnation, effect.index, data)
        self._transmit(effect.to, message, self.job.config.ftar.chunk_bytes, now, Process.on_tap)

    def store_tap(self, effect: f.StoreTap, now: float) -> None:
        self.device.buffer(effect.round).store(effect.index, self.tapped)

    def send_range(self, effect: f.SendRange, now: float) -> None:
        """Ranges travel over the host network, not through the NIC that FTAR uses."""
        data = self.device.range_data(effect.lineage, effect.index)
        fields = (effect.lineage, effect.index, self.member.replica, self.member.incarnation)
        seconds, data = sends_range(self, data)
        message = m.RangeData(*fields, True, data)
        self.host_free = max(now, self.host_free) + seconds
        self._transmit(effect.to, message, HOST, now, Process.on_range, extra=self.host_free - now)

    def connect(self, effect: f.Connect, now: float) -> None:
        """Connections are made ahead of need; the time that this takes is in the warm-up."""

    # -- compute ---------------------------------------------------------------------------------

    def launch(self, effect: f.Launch, now: float) -> None:
        """Forward and backward; the protocol hears of each bucket when the device has it."""
        plan, task = effect.plan, effect.task
        if kernel_fails(self, now):
            return
        begin = samples_at(self, effect.reuse, now)
        try:
            launched = self.device.launch(task.ranges, self.job.read(task.ranges), effect.reuse, begin)
            self._open_ring(plan, task, zeros=False)
        except OutOfMemory as error:
            self.die_of(f"{error}", now)
            return
        if not launched.finite:
            self.die_of("the gradient is not a number", now)
            return
        self._note_computed(plan, task, launched.reused, now)
        if self.leads:
            self.job.hub_of_leaders.computing(self, plan.round, launched.ready[0], now)
        last = len(launched.ready) - 1
        for bucket, ready in enumerate(launched.ready):
            handler = self.on_last_bucket if bucket == last else self.handler
            self.job.kernel.at(ready, handler, e.BucketReady(plan.round, bucket))
        if self.stall:
            self.job.kernel.at(launched.ready[-1] + STALL_AFTER_S, self._stick, None)

    def _note_computed(self, plan: Plan, task: Task, reused: bool, now: float) -> None:
        """The device has begun to compute, or has taken what it computed before."""
        device, member = self.device, self.member
        ranges = [[r.stream, r.start, r.count] for r in task.ranges]
        head = [now, member.replica, member.incarnation, self.address[1], plan.round]
        if reused:
            self.job.log(["reused", *head, ranges, device.grads_for_log()])
        else:
            digest = self.job.read(task.ranges).digest
            state = [device.lineage, device.digest()]
            self.job.log(["computed", *head, *state, ranges, digest, device.grads_for_log()])
        self.computing = plan.round

    def _stick(self, _: object, now: float) -> None:
        self.stick()

    def _open_ring(self, plan: Plan, task: Task, zeros: bool) -> None:
        shape = self._shape(task)
        tapped = bool(task.learners)
        exchange = self.device.exchange(plan.round, shape, task.index, tapped=tapped, zeros=zeros)
        assert task.left is not None and task.right is not None
        at = (task.right.replica, self.address[1])
        right = self.job.processes.get(at)
        self.job.alike.opened(self.address[1], task, plan.round, shape, exchange)
        self.lane.voting = self.job.config.scalars == 0  # then a vote is not seen to come
        self.rings[plan.round] = RingBuffers(self, exchange, shape, task.index, task.left.replica, at, right)

    def _shape(self, task: Task) -> Geometry:
        ftar = self.job.config.ftar
        return geometry(ftar.buckets, task.members, ftar.chunk_bytes, ftar.slots)

    def hold(self, effect: f.Hold, now: float) -> None:
        """Buffers for the sums of a round that this rank catches up by."""
        plan, task = effect.plan, effect.task
        try:
            if task.part is Part.ZEROS:
                self._open_ring(plan, task, zeros=True)
            else:
                assert task.tap is not None
                self.device.hold(plan.round, self._shape(task), plan.contributors.index(task.tap))
        except OutOfMemory as error:
            self.die_of(f"{error}", now)

    def measure(self, effect: f.Measure, now: float) -> None:
        if self.leads:
            self.job.hub_of_leaders.reduced(self, effect.round, now)
        self.lane.votes(now)
        self.lane.at(now, self.handler, e.Measured(effect.round, self.device.measure(effect.round)))

    def apply(self, effect: f.Apply, now: float) -> None:
        """The optimizer step; logged, as the device did it, when the device has it done."""
        if self.leads:
            self.job.hub_of_leaders.applying(self, effect.plan.round, now)
        if kernel_fails(self, now):
            return
        plan, device, member = effect.plan, self.device, self.member
        contributing = member in plan.contributors
        base = [device.lineage, device.digest()]
        reduced = device.reduced_for_log(plan.round)
        done = device.apply(plan.round, plan.lineage_after, plan.divisor, plan.lr_factor, effect.scalars, now)
        head = ["applied", now, member.replica, member.incarnation, self.address[1], plan.round, contributing]
        after = [device.step, device.lineage, device.digest()]
        numbers = [list(effect.scalars), plan.divisor, plan.lr_factor]
        self.pending = [*head, *base, reduced, *numbers, *after]
        if not effect.keep:
            self.rings.pop(plan.round, None)
        self.job.kernel.at(done, self.on_changed, e.Applied(plan.round))

    def abort(self, effect: f.Abort, now: float) -> None:
        """Transfers are messages: those of a round whose buffers are gone are ignored."""

    def drop(self, effect: f.Drop, now: float) -> None:
        """Free the round's buffers; unless the round was applied here, this is the decision to drop it."""
        round = effect.round
        if self.device.has(round):
            self.device.drop(round)
            member = self.member
            self.job.log(["dropped", now, member.replica, member.incarnation, self.address[1], round])
        self.rings.pop(round, None)

    # -- states ----------------------------------------------------------------------------------

    def freeze(self, effect: f.Freeze, now: float) -> None:
        try:
            self.device.freeze(effect.lineage, now)
        except OutOfMemory as error:
            self.die_of(f"{error}", now)

    def release(self, effect: f.Release, now: float) -> None:
        self.device.release(effect.lineage)

    def stage(self, effect: f.Stage, now: float) -> None:
        self.source = "donors"
        try:
            self.device.stage(effect.lineage, effect.index, self.tapped)
        except OutOfMemory as error:
            self.die_of(f"{error}", now)

    def unstage(self, effect: f.Unstage, now: float) -> None:
        self.device.unstage(effect.lineage)

    def warm_up(self, effect: f.WarmUp, now: float) -> None:
        device, member = self.device, self.member
        state = [device.step, device.lineage, device.digest()]
        self.job.log(["initial", now, member.replica, member.incarnation, self.address[1], *state])
        self.job.kernel.at(now + self.job.hosts.warm_up[self.address[0]], self.handler, e.Warm())

    # -- time, store, end ------------------------------------------------------------------------

    def set_timer(self, effect: f.SetTimer, now: float) -> None:
        after = effect.after if self.odd is None else self.odd.lasts(effect.after)
        self.job.kernel.at(now + after, self.handler, e.TimerFired(effect.name, effect.tag))

    def store_call(self, effect: f.StoreCall, now: float) -> None:
        call = effect.call

        def reply(answer: s.Answer, at: float) -> None:
            self.handle(e.StoreAnswer(call, answer), at)

        assert isinstance(effect.request, s.Request)
        self.job.hub_of_leaders.submit(self.address[0], effect.request, reply)

    def watched(self, change: s.Change, now: float) -> None:
        self.handle(e.Watched(change), now)

    def exit(self, effect: f.Exit, now: float) -> None:
        self.job.hosts.left(self, effect.reason, effect.restart, now)

    def finish(self, effect: f.Finish, now: float) -> None:
        """The job is over. The launcher ends the replica's other ranks when they have heard of it, too."""
        member = self.member
        who = [member.replica, member.incarnation, self.address[1]]
        self.job.log(["over", now, *who, effect.step, effect.lineage])
        if self.address[1] == 0:
            self.job.hosts.left(self, "it has trained to the end", False, now)

    def note(self, effect: f.Note, now: float) -> None:
        self.job.hub_of_leaders.noted(self, effect, now)

    def die_of(self, reason: str, now: float) -> None:
        """The device or the host failed: the protocol hears of it, and the process ends."""
        self.job.log_crash(self, reason, now)
        self.handle(e.LocalError(ErrorReport(ErrorClass.LOCAL_FATAL, reason)), now)


RING = frozenset({m.Join, m.Chunk, m.Ack})  # messages of a lane; others of a ring may lead to a no
FETCH = frozenset({m.RangeRequest, m.NotHere})  # over the network of the hosts, with the ranges
STALL_AFTER_S = 2.5e-3  # a rank that joins and stalls forwards chunks for so long


CARRY_OUT: dict[type[f.Effect], Callable[[Process, Any, float], None]] = {
    f.Post: Process.post,
    f.Send: Process.send,
    f.PostTap: Process.post_tap,
    f.StoreTap: Process.store_tap,
    f.SendRange: Process.send_range,
    f.Reconnect: broken_links.reconnect,
    f.Connect: Process.connect,
    f.Launch: Process.launch,
    f.Hold: Process.hold,
    f.Measure: Process.measure,
    f.Apply: Process.apply,
    f.Abort: Process.abort,
    f.Drop: Process.drop,
    f.Freeze: Process.freeze,
    f.Release: Process.release,
    f.Stage: Process.stage,
    f.Unstage: Process.unstage,
    f.Restore: restore,
    f.InstallStaged: install,
    f.WarmUp: Process.warm_up,
    f.SaveShard: save_shard,
    f.SetTimer: Process.set_timer,
    f.StoreCall: Process.store_call,
    f.Exit: Process.exit,
    f.Finish: Process.finish,
    f.Note: Process.note,
}
