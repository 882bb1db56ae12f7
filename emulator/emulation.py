"""A whole job in one process under virtual time: every rank runs the real protocol (design section 2).

Equal settings and faults give equal traces: time is virtual, every draw is by seed, and nothing
depends on the order in which ranks of one instant happen to run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from faultinject import AnyFault, Phase, Schedule
from ftruntime.data import TextFileCorpus
from ftruntime.log.eventlog import Entry
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address, Position, Replica
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import lineage_root
from ftruntime.seams import Corpus

from .ahead import Drawn
from .alike import Alike
from .commands import COMMAND_S, SEES_DEATH_S, Command, Died, Inject, Left, Report
from .compute import ComputeConfig, ComputeModel
from .corpus import LOCALES, FakerCorpus, Readable
from .device import FingerprintDevice, Shared
from .folds import Folds
from .hardware import MemoryConfig
from .hosts import Hosts
from .hub import APPLY_S, Hub
from .inject import Injector
from .kernel import Kernel, settled_heap
from .network import Network, NetworkConfig
from .process import Process
from .settings import RunSettings
from .spans import OnSpan
from .storage import Storage
from .store import StoreConfig

if TYPE_CHECKING:
    from .points import Points
    from .tensor_pool import Pool
    from .wall.far_hub import FarHub
    from .wall.hub_side import HubSide
    from .wall.worker_side import WorkerSide
    from .workers.windows import Windows

Faults = Schedule | Iterator[tuple[AnyFault, ...]]
LOOKS_PER_SECOND = 4.0  # at the progress, wall time
STORAGE_S = 20.0  # a shard to or from checkpoint storage
HOST_BPS = 12.5e9  # of the host network that ranges of a fetch travel over: 100 Gb/s
FOLDED_EVERY = 4  # steps between two looks at what a run that folds uses


class Emulation:
    """Runs ``settings`` with ``faults`` and writes what happens to ``log``.

    faults:   a schedule, or an endless iterator of (simultaneous) faults in order of time
    on_span:  called with (replica, name, start, end, args) for each span of the trace; None: no trace
    corpus:   what to read instead of what the settings name
    points:   count the fault points that are reached, though no fault waits for one
    crossing: the way to other processes that run the rest of the job; None: all of it runs here
    Raises ConfigError and OutOfMemory for settings that cannot run.
    """

    def __init__(
        self,
        settings: RunSettings,
        faults: Faults,
        log: Callable[[Entry], None],
        on_span: OnSpan | None = None,
        corpus: Readable | None = None,
        points: bool = False,
        crossing: Windows | HubSide | WorkerSide | None = None,
    ) -> None:
        self.settings, self.config, self.shape = settings, settings.job_config(), settings.shape()
        replicas, ranks = self.config.replicas, self.config.ranks_per_replica
        self.log = log
        network, store = NetworkConfig(buildings=self.shape.buildings_used), StoreConfig()
        self.network = Network(replicas, ranks, network)
        self.kernel = Kernel(self.network.lookahead, inner_lanes=inner_positions(ranks, self.config.fan_out))
        self.lanes = [self.kernel.lane(position) for position in range(ranks)]
        self.votes: list[Process] | None = None  # who said yes, while ``Alike`` looks on
        self.alike = Alike(self)
        self.kernel.runner = self.alike.run
        self.kernel.careful = self.careful
        self.kernel.tie = self.tie
        self.kernel.horizon = store.latency_s  # a vote does nothing before the store has heard of it
        self.reset_after_s = network.reset_after_s
        self.processes: dict[Address, Process] = {}
        self.messages_of_the_dead = 0
        self.completions = self.config.ftar.slots < 2
        self._model_devices(settings)
        self.crossing = crossing
        self.positions: Sequence[Position] = range(ranks) if crossing is None else crossing.positions
        self._look_every = max(1, ranks // 64)
        self.zombies: list[Process] = []  # leaders that were taken for dead
        self._root = lineage_root(self.config.job, self.config.initial_digest)
        self._corpus = corpus or _corpus(settings, self.config.stream_count)
        self.read: Callable[[tuple[SampleRange, ...]], Corpus] = lru_cache(maxsize=512)(self._read)
        self.storage = Storage()
        self.elsewhere: WorkerSide | None = None  # the way to replicas that other processes run
        self.away: HubSide | None = None  # the way to processes that run all replicas
        self.hosts = Hosts(self)
        self.hub: Hub | None = None
        if crossing is None or crossing.is_hub:
            self.hub = Hub(self, faults if isinstance(faults, Schedule) else Schedule(), store, on_span)
        self._injector = Injector(self)
        self._faults = faults
        schedule = faults if isinstance(faults, Schedule) else Schedule()
        self.points: Points | None = None
        if points or any(fault.point for fault in schedule.faults):
            from .points import Points

            self.points = Points(self, schedule)
        self.folds: Folds | None = None
        if settings.fold:
            self._look_every = min(self._look_every, FOLDED_EVERY)  # few are run: looking costs little
            self._faults = faults if isinstance(faults, Schedule | Drawn) else Drawn(faults)
            self.folds = Folds(self, self._faults)
        if crossing is not None:
            crossing.begin(self)

    def _model_devices(self, settings: RunSettings) -> None:
        """What machines take, and what all devices share."""
        self.storage_s, self.host_bps = STORAGE_S, HOST_BPS
        self._compute = _compute(settings)
        self.reduce_s = 1.0 / self._compute.reduce_bps
        self._shared = _shared(settings, self._compute)
        self.pooled = True  # tensor fidelity: a replica's ranks compute together; False in tests
        self._pool: Pool | None = None

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
        return self.the_hub.launcher.states

    @property
    def steps_committed(self) -> int:
        return self.the_hub.steps_committed

    @property
    def rounds(self) -> int:
        """The number of the last round that was opened."""
        return self.the_hub.rounds

    @property
    def effective_training_time(self) -> float:
        """Share of the time so far that contributors trained steps which were committed."""
        return self.the_hub.productive / self.now if self.now else 0.0

    # -- running -----------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[Emulation], None] | None = None) -> None:
        """Run until the last step is committed, or the safety stop. Writes ``end`` in any case."""
        if self.folds is not None:
            self.folds.begin()
        if self.hub is not None:
            self.log(["meta", 0.0, self._meta()])
            self.hub.launcher.start_all(0.0)
        self._plan_faults()
        reason = "interrupted"
        try:
            with settled_heap():
                reason = self._run(on_progress)
        finally:
            self._finish(reason)

    def _run(self, on_progress: Callable[[Emulation], None] | None) -> str:
        look, stop = 0.0, self.settings.stop_seconds
        next_window = self._next if self.crossing is None else self.crossing.next
        while (window := next_window(stop)) is not None:
            self.kernel.run(*window)
            self.hosts.free_ended()
            if on_progress is not None and time.monotonic() >= look:
                look = time.monotonic() + 1.0 / LOOKS_PER_SECOND
                on_progress(self)
        if self.crossing is not None and self.crossing.interrupted:
            return "interrupted"
        over = self.crossing.over if self.hub is None and self.crossing is not None else self.the_hub.over
        self.kernel.now = min(over, stop)
        return "all steps are committed" if over < stop else f"stopped after {stop:g} virtual seconds"

    def _next(self, stop: float) -> tuple[float] | None:
        """How far to run before looking around; None when the run is over."""
        coming, stop = self.kernel.next_time, min(stop, self.the_hub.over)
        return (min(coming + self.settings.step_seconds / 50, stop),) if coming < stop else None

    @property
    def the_hub(self) -> Hub:
        assert self.hub is not None, "only the process of the hub knows this"
        return self.hub

    @property
    def hub_of_leaders(self) -> Hub | FarHub:
        """What leaders talk to."""
        return self.the_hub if self.elsewhere is None else self.elsewhere.hub

    def careful(self) -> frozenset[Position] | None:
        """Where links fail, messages of a ring may end in a no that stops other positions at once."""
        self.network.forget_old(self.kernel.now)  # no lane has come further than the next event outside
        positions = self.network.touched_positions()
        if positions is None or (self.points is not None and self.points.waits):
            return None
        return positions | self._injector.careful

    def tie(self) -> float:
        """A leader's ring may bring about a fault that waits for its vote."""
        waits = self.hub is not None and self.hub.agenda.waits_for(Phase.VOTE)
        return self.lanes[0].next_time + COMMAND_S if waits else math.inf

    def _finish(self, reason: str) -> None:
        if self.hub is None:
            return
        if self.away is not None:
            self.kernel.now = self.away.see_off()
        now = self.kernel.now
        self.hub.finish(now)
        self.log(["last_fault", min(now, self._injector.last_ended)])
        standing = self.standing()
        self.log(["end", now, standing, reason])

    def standing(self) -> list[list[Any]]:
        """Of each replica's leader: replica, incarnation, step, lineage, whether it is healthy."""
        if self.away is not None:
            return self.away.standing
        return [self._standing(r) for r in range(self.config.replicas) if (r, 0) in self.processes]

    def _standing(self, replica: Replica) -> list[Any]:
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
                    self.kernel.at(fault.at, self.inject, (fault,))
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
        self.inject(faults, now)
        self._next_interruption(now)

    def inject(self, faults: tuple[AnyFault, ...], now: float) -> None:
        """``faults`` take effect now."""
        if self.away is not None:
            self.away.inject(faults, now)
        for fault in faults:
            self._injector.inject(fault, now)

    def reached(self, point: str, address: Address, now: float) -> None:
        """A driver has come to a fault point."""
        if self.points is not None:
            own = self.points.reach(point, address, now)
            self.command(Inject(own), now)

    # -- what the hub and hosts tell each other ----------------------------------------------------

    def command(self, command: Command, now: float) -> None:
        """The hub tells all hosts."""
        self.kernel.at(now + COMMAND_S, self.hear, command)
        if self.crossing is not None:
            self.crossing.command(command, now)

    def report(self, report: Report, now: float) -> None:
        """A host tells the hub."""
        if self.hub is not None:
            self.kernel.at(now + SEES_DEATH_S, self.hear, report)
        elif self.crossing is not None:
            self.crossing.report(report, now)

    def hear(self, told: Command | Report, now: float) -> None:
        if not isinstance(told, Died | Left):
            self.hosts.hear(told, now)
        elif self.hub is not None:
            self.hub.hear(told, now)

    # -- what processes ask ------------------------------------------------------------------------

    def reach(self, process: Process, to: Address, message: m.Message, arrival: float) -> None:
        """What ``process`` tells a rank of its replica arrives."""
        if self.folds is not None:
            self.folds.deliver(process, to, message, arrival)
            return
        process.sent += 1
        mate = process.mates.get(to[1])
        process.tell_mate(to, None if mate is None else mate.handler, message, arrival)

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
        team = self._pool.team(replica, fresh=position == self.positions[0])
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

    def stored_state(self, name: str, position: Position, device: FingerprintDevice) -> tuple[Any, str]:
        """The shard of a checkpoint, or of the initial state, and what is wrong with it."""
        if name == "initial":
            return device.initial_state(), ""
        return self.storage.read(name, position, device)

    def damage(self, position: Position, damage: str) -> None:
        """A checkpoint's shard is spoilt."""
        self.storage.damage(position, damage, next((p.device for p in self.processes.values()), None))

    # -- what processes say ------------------------------------------------------------------------

    def log_crash(self, process: Process, cause: str, now: float) -> None:
        """A process of a life that is not registered yet has no name to be logged by."""
        (replica, position), incarnation = process.address, process.member.incarnation
        if incarnation:
            self.log(["crash", now, replica, incarnation, position, cause])

    def changed(self, process: Process, now: float) -> None:
        """A process holds the state after a step: once in a while the log says what it uses."""
        device = process.device
        if device.step % self._look_every == 0:
            used = device.resources()
            used["rings"] = len(process.rings)
            used["shares"] = len(process.rank.member.shares)
            weight = process.weight
            member, position = process.member, process.address[1]
            counts = {name: count * weight for name, count in used.items()}
            entry = [member.replica, member.incarnation, position, device.step, weight, counts]
            self.log(["resources", now, *entry])


def inner_positions(ranks: int, fan_out: int) -> int:
    """How many positions have children in the tree: they come first."""
    return 0 if ranks == 1 else 1 + (ranks - 2) // fan_out


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
