"""What a person may choose for an emulation: one frozen object, checked before anything is built.

Whatever is wrong is refused here with a ConfigError (ScheduleError for a file of faults) of one line
that names the value and the mend. A file of settings is read by ``settings_file.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil  # type: ignore[import-untyped]

import faultinject
from faultinject import AnyFault, JobShape, Schedule, ScheduleError
from ftruntime.protocol.config import JobConfig, Timeouts, load
from ftruntime.protocol.errors import ConfigError

MEMORY_PER_RANK = 6_000  # bytes of this process for one emulated rank in fingerprint fidelity
MEMORY_FACTOR = {"fingerprint": 1, "tensor": 8}
PATIENCE = 0.75  # of a step, for the chunk time-out
MOST_BUCKETS = 4_096
HURRY_S = 0.5  # wall time that a busy machine may take to pass a word from process to process
MOST_SPEED = 50.0  # virtual seconds a second: beyond, the time-outs of the protocol would be too short
MOST_FAULTS = (
    50_000  # expected of a run: half of what a schedule may hold, for a run takes longer with faults
)
# A safety stop, far beyond what a run with faults needs: one that cannot make progress must end.
STOP_HOURS, STOP_FACTOR = 24.0, 20.0
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # what a container may use, which the host does not show

Faults = Schedule | Iterator[tuple[AnyFault, ...]]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An emulation. Equal settings (and faults) give equal traces.

    replicas, ranks_per_replica:  R replicas of W ranks
    steps:              the run ends when this step is committed
    agreed_end:         replicas are asked for ``steps``: the run ends when each has ended well, or is down
    faults:             "none", "table" (drawn from the table of causes), or the path of a schedule
    mtbf_minutes:       for "table": virtual minutes between failures; None: the published figure, scaled
    min_replicas:       fewer contributors do not train; None becomes half of the replicas
    buckets, bucket_mib, chunk_mib, slots:  FTAR: gradient buckets of a rank, chunks, chunks in flight
    streams:            streams of the data; 0: 8 x replicas
    checkpoint_every:   steps between checkpoints; 0: none
    step_seconds:       forward and backward of one step, virtual
    jitter:             share by which a replica's step may be longer or shorter
    corpus:             text files; none: documents made by faker in ``locales`` (none: several)
    max_virtual_hours:  safety stop; None: far beyond what ``steps`` need
    hbm_gib:            memory of a mock GPU
    buildings:          replica r lies in building r mod buildings
    fold:               run positions that behave alike once, and count them (fingerprint only)
    workers:            processes that run the job together; any number gives the same trace
    port:               on which workers of one machine meet; 0: one that is free
    worker_timeout:     seconds that workers wait for each other at most
    clock:              "virtual", or "wall": workers are hosts that can be killed, each with whole replicas
    speed:              virtual seconds in a second of the wall clock
    overrides:          any other key of JobConfig, nested as there; they win over the fields above
    """

    replicas: int = 12
    ranks_per_replica: int = 64
    steps: int = 200
    seed: int = 0
    faults: str = "none"
    mtbf_minutes: float | None = None
    fidelity: Literal["fingerprint", "tensor"] = "fingerprint"
    catch_up: Literal["tap", "zeros"] = "tap"
    gradient_retention: Literal["device", "host", "none"] = "device"
    min_replicas: int | None = None
    buckets: int = 1
    bucket_mib: int = 96
    chunk_mib: int = 8
    slots: int = 8
    streams: int = 0
    samples_per_step: int = 8
    checkpoint_every: int = 0
    divisor: Literal["contributors", "replicas"] = "contributors"
    lr_scaling: Literal["none", "linear", "sqrt"] = "sqrt"
    step_seconds: float = 20.0
    jitter: float = 0.0
    corpus: tuple[str, ...] = ()
    locales: tuple[str, ...] = ()
    max_virtual_hours: float | None = None
    fan_out: int = 32
    hbm_gib: float = 80.0
    buildings: int = 12
    fold: bool = False
    agreed_end: bool = False
    workers: int = 1
    port: int = 0
    worker_timeout: float = 300.0
    clock: Literal["virtual", "wall"] = "virtual"
    speed: float = 1.0
    overrides: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.min_replicas is None:
            msgspec.structs.force_setattr(self, "min_replicas", max(1, self.replicas // 2))

    @property
    def ranks(self) -> int:
        return self.replicas * self.ranks_per_replica

    @property
    def stop_seconds(self) -> float:
        """Virtual seconds after which the run ends, whatever it has reached."""
        if self.max_virtual_hours is not None:
            return self.max_virtual_hours * 3600.0
        return STOP_HOURS * 3600.0 + STOP_FACTOR * self.steps * self.step_seconds

    def job_config(self) -> JobConfig:
        """The job that is emulated. Raises ConfigError."""
        for name in ("buckets", "bucket_mib", "chunk_mib", "slots"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.buckets > MOST_BUCKETS:
            raise ConfigError(f"buckets is {self.buckets}: it must be at most {MOST_BUCKETS}")
        same = {name: getattr(self, name) for name in SAME_NAME}
        ftar = {
            "buckets": [self.bucket_mib << 20] * self.buckets,
            "chunk_bytes": self.chunk_mib << 20,
            "slots": self.slots,
        }
        own = {**same, "ftar": ftar, "catch_up": {"mode": self.catch_up}, "timeouts": self._timeouts()}
        return load(merge(own, self.overrides))

    def _timeouts(self) -> dict[str, float]:
        """A replica that joins computes while the others have their gradients from the round before: two
        chunk time-outs must be longer than a step, or it would be taken for stalled."""
        default = Timeouts()
        patient = PATIENCE * self.step_seconds * (1 + self.jitter)
        chunk = max(default.chunk, patient, self._delay)
        found = {"chunk": min(chunk, 0.49 * default.round)}
        if self.clock == "wall":
            found |= {name: max(getattr(default, name), self._delay) for name in ("seal", "store", "range")}
        return found

    @property
    def _delay(self) -> float:
        """Virtual seconds that pass while an answer is under way between processes."""
        return HURRY_S * self.speed if self.clock == "wall" else 0.0

    def shape(self) -> JobShape:
        """What faults can hit. Raises ConfigError."""
        job = self.job_config()
        return JobShape(
            replicas=job.replicas,
            ranks_per_replica=job.ranks_per_replica,
            min_replicas=job.min_replicas,
            buildings=self.buildings,
        )

    def mtbf_seconds(self) -> float:
        """Virtual seconds between the failures of ``--faults table``."""
        if self.mtbf_minutes is not None:
            return self.mtbf_minutes * 60.0
        return faultinject.default_mtbf(self.shape())

    def check(self) -> RunSettings:
        """Itself, if it can run here. Raises ConfigError."""
        job = self.job_config()
        for complaint in _complaints(self):
            raise ConfigError(complaint)
        longest = self.step_seconds * (1 + self.jitter)
        if longest >= job.timeouts.round:
            raise ConfigError(
                f"step_seconds {self.step_seconds:g} with jitter {self.jitter:g} is too long for "
                f"timeouts.round {job.timeouts.round:g} s: every step would be given up; "
                "raise timeouts.round in a --config file"
            )
        if self.faults == "table":
            _check_mtbf(self)
        _check_memory(self, memory_available())
        return self

    def load_faults(self) -> Faults:
        """The faults of the run. Raises ScheduleError or ConfigError for a bad file or MTBF."""
        if self.faults == "none":
            return Schedule(job=self.shape())
        if self.faults == "table":
            mtbf = self.mtbf_seconds()
            return faultinject.interruptions(self.shape(), seed=self.seed, mtbf_seconds=mtbf)
        if not Path(self.faults).exists():
            raise ScheduleError(
                f"faults {self.faults!r}: no such file; write none, table, or a schedule's path"
            )
        schedule = faultinject.load(self.faults, self.shape())
        if self.workers > 1 and any(fault.point for fault in schedule.faults):
            raise ConfigError(f"workers is {self.workers}: faults at fault points are for one; write 1")
        return schedule


# Fields that JobConfig has by the same name.
SAME_NAME = tuple(
    name for name in RunSettings.__struct_fields__
    if name in JobConfig.__struct_fields__ and name != "catch_up"
)  # fmt: skip


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``below`` with the values of ``above`` put over it, table by table."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(dict(under or {}), value) if both else value
    return merged


def _complaints(s: RunSettings) -> Iterator[str]:
    if not 1 <= s.steps < 2**53:
        yield f"steps is {s.steps}: it must be at least 1"
    if not 0 <= s.seed < 2**64:
        yield f"seed is {s.seed}: it must be 0 to 2**64 - 1"
    for name in ("step_seconds", "hbm_gib", "mtbf_minutes", "max_virtual_hours"):
        value = getattr(s, name)
        if value is not None and not 0 < value < math.inf:
            yield f"{name} is {value:g}: it must be a number above 0"
    if s.fold and s.fidelity != "fingerprint":
        yield f"fold is for fidelity fingerprint: with {s.fidelity} every rank has numbers of its own"
    if s.buildings < 1:
        yield f"buildings is {s.buildings}: it must be at least 1"
    yield from _complaints_of_workers(s)
    if not 0 <= s.jitter < 1:
        yield f"jitter is {s.jitter:g}: it is a share, 0 or more and below 1"
    if s.locales:
        from .corpus import FakerCorpus  # here, for faker takes a while to import

        FakerCorpus(0, s.locales, streams=1)  # raises ConfigError for one that there is not
    for path in s.corpus:
        if not Path(path).is_file():
            what = "is a directory" if Path(path).is_dir() else "is missing"
            yield f"corpus file {path} {what}: name a text file"


def _complaints_of_wall(s: RunSettings) -> Iterator[str]:
    if not 1 <= s.workers <= s.replicas:
        yield (
            f"workers is {s.workers}: with clock wall it must be 1 to replicas, {s.replicas}, "
            "for each runs whole replicas"
        )
    if not 0 < s.speed <= MOST_SPEED:
        yield f"speed is {s.speed:g}: it must be above 0 and at most {MOST_SPEED:g} virtual seconds a second"
    if s.fidelity != "fingerprint":
        yield f"fidelity is {s.fidelity}: with clock wall only fingerprint can be run"
    if s.checkpoint_every:
        yield f"checkpoint_every is {s.checkpoint_every}: with clock wall there is no storage; set it to 0"
    if s.fold:
        yield "fold is for clock virtual: against real time positions do not behave alike"


def _complaints_of_workers(s: RunSettings) -> Iterator[str]:
    if s.clock == "wall":
        yield from _complaints_of_wall(s)
    elif s.speed != 1.0:
        yield f"speed {s.speed:g} does nothing without clock wall: virtual time runs as fast as it can"
    elif not 1 <= s.workers <= s.ranks_per_replica:
        yield (
            f"workers is {s.workers}: it must be 1 to ranks_per_replica, {s.ranks_per_replica}, "
            "for each runs some positions of every replica"
        )
    if s.workers > 1 and s.fold and s.clock == "virtual":
        yield f"fold runs in one process: what is left to run is little; lower workers from {s.workers} to 1"
    if not 0 <= s.port < 65536:
        yield f"port is {s.port}: it must be 0 (any that is free) to 65535"
    if not 0 < s.worker_timeout < math.inf:
        yield f"worker_timeout is {s.worker_timeout:g}: it must be a number of seconds above 0"


def _check_mtbf(settings: RunSettings) -> None:
    """Every fault that happens must fit in the schedule that the run leaves behind."""
    seconds = settings.steps * settings.step_seconds
    if seconds / settings.mtbf_seconds() > MOST_FAULTS:
        raise ConfigError(
            f"mtbf_minutes {settings.mtbf_seconds() / 60:g} gives more than {MOST_FAULTS} faults in "
            f"{settings.steps} steps: raise it or lower steps"
        )


def _check_memory(settings: RunSettings, available: int) -> None:
    if settings.fold:
        return  # what is run is a small part of the ranks
    needed = settings.ranks * MEMORY_PER_RANK * MEMORY_FACTOR[settings.fidelity]
    if needed > available:
        raise ConfigError(
            f"{settings.ranks} ranks ({settings.replicas} replicas x {settings.ranks_per_replica}) need "
            f"about {_gib(needed)} GiB of memory in {settings.fidelity} fidelity, and {_gib(available)} GiB "
            "are available: lower replicas or ranks_per_replica"
        )


def memory_available() -> int:
    """Bytes that this process may still take, of the machine or of its container."""
    available = int(psutil.virtual_memory().available)
    try:
        return min(available, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such limit here, or "max"
        return available


def _gib(size: int) -> str:
    """With a digit behind the point, for integers of any length."""
    tenths = size * 10 >> 30
    return f"{tenths // 10:,}.{tenths % 10}"
