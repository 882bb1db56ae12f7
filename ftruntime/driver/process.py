"""One rank as a real process: the protocol on a control thread, and what it asks for done (docs/driver.md).

The control thread runs a loop: messages, answers of the store, timers and reports of the device become
events of the protocol, and its effects are carried out in order. It never waits for the device, and the
training thread never waits for it but in ``Worker.next``.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from ftruntime.observe import Observer, Sinks
from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.geometry import Geometry, geometry
from ftruntime.protocol.ids import Address, Incarnation, MemberId, Replica, Round, Step
from ftruntime.protocol.plan import lineage_root
from ftruntime.protocol.rank import Rank
from ftruntime.protocol.task import Part, Task
from ftruntime.stores import EmbeddedClient, Seat
from ftruntime.wire import Frame, Loop, Who, checked_token, local_address

from .books import Books
from .host import Host, RangePart
from .job import Settings
from .links import Links
from .ring_bytes import RingBytes
from .storage import BadShard, read_shard, write_shard
from .worker import Trainee, Work, Worker

AGAIN: Final = 75  # exit status: this life is over, start the replica anew
FOR_GOOD: Final = 76  # exit status: fenced, or the job stops
DRAIN_S: Final = 0.01
LAST_CALL: Final = -1  # whose answer nobody waits for
OWN_FAULT: Final = 70  # exit status: the runtime itself failed


class Driver:
    """The rank that ``settings`` name, training ``trainee``. ``worker`` is for the training thread.

    Raises ConfigError and OSError when the process cannot begin: a bad token, no such interface.
    """

    def __init__(self, settings: Settings, trainee: Trainee) -> None:
        self.settings, self.config = settings, settings.config
        self.address: Address = (settings.replica, settings.position)
        nonce = f"{settings.replica}/{settings.life}/{secrets.token_hex(4)}"
        self.rank = Rank(self.config, *self.address, nonce, settings.life)
        self.loop, self.worker = Loop(), Worker()
        root = lineage_root(self.config.job, self.config.initial_digest)
        ftar = self.config.ftar
        self.host = Host(
            self.loop, trainee, self.worker, ftar.buckets, self.config.catch_up.ranges, root,
            settings.audit, self._failed,
        )  # fmt: skip
        self.books = Books(settings, self.host, self.rank)
        self._token = checked_token(settings.token)
        self._at = local_address(settings.interface, settings.store)
        self.links = Links(
            self.loop, self._at, self._token, self._who, self._landing, self._heard, self._lost,
            self._mended, self._settled,
        )  # fmt: skip
        self._sinks = Sinks(settings.observe, *self.address)
        self._observer = self._observed()
        self._client: EmbeddedClient | None = None
        self._slots: dict[Round, list[memoryview]] = {}
        self._tapped: memoryview | None = None  # the payload of the message that is being handled
        self._is_warm = False
        self._bulk_free = 0.0
        self._until: Step = 0
        self.on_state: Callable[[], object] = _unheard  # the state has changed
        self._thread = threading.Thread(target=self._run, name="ft-control", daemon=True)

    # -- life ----------------------------------------------------------------------------------

    def start(self, until: Step = 0) -> None:
        """Begin; returns at once. ``until``: the step that the job is to end with; 0: it has no end."""
        self._until = until
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End in good order, from the training thread, when what was sent is on its way."""
        self.loop.call(lambda: self._drain(self.loop.now() + seconds))
        self._thread.join(2 * seconds)

    def _drain(self, latest: float) -> None:
        if self.links.drained or self.loop.now() >= latest:
            self.loop.stop()
        else:
            self.loop.after(DRAIN_S, lambda: self._drain(latest))

    def _observed(self) -> Observer | None:
        """None where nobody would hear of it."""
        leads = self.address[1] == 0 and self.settings.observe.publish_s > 0
        if not (leads or self._sinks.all):
            return None
        sinks = [self._sinks] if self._sinks.all else []
        ranges = self.config.catch_up.ranges
        return Observer(*self.address, lambda: self.me, ranges, sinks, self.loop.now)

    def _publish(self) -> None:
        """Tell the store how this replica fares, if that has changed."""
        assert self._observer is not None and self._client is not None
        if self._observer.changed:
            self._client.publish(self._observer.report())
        self.loop.after(self.settings.observe.publish_s, self._publish)

    def _run(self) -> None:
        try:
            leads = self.address[1] == 0
            self._client = EmbeddedClient(
                self.loop, self.settings.store, self._token, self._who(), self._answered,
                self._watched if leads else None, self.links.seated, self._at,
            )  # fmt: skip
            self._client.announce(Seat(*self.address, self.settings.life, self.links.endpoint))
            if leads and self.settings.observe.publish_s > 0:
                self.loop.after(self.settings.observe.publish_s, self._publish)
            self.loop.soon(lambda: self.handle(e.Started(self._until)))
            self.loop.run()
            self._close()
        except BaseException:
            traceback.print_exc()
            self._end(OWN_FAULT)

    def _close(self) -> None:
        self.links.close()
        if self._client is not None:
            self._client.close()
        self.host.close()
        self.books.close()
        self._sinks.close()

    def _end(self, status: int) -> None:
        """Fail by stopping: no other thread may do anything after this."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _who(self) -> Who:
        incarnation = self.me.incarnation
        return Who("rank", self.config.job, *self.address, self.settings.life, incarnation)

    @property
    def me(self) -> MemberId:
        return self.rank.member.me

    # -- events --------------------------------------------------------------------------------

    def handle(self, event: e.Event) -> None:
        if self._observer is not None:
            self._observer.event(event)
        self._carry_out(self.rank.step(event, self.loop.now()))

    def _carry_out(self, effects: list[f.Effect]) -> None:
        if self._observer is not None:
            self._observer.effects(effects)
        for effect in effects:
            CARRY_OUT[type(effect)](self, effect)

    def _soon(self, event: e.Event) -> None:
        """An event that an effect leads to; the effects before it are carried out first."""
        self.loop.soon(lambda: self.handle(event))

    def _heard(self, source: Address, message: m.Message, payload: memoryview | None) -> None:
        """A message from the rank at ``source``, with its payload where ``_landing`` wanted it."""
        if isinstance(message, m.Chunk):
            if message.round in self._slots:
                self._carry_out(self.rank.chunk(source[0], message, self.loop.now()))
        elif isinstance(message, m.RangeData):
            self._range_arrived(source, message, payload)
        else:
            self.handle(e.Received(source, message))

    def _landing(self, source: Address, message: m.Message, size: int) -> memoryview | None:
        """Memory for a payload: its place, if it is the one that is due; else memory to be thrown away."""
        if isinstance(message, m.RangeData):
            target = self.rank.member.staging
            wanted = target is not None and target.lineage == message.lineage
            inside = 0 <= message.index < self.config.catch_up.ranges
            if not (wanted and inside):
                return None
            return self.host.landing_range(message.lineage, message.index, size)
        place = self._chunk_landing(source[0], message)
        if place is not None and len(place) == size:
            return memoryview(place)
        return memoryview(self.host.pool.take(size)) if size <= self.config.ftar.chunk_bytes else None

    def _chunk_landing(self, source: Replica, message: m.Message) -> Any:
        assert isinstance(message, m.Chunk | m.Tap), f"{type(message).__name__} has no payload"
        share, kept = self.rank.member.shares.get(message.round), self.host.rounds.get(message.round)
        if share is None or kept is None:
            return None
        if isinstance(message, m.Chunk):
            ring = share.ring
            due = ring is not None and (source, message.incarnation, message.seq) == (
                ring.left.replica, ring.left.incarnation, ring.received
            )  # fmt: skip
            return kept.landing(message.seq) if due and not kept.learned else None
        tap = share.task.tap
        due = tap is not None and (tap.replica, tap.incarnation) == (source, message.incarnation)
        inside = 0 <= message.index < self._shape(share.task).finished_total
        return kept.landing(message.index) if due and inside and kept.learned else None

    def _range_arrived(self, source: Address, message: m.RangeData, payload: memoryview | None) -> None:
        """The copying thread checks it before the protocol hears of it."""
        data = memoryview(b"") if payload is None else payload

        def checked(intact: bool) -> None:
            fields = (message.lineage, message.index, message.replica, message.incarnation)
            self._tapped = data
            self.handle(e.Received(source, m.RangeData(*fields, intact)))
            self._tapped = None

        self.host.check_range(message.lineage, message.index, message.data, data, checked)

    def _lost(self, peer: Address, incarnation: Incarnation, reason: str) -> None:
        self.handle(e.PeerLost(peer[0], incarnation, reason))

    def _mended(self, peer: Address, reason: str) -> None:
        """The connection is a fresh one, and what was on its way is lost: the rings are told both."""
        for round in list(self._slots):
            self.handle(e.Transient(round, peer[0], reason))

    def _answered(self, call: int, answer: s.Answer) -> None:
        self.handle(e.StoreAnswer(call, answer))

    def _watched(self, change: s.Change) -> None:
        self.handle(e.Watched(change))

    def _failed(self, error: BaseException) -> None:
        """The device or the host failed."""
        report = ErrorReport(ErrorClass.LOCAL_FATAL, f"{type(error).__name__}: {error}")
        self.handle(e.LocalError(report))

    # -- talk ----------------------------------------------------------------------------------

    def send(self, effect: f.Send) -> None:
        self.links.send(effect.to, effect.message)

    def post(self, effect: f.Post) -> None:
        """The hot path: take, sum and pass on one chunk."""
        round, take, give = effect.round, effect.take, effect.give
        ring, slots = self.host.rounds.get(round), self._slots[round]
        if effect.filled:
            data = slots[give % len(slots)]
        else:
            assert isinstance(ring, RingBytes), f"round {round} has no ring here"
            made = ring.take(take) if take >= 0 else ring.produce(give)
            if give < 0:
                return
            data = slots[give % len(slots)] = memoryview(made)
        if effect.send:
            share = self.rank.member.shares[round]
            assert share.task.right is not None
            chunk = m.Chunk(round, self.me.incarnation, give, effect.push)
            to = (share.task.right.replica, self.address[1])
            done = self._sent(round, give) if len(slots) < 2 else None
            self.links.transfer(to, Frame(chunk, (data,), round, done))

    def _sent(self, round: Round, number: int) -> Callable[[], object]:
        """A single slot may be filled again when the socket has taken what was in it (``ring_flow``)."""
        return lambda: self._soon(e.Sent(round, number + 1))

    def post_tap(self, effect: f.PostTap) -> None:
        """A finished chunk for a learner, beside the ring."""
        kept = self.host.rounds[effect.round]
        assert isinstance(kept, RingBytes), "a member of the ring is tapped"
        message = m.Tap(effect.round, self.me.incarnation, effect.index)
        # Not the round's tag: what a learner was promised reaches it although the round is over here.
        frame = Frame(message, (memoryview(kept.finished(effect.index)),))
        self.links.transfer(effect.to, frame, bulk=True)

    def store_tap(self, effect: f.StoreTap) -> None:
        """It landed where it belongs."""

    def send_range(self, effect: f.SendRange) -> None:
        """Not faster than catch-up may be."""

        def cut(part: RangePart, data: memoryview) -> None:
            fields = (effect.lineage, effect.index, *_pair(self.me))
            frame = Frame(m.RangeData(*fields, True, part), (data,))
            now = self.loop.now()
            begin = max(now, self._bulk_free)
            if self.settings.bulk_bps:
                self._bulk_free = begin + len(data) / self.settings.bulk_bps
            self.loop.after(begin - now, lambda: self.links.transfer(effect.to, frame, bulk=True))

        self.host.range_data(effect.lineage, effect.index, cut)

    def reconnect(self, effect: f.Reconnect) -> None:
        """After ``_mended`` there is a fresh connection already."""
        if self.links.up((effect.peer, self.address[1])):
            self._soon(e.Reconnected(effect.peer))
        else:
            self.links.renew((effect.peer, self.address[1]))

    def connect(self, effect: f.Connect) -> None:
        self.links.connect((peer, self.address[1]) for peer in effect.peers)
        self.links.name(self.me.incarnation)

    def _settled(self) -> None:
        """A connection is up, or its peer is away: with the last one, warm-up may be over."""
        if self._is_warm and self.links.settled:
            self._is_warm = False
            self.handle(e.Warm())

    # -- compute -------------------------------------------------------------------------------

    def launch(self, effect: f.Launch) -> None:
        """Work for the training thread, and the bytes of the round; gradients that are there are told of."""
        plan, task = effect.plan, effect.task
        reused = self.host.launch(plan, task, effect.reuse, self._bucket_computed)
        self._open(plan.round, task, zeros=False)
        if reused:
            if self.host.computed:
                self.books.reused(plan.round)
            for bucket in range(self.host.reported):
                self._soon(e.BucketReady(plan.round, bucket))

    def _bucket_computed(self, work: Work, bucket: int) -> None:
        """The training thread says that a gradient is there."""
        self.loop.call(lambda: self._bucket_ready(work, bucket))

    def _bucket_ready(self, work: Work, bucket: int) -> None:
        fresh = self.host.bucket_ready(work, bucket)
        if fresh and self.host.computed:
            self.books.computed(work)
        for ready in fresh:
            self.handle(e.BucketReady(work.round, ready))

    def _open(self, round: Round, task: Task, zeros: bool) -> None:
        shape = self._shape(task)
        self.host.open(round, shape, task.index, zeros)
        self._slots[round] = [memoryview(b"")] * shape.slots

    def _shape(self, task: Task) -> Geometry:
        ftar = self.config.ftar
        return geometry(ftar.buckets, task.members, ftar.chunk_bytes, ftar.slots)

    def hold(self, effect: f.Hold) -> None:
        """Memory for the sums of a round that this rank catches up by."""
        plan, task = effect.plan, effect.task
        if task.part is Part.ZEROS:
            self._open(plan.round, task, zeros=True)
        else:
            assert task.tap is not None
            self.host.hold(plan.round, self._shape(task), plan.contributors.index(task.tap))

    def measure(self, effect: f.Measure) -> None:
        self.host.measure(effect.round, lambda scalars: self.handle(e.Measured(effect.round, scalars)))

    def apply(self, effect: f.Apply) -> None:
        """The optimizer step, on the training thread; written down as the device did it."""
        plan = effect.plan

        def changed() -> None:
            entry()
            self.on_state()
            self.handle(e.Applied(plan.round))

        base = (self.host.lineage, self.host.digest)
        sums = self.host.apply(plan, effect.scalars, changed)
        entry = self.books.applied(plan, effect.scalars, base, sums)
        if not effect.keep:
            self._slots.pop(plan.round, None)

    def abort(self, effect: f.Abort) -> None:
        self.links.withdraw(effect.round)

    def drop(self, effect: f.Drop) -> None:
        if self.host.drop(effect.round):
            self.books.dropped(effect.round)
        self._slots.pop(effect.round, None)

    # -- states --------------------------------------------------------------------------------

    def freeze(self, effect: f.Freeze) -> None:
        self.host.freeze(effect.lineage)

    def release(self, effect: f.Release) -> None:
        self.host.release(effect.lineage)

    def stage(self, effect: f.Stage) -> None:
        assert self._tapped is not None, "a range is staged when it has arrived"
        self.books.source = "donors"
        self.host.stage(effect.lineage, effect.index, self._tapped)

    def unstage(self, effect: f.Unstage) -> None:
        self.host.unstage(effect.lineage)

    def restore(self, effect: f.Restore) -> None:
        """Stage a shard from storage."""
        folder, size = self.settings.checkpoints, self.host.state_bytes
        if folder is None:
            self._soon(e.Restored(effect.lineage, False, "this process has no folder of checkpoints"))
            return
        try:
            state = read_shard(folder, effect.name, self.address[1], size)
        except BadShard as error:
            self._soon(e.Restored(effect.lineage, False, str(error)))
            return
        self.books.source = "initial" if effect.name == "initial" else "checkpoint"
        self.host.stage_whole(effect.lineage, state)
        self._soon(e.Restored(effect.lineage, True))

    def install(self, effect: f.InstallStaged) -> None:
        """Make the staged state the state, on the training thread."""

        def changed() -> None:
            self.books.installed(effect.step, effect.lineage)
            self.on_state()
            self.handle(e.Applied(-1))

        self.host.install(effect.step, effect.lineage, changed)

    def warm_up(self, effect: f.WarmUp) -> None:
        """The first thing that a rank does once it is registered."""
        self.books.initial()
        if self.settings.checkpoints is not None:
            self._write("initial", lambda error: None)

        def warm() -> None:
            self._is_warm = True
            self._settled()

        self.host.warm_up(warm)

    def save_shard(self, effect: f.SaveShard) -> None:
        """Write beside the training; what cannot be written is said to be so."""

        entry = self.books.shard(effect.name, effect.step, effect.lineage)

        def written(error: OSError | None) -> None:
            if error is None:
                entry()
            reason = "" if error is None else str(error)
            self.handle(e.Saved(effect.name, error is None, reason))

        self._write(effect.name, written)

    def _write(self, name: str, done: Callable[[OSError | None], object]) -> None:
        """Write the present state as a shard of checkpoint ``name``, on the copying thread."""
        folder = self.settings.checkpoints
        if folder is None:
            self.loop.soon(lambda: done(OSError("this process has no folder of checkpoints")))
            return

        def write(state: Any) -> None:
            try:
                write_shard(folder, name, self.address[1], state)
            except OSError as error:
                failure = error
                self.loop.call(lambda: done(failure))
            else:
                self.loop.call(lambda: done(None))

        self.host.copied(write)

    # -- time, store, end ----------------------------------------------------------------------

    def set_timer(self, effect: f.SetTimer) -> None:
        def fire() -> None:
            if self.rank.awaits(effect.name, effect.tag):
                self.handle(e.TimerFired(effect.name, effect.tag))

        self.loop.after(effect.after, fire)

    def store_call(self, effect: f.StoreCall) -> None:
        assert self._client is not None
        self._client.ask(effect.call, effect.request)

    def exit(self, effect: f.Exit) -> None:
        again = "it is to be started anew" if effect.restart else "it stays away"
        replica, position = self.address
        print(f"rank {replica}/{position} of {self.me} ends: {effect.reason}; {again}", file=sys.stderr)
        self._give_lease_up()
        self._end(AGAIN if effect.restart else FOR_GOOD)

    def _give_lease_up(self) -> None:
        """A replica ends with any of its ranks. Others need not wait for its lease: torchrun ends none."""
        if self._client is not None and self.me.incarnation:
            self._client.ask(LAST_CALL, s.Expire(self.me))

    def finish(self, effect: f.Finish) -> None:
        """The training thread learns that there is nothing more to train; it ends the process."""
        self.books.over(effect.step, effect.lineage)
        self.worker.put(None)

    def note(self, effect: f.Note) -> None:
        self.books.note(effect)


def _pair(member: MemberId) -> tuple[Replica, Incarnation]:
    return member.replica, member.incarnation


def _unheard() -> None:
    """Nobody wants to know."""


CARRY_OUT: Final[dict[type[f.Effect], Callable[[Driver, Any], None]]] = {
    f.Post: Driver.post,
    f.Send: Driver.send,
    f.PostTap: Driver.post_tap,
    f.StoreTap: Driver.store_tap,
    f.SendRange: Driver.send_range,
    f.Reconnect: Driver.reconnect,
    f.Connect: Driver.connect,
    f.Launch: Driver.launch,
    f.Hold: Driver.hold,
    f.Measure: Driver.measure,
    f.Apply: Driver.apply,
    f.Abort: Driver.abort,
    f.Drop: Driver.drop,
    f.Freeze: Driver.freeze,
    f.Release: Driver.release,
    f.Stage: Driver.stage,
    f.Unstage: Driver.unstage,
    f.Restore: Driver.restore,
    f.InstallStaged: Driver.install,
    f.WarmUp: Driver.warm_up,
    f.SaveShard: Driver.save_shard,
    f.SetTimer: Driver.set_timer,
    f.StoreCall: Driver.store_call,
    f.Exit: Driver.exit,
    f.Finish: Driver.finish,
    f.Note: Driver.note,
}
