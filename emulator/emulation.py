"""A whole job in one process under virtual time: every rank runs the real protocol (design section 2).

Equal settings and faults give equal traces: time is virtual, every draw is by seed, and nothing
depends on the order in which ranks of one instant happen to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from faultinject import Agenda, AnyFault, Phase, Schedule
from ftruntime.data import TextFileCorpus
from ftruntime.log.eventlog import Entry
from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import Address, Position, Replica
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import lineage_root
from ftruntime.seams import Corpus

from .ahead import Drawn
from .alike import Alike
from .compute import ComputeConfig, ComputeModel
from .corpus import LOCALES, FakerCorpus, Readable
from .device import FingerprintDevice, Shared
from .folds import Folds
from .hardware import MemoryConfig
from .inject import Injector
from .kernel import Kernel, settled_heap
from .launcher import Launcher
from .network import Network, NetworkConfig
from .process import Process
from .settings import RunSettings
from .spans import OnSpan, Spans
from .store import EmulatedStore, StoreConfig

if TYPE_CHECKING:
    from .tensor_pool import Pool

Faults = Schedule | Iterator[tuple[AnyFault, ...]]
LOOKS_PER_SECOND = 4.0  # at the progress, wall time
APPLY_S = 0.2
STORAGE_S = 20.0  # a shard to or from checkpoint storage
HOST_BPS = 12.5e9  # of the host network that ranges of a fetch travel over: 100 Gb/s
FOLDED_EVERY = 4  # steps between two looks at what a run that folds uses
FIRST_WARM_UP_S = 1.0  # a run begins with processes that are warm
LEADERS = frozenset({0})  # the position at which they are
PHASES = {"begin": Phase.PLAN, "voted": Phase.COMMIT, "fetching": Phase.FETCH, "prepared": Phase.JOIN}


class Emulation:
    """Runs ``settings`` with ``faults`` and writes what happens to ``log``.

    faults:   a schedule, or an endless iterator of (simultaneous) faults in order of time
    on_span:  called with (replica, name, start, end, args) for each span of the trace; None: no trace
    corpus:   what to read instead of what the settings name
    Raises ConfigError and OutOfMemory for settings that cannot run.
    """

    def __init__(
        self,
        settings: RunSettings,
        faults: Faults,
        log: Callable[[Entry], None],
        on_span: OnSpan | None = None,
        corpus: Readable | None = None,
    ) -> None:
        self.settings, self.config, self.shape = settings, settings.job_config(), settings.shape()
        self.kernel = Kernel()
        self.log = log
        network = NetworkConfig(buildings=min(12, self.config.replicas))
        self.network = Network(self.config.replicas, self.config.ranks_per_replica, network)
        self.lanes = [self.kernel.lane(position) for position in range(self.config.ranks_per_replica)]
        self.votes: list[Process] | None = None  # who said yes, while ``Alike`` looks on
        self.alike = Alike(self)
        self.kernel.runner = self.alike.run
        self.kernel.careful = self._careful
        self.reset_after_s = network.reset_after_s
        store = StoreConfig()
        self.store = EmulatedStore(self.kernel, store, self._store_log)
        self.kernel.horizon = store.latency_s  # a vote does nothing before the store has heard of it
        self.processes: dict[Address, Process] = {}
        self.messages_of_the_dead = 0
        self.steps_committed = 0
        self.rounds = 0
        self.completions = self.config.ftar.slots < 2
        self.first_warm_up_s, self.storage_s, self.host_bps = FIRST_WARM_UP_S, STORAGE_S, HOST_BPS
        self._compute = _compute(settings)
        self.reduce_s = 1.0 / self._compute.reduce_bps
        self._shared = _shared(settings, self._compute)
        self.pooled = True  # tensor fidelity: a replica's ranks compute together; False in tests
        self._pool: Pool | None = None
        self.positions: Sequence[Position] = range(self.config.ranks_per_replica)  # that are run
        self.zombies: list[Process] = []  # leaders that were taken for dead
        self._root = lineage_root(self.config.job, self.config.initial_digest)
        self._corpus = corpus or _corpus(settings, self.config.stream_count)
        self.read: Callable[[tuple[SampleRange, ...]], Corpus] = lru_cache(maxsize=512)(self._read)
        self.storage: dict[str, dict[Position, tuple[Any, int]]] = {}
        self._recorded: frozenset[str] = frozenset()
        self._newest = (0, 0)  # (epoch, version) of the newest head that was seen
        self._productive = 0.0
        self._spans = Spans(on_span)
        self.launcher = Launcher(self)
        self._injector = Injector(self)
        self._agenda = Agenda(faults if isinstance(faults, Schedule) else Schedule())
        self._faults = faults
        self.folds: Folds | None = None
        if settings.fold:
            self._faults = faults if isinstance(faults, Schedule | Drawn) else Drawn(faults)
            self.folds = Folds(self, self._faults)

    # -- progress ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.kernel.now

    @property
    def messages(self) -> int:
        return self.messages_of_the_dead + sum(p.sent * p.weight for p in self.processes.values())

    @property
    def faults_injected(self) -> list[AnyFault]:
        return self._injector.happened

    @property
    def replica_states(self) -> list[str]:
        return self.launcher.states

    @property
    def effective_training_time(self) -> float:
        """Share of the time so far that contributors trained steps which were committed."""
        return self._productive / self.now if self.now else 0.0

    # -- running -----------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[Emulation], None] | None = None) -> None:
        """Run until the last step is committed, or the safety stop. Writes ``end`` in any case."""
        if self.folds is not None:
            self.folds.begin()
        self.log(["meta", 0.0, self._meta()])
        self._plan_faults()
        self.launcher.start_all(0.0)
        reason = "interrupted"
        try:
            with settled_heap():
                reason = self._run(on_progress)
        finally:
            self._finish(reason)

    def _run(self, on_progress: Callable[[Emulation], None] | None) -> str:
        look = 0.0
        slice_s = self.settings.step_seconds / 50
        stop = self.settings.stop_seconds
        while not self._done():
            if self.kernel.next_time > stop:
                return f"stopped after {stop:g} virtual seconds"
            self.kernel.run(self.kernel.next_time + slice_s)
            self.launcher.free_ended()
            if on_progress is not None and time.monotonic() >= look:
                look = time.monotonic() + 1.0 / LOOKS_PER_SECOND
                on_progress(self)
        return "all steps are committed"

    def _careful(self) -> frozenset[Position] | None:
        """Where links fail, messages of a ring may end in a no that stops other positions at once. So may a
        leader's word while faults wait for what it does."""
        self.network.forget_old(self.kernel.now)  # no lane has come further than the next event outside
        positions = self.network.touched_positions()
        return positions if positions is None or not self._agenda.waits else positions | LEADERS

    def _done(self) -> bool:
        head = self.store.head
        return head is not None and head.end.step >= self.settings.steps

    def _finish(self, reason: str) -> None:
        now = self.kernel.now
        for replica in range(self.config.replicas):
            self._spans.end_all(replica, now)
            self._log_resources(replica, now)
        self.log(["last_fault", min(now, self._injector.last_ended)])
        self.log(
            ["end", now, [self._standing(r) for r in range(self.config.replicas) if self._leader(r)], reason]
        )

    def _leader(self, replica: Replica) -> Process | None:
        return self.processes.get((replica, 0))

    def _standing(self, replica: Replica) -> list[object]:
        process = self.processes[replica, 0]
        member = process.rank.member
        healthy = (
            process.alive and not process.stuck and process.backlog is None and member.me.incarnation > 0
        )
        device = process.device
        return [replica, member.me.incarnation, device.step, device.lineage, healthy]

    def _meta(self) -> dict[str, object]:
        c, t = self.config, self.config.timeouts
        longest_stall = 2 * t.close + t.lease + t.rollback_grace
        restart = 400.0 + 2 * STORAGE_S
        return {
            "schema": 1,
            "job": c.job,
            "replicas": c.replicas,
            "ranks_per_replica": c.ranks_per_replica,
            "buckets": len(c.ftar.buckets),
            "min_replicas": c.min_replicas,
            "streams": c.stream_count,
            "samples_per_step": c.samples_per_step,
            "max_stream_lag": c.max_stream_lag,
            "seed": self.settings.seed,
            "fidelity": self.settings.fidelity,
            "catch_up": c.catch_up.mode,
            "lineage_root": self._root,
            "convergence_bound_s": restart + longest_stall + 5 * self.settings.step_seconds,
            "progress_bound_s": restart + longest_stall + 2 * self.settings.step_seconds,
            "stall_bound_s": longest_stall,
            "divisor": c.divisor,
            "lr_scaling": c.lr_scaling,
            "consensus_faults": isinstance(self._faults, Schedule)
            and any(type(fault).__name__.startswith("Store") for fault in self._faults.faults),
            "store_epoch": 1,
            **({} if self.folds is None else self.folds.meta()),
        }

    # -- faults ------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        if isinstance(self._faults, Schedule):
            for fault in self._faults.faults:
                if fault.at is not None:
                    self.kernel.at(fault.at, self._due, (fault,))
        else:
            self._next_interruption(0.0)

    def _next_interruption(self, now: float) -> None:
        assert not isinstance(self._faults, Schedule)
        faults = next(self._faults, None)
        if faults:
            at = faults[0].at
            assert at is not None
            self.kernel.at(max(at, now), self._interrupt, faults)

    def _interrupt(self, faults: tuple[AnyFault, ...], now: float) -> None:
        self._due(faults, now)
        self._next_interruption(now)

    def _due(self, faults: tuple[AnyFault, ...], now: float) -> None:
        for fault in faults:
            self._injector.inject(fault, now)

    # -- what processes ask ------------------------------------------------------------------------

    def reach(self, process: Process, to: Address, message: m.Message, arrival: float) -> None:
        """What ``process`` tells a rank of its replica arrives."""
        if self.folds is not None:
            self.folds.deliver(process, to, message, arrival)
            return
        process.sent += 1
        self.kernel.at(arrival, process.mates[to[1]].handler, e.Received(process.address, message))

    def make_device(self, replica: Replica, position: Position) -> FingerprintDevice:
        """A fresh device for a fresh process."""
        if self.settings.fidelity == "tensor":
            return self._tensor_device(replica, position)
        return FingerprintDevice(replica, position, self._shared, self._root)

    def _tensor_device(self, replica: Replica, position: Position) -> FingerprintDevice:
        """Torch is imported by who needs it. The launcher makes the devices of a life in order."""
        from .device_pooled import PooledDevice
        from .device_tensor import TensorDevice
        from .tensor_pool import Pool

        if not self.pooled:
            return TensorDevice(replica, position, self._shared, self._root)
        if self._pool is None:
            self._pool = Pool(self._shared, self.config.ranks_per_replica)
        team = self._pool.team(replica, fresh=position == 0)
        return PooledDevice(team, replica, position, self._shared, self._root)

    def running_replicas(self) -> list[Replica]:
        """Replicas that have processes."""
        return [replica for replica in range(self.config.replicas) if (replica, 0) in self.processes]

    @property
    def folded(self) -> dict[str, Any] | None:
        """What the summary says of folding; None for a run in which every position is run."""
        return None if self.folds is None else self.folds.report()

    @property
    def injector(self) -> Injector:
        return self._injector

    def life_of(self, replica: Replica) -> int:
        """The last life of ``replica`` that has registered; 0 if none has."""
        head = self.store.head
        return 0 if head is None else head.incarnations[replica][0]

    def warm_up_s(self, replica: Replica) -> float:
        return self.launcher.warm_up_s(replica)

    def _read(self, ranges: tuple[SampleRange, ...]) -> Corpus:
        """Samples are read once for all ranks of a replica."""
        corpus = self._corpus
        # States of a folded run are made up, so its samples need no more than a name.
        named = self.folds is not None and isinstance(corpus, FakerCorpus)
        digest = corpus.name(ranges) if named else corpus.digest(ranges)  # type: ignore[attr-defined]
        return Corpus(digest, lambda: self._tokens(ranges))

    def _tokens(self, ranges: tuple[SampleRange, ...]) -> bytes:
        return b"".join(
            self._corpus.tokens(r.stream, index)
            for r in ranges
            for index in range(r.start, r.start + r.count)
        )

    def save(self, name: str, position: Position, device: FingerprintDevice) -> None:
        self.storage.setdefault(name, {})[position] = (device.snapshot(), device.digest())

    def stored_state(self, name: str, position: Position, device: FingerprintDevice) -> Any:
        """The shard of a checkpoint, or of the initial state; None where there is none."""
        if name == "initial":
            return device.initial_state()
        shard = self.storage.get(name, {}).get(position)
        return None if shard is None else shard[0]

    # -- what processes and the store say ----------------------------------------------------------

    def log_crash(self, process: Process, cause: str, now: float) -> None:
        """A process of a life that is not registered yet has no name to be logged by."""
        (replica, position), life = process.address, process.member.incarnation
        if life:
            self.log(["crash", now, replica, life, position, cause])

    def _store_log(self, entry: list[Any]) -> None:
        self.log(entry)
        if entry[0] == "head":
            closed, head = entry[7], self.store.head
            self.rounds = entry[4]
            if closed is not None and closed["outcome"] == "committed" and head is not None:
                self.steps_committed += 1
                share = len(head.end.contributors) / self.config.replicas
                self._productive += share * (self.settings.step_seconds + APPLY_S)
                if self.folds is not None:
                    self.folds.committed(closed["round"])
            if self._done():
                self.kernel.stop()

    def noted(self, process: Process, note: f.Note, now: float) -> None:
        """A leader says where it is: for spans, states, and faults that wait for a phase."""
        if note.what == "registered":
            self._log_start(process, now)
        if not process.leads:
            return  # of replicas that were taken for dead
        replica = process.address[0]
        NOTED.get(note.what, Emulation._nothing)(self, replica, note, now)
        if note.what in PHASES:
            self._phase(replica, PHASES[note.what], now)
        self._look_at_checkpoints(now)

    def _nothing(self, replica: Replica, note: f.Note, now: float) -> None:
        """A note for people only."""

    def _log_start(self, leader: Process, now: float) -> None:
        replica, life = leader.address[0], leader.member.incarnation
        self.log(["start", now, replica, life, "first" if life == 1 else "restarted"])
        for position, process in leader.mates.items():
            device = process.device
            self.log(["initial", now, replica, life, position, device.step, device.lineage, device.digest()])

    def _registered(self, replica: Replica, note: f.Note, now: float) -> None:
        self._spans.end(replica, "restart", now)
        self._spans.begin(replica, "warm-up", now)
        self._spans.begin(replica, "catch-up", now)

    def _prepared(self, replica: Replica, note: f.Note, now: float) -> None:
        self._spans.end(replica, "warm-up", now)

    def _begun(self, replica: Replica, note: f.Note, now: float) -> None:
        leader = self.processes[replica, 0].rank.leader
        assert leader is not None
        self._spans.end(replica, "commit", now)
        if leader.run is not None:
            self.launcher.states[replica] = "up"
            self._spans.end_all(replica, now)
            self._spans.begin(replica, "compute", now, round=note.round)
        else:
            self.launcher.states[replica] = "catching up"
            self._spans.begin(replica, "catch-up", now)

    def _voted(self, replica: Replica, note: f.Note, now: float) -> None:
        self._spans.follow(replica, "vote", "quorum", now, round=note.round)

    def _applied(self, replica: Replica, note: f.Note, now: float) -> None:
        self._spans.end(replica, "quorum", now)
        self._spans.end(replica, "commit", now)
        every = max(1, self.config.ranks_per_replica // 64)
        if self.folds is not None:  # few are run: looking at them costs little
            every = min(every, FOLDED_EVERY)
        if self.processes[replica, 0].rank.member.step % every == 0:
            self._log_resources(replica, now)

    def computing(self, replica: Replica, round: int, ready: float, now: float) -> None:
        """The leader's own rank has launched forward and backward; gradients are there at ``ready``."""
        self._phase(replica, Phase.FORWARD, now)
        self.kernel.at((now + ready) / 2.0, self._in_backward, replica)

    def _in_backward(self, replica: Replica, now: float) -> None:
        if (replica, 0) in self.processes:
            self._phase(replica, Phase.BACKWARD, now)

    def reducing(self, replica: Replica, round: int, now: float) -> None:
        """The leader's own rank has its gradients: what is left is FTAR."""
        self._spans.follow(replica, "compute", "ftar", now, round=round)
        self._phase(replica, Phase.FTAR, now)

    def reduced(self, replica: Replica, round: int, now: float) -> None:
        """The leader's own rank has every bucket: the vote begins."""
        self._spans.follow(replica, "ftar", "vote", now, round=round)
        self._phase(replica, Phase.VOTE, now)

    def applying(self, replica: Replica, round: int, now: float) -> None:
        """The decision is known to the leader's own rank."""
        self._spans.follow(replica, "quorum", "commit", now, round=round)
        self._phase(replica, Phase.APPLY, now)

    def _phase(self, replica: Replica, phase: Phase, now: float) -> None:
        """Faults that wait for this phase fall due: at once, or when no lane is in the midst of anything."""
        step = self.processes[replica, 0].rank.member.step
        due = self._agenda.at_phase(replica, step, phase)
        if due and self.kernel.in_lane:
            self.kernel.at(now, self._due, due)
        else:
            self._due(due, now)

    def down(self, replica: Replica, now: float) -> None:
        """All processes of the replica are gone."""
        self._spans.end_all(replica, now)
        self._spans.begin(replica, "restart", now)

    def _look_at_checkpoints(self, now: float) -> None:
        head: Head | None = self.store.head
        if head is None or head.known < self._newest:
            return  # a store that lost heads says nothing about what storage should keep
        self._newest = head.known
        for checkpoint in head.checkpoints:
            if checkpoint.name not in self._recorded:
                shards = self.storage[checkpoint.name]
                digests = [shards[position][1] for position in self.positions]
                self.log(["checkpoint", now, checkpoint.name, checkpoint.step, checkpoint.lineage, digests])
        self._recorded = frozenset(c.name for c in head.checkpoints)
        for name in [n for n in self.storage if n not in self._recorded and self._older(n, head)]:
            del self.storage[name]

    def _older(self, name: str, head: Head) -> bool:
        """Storage keeps what is on record, and what may still come on record."""
        oldest = head.checkpoints[0].step if head.checkpoints else 0
        return int(name.split("-")[1]) < oldest

    def _log_resources(self, replica: Replica, now: float) -> None:
        process = self._leader(replica)
        if process is None or process.member.incarnation == 0 or not process.alive:
            return
        total: dict[str, int] = {"rings": 0, "shares": 0}
        for position in self.positions:
            rank = self.processes[replica, position]
            for name, count in rank.device.resources().items():
                total[name] = total.get(name, 0) + count * rank.weight
            total["rings"] += len(rank.rings) * rank.weight
            total["shares"] += len(rank.rank.member.shares) * rank.weight
        self.log(["resources", now, replica, process.member.incarnation, total])


NOTED: dict[str, Callable[[Emulation, Replica, f.Note, float], None]] = {
    "registered": Emulation._registered,
    "prepared": Emulation._prepared,
    "begin": Emulation._begun,
    "voted": Emulation._voted,
    "apply": Emulation._applied,
}


def _compute(settings: RunSettings) -> ComputeConfig:
    return ComputeConfig(
        forward_s=settings.step_seconds / 3,
        backward_s=settings.step_seconds * 2 / 3,
        apply_s=APPLY_S,
        jitter=settings.jitter,
    )


def _shared(settings: RunSettings, compute: ComputeConfig) -> Shared:
    config = settings.job_config()
    memory = MemoryConfig(hbm=int(settings.hbm_gib * (1 << 30)))
    memory.check()
    return Shared(
        seed=settings.seed,
        bucket_bytes=config.ftar.buckets,
        slots_bytes=2 * config.ftar.slots * config.ftar.chunk_bytes,
        ranges=config.catch_up.ranges,
        retention=config.gradient_retention,
        memory=memory,
        compute=ComputeModel(compute, len(config.ftar.buckets), settings.seed),
    )


def _corpus(settings: RunSettings, streams: int) -> FakerCorpus | TextFileCorpus:
    if settings.corpus:
        return TextFileCorpus(settings.corpus, streams=streams)
    return FakerCorpus(settings.seed, settings.locales or LOCALES, streams=streams)
