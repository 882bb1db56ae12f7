"""The failure model: when the next interruption comes, whom it hits, and from which cause."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import msgspec

from .causes import CAUSES, Cause, pick, strike
from .components import component_interruptions
from .errors import ScheduleError
from .schedule import MAX_FAULTS, Schedule
from .shape import RANKS_PER_HOST, RANKS_PER_RACK, JobShape, Rank
from .vocabulary import AnyFault, Crash

# One failure every 18 min on 98,304 GPUs, as published for FT-HSDP.
REFERENCE_RANKS = 98_304
REFERENCE_MTBF_SECONDS = 18 * 60.0
# No default below this: a million ranks would fail every 106 s, and a job that fails more often
# than once a minute cannot even finish the detection of one failure (60 s) before the next.
MTBF_FLOOR_SECONDS = 60.0
RACKS_OF_BURSTS = 0.9  # of correlated losses; the others take a building

Arrival = tuple[float, Rank, Cause]  # seconds, victim, cause


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """What failures have in common beyond their rate. The default: nothing.

    bursts:          share of interruptions at which power fails, for a whole rack or building
    offenders:       hosts, drawn by the seed, that fail again and again
    offender_share:  share of interruptions that hits one of them
    per_component:   every unit fails by itself (``components.py``); else arrivals are the job's
    weibull_shape:   of times between failures; None: 1 for the job's, each component its own
    """

    bursts: float = 0.0
    offenders: int = 0
    offender_share: float = 0.5
    per_component: bool = False
    weibull_shape: float | None = None

    def check(self, shape: JobShape) -> None:
        """Raises ScheduleError for the first value that makes no sense."""
        for name in ("bursts", "offender_share"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ScheduleError(f"{name}: {value:g} does not fit; give a share, 0 to 1")
        hosts = shape.replicas * shape.hosts_per_replica
        if not 0 <= self.offenders <= hosts:
            raise ScheduleError(f"offenders: {self.offenders} does not fit; the job has {hosts} hosts")
        if self.weibull_shape is not None:
            _positive("weibull_shape", self.weibull_shape)


PLAIN = Patterns()


def default_mtbf(shape: JobShape) -> float:
    """Seconds between failures of a job of this size: the published figure, inversely with its ranks."""
    return max(MTBF_FLOOR_SECONDS, REFERENCE_MTBF_SECONDS * REFERENCE_RANKS / shape.ranks)


def interruptions(
    shape: JobShape,
    *,
    seed: int,
    mtbf_seconds: float | None = None,
    patterns: Patterns = PLAIN,
    causes: tuple[Cause, ...] = CAUSES,
) -> Iterator[tuple[AnyFault, ...]]:
    """Endless interruptions in order of time, each the faults that it consists of.

    Gaps are Weibull distributed with mean ``mtbf_seconds`` (default: ``default_mtbf``); shape 1 is
    the exponential distribution, below 1 failures come in bursts. The victim is any rank of the job
    alike, the cause is drawn by the percentages of the table; ``patterns`` changes both. The sequence
    depends on the arguments alone. Raises ScheduleError for arguments that make no sense.
    """
    mtbf = default_mtbf(shape) if mtbf_seconds is None else mtbf_seconds
    _positive("mtbf_seconds", mtbf)
    patterns.check(shape)
    if not causes:
        raise ScheduleError("causes: none given; give at least one")
    rng = Random(f"faultinject/interruptions/{seed}")
    if patterns.per_component:
        arrivals = component_interruptions(shape, rng, mtbf, patterns.weibull_shape)
    else:
        arrivals = _job_interruptions(shape, rng, mtbf, patterns.weibull_shape or 1.0, causes)
    hosts = shape.replicas * shape.hosts_per_replica
    offenders = Random(f"faultinject/offenders/{seed}").sample(range(hosts), patterns.offenders)
    return _patterned(shape, rng, arrivals, patterns, offenders)


def draw(
    shape: JobShape,
    *,
    horizon_seconds: float,
    seed: int,
    mtbf_seconds: float | None = None,
    patterns: Patterns = PLAIN,
    causes: tuple[Cause, ...] = CAUSES,
) -> Schedule:
    """The ``interruptions`` of the first ``horizon_seconds``. A longer horizon only adds to the end.

    Raises ScheduleError for arguments that make no sense or give more faults than a schedule may have.
    """
    _positive("horizon_seconds", horizon_seconds)
    faults: list[AnyFault] = []
    for interruption in interruptions(
        shape, seed=seed, mtbf_seconds=mtbf_seconds, patterns=patterns, causes=causes
    ):
        onset = interruption[0].at
        assert onset is not None
        if onset > horizon_seconds:
            return Schedule(job=shape, faults=tuple(faults))
        faults.extend(interruption)
        if len(faults) > MAX_FAULTS:
            break
    mtbf = mtbf_seconds or default_mtbf(shape)
    raise ScheduleError(
        f"horizon_seconds: {horizon_seconds:g} with mtbf_seconds {mtbf:g} gives more than "
        f"{MAX_FAULTS} faults; choose a shorter horizon or a longer mtbf"
    )


def _job_interruptions(
    shape: JobShape, rng: Random, mtbf: float, weibull_shape: float, causes: tuple[Cause, ...]
) -> Iterator[Arrival]:
    scale = mtbf / math.gamma(1 + 1 / weibull_shape)  # so that the mean is the mtbf
    now = 0.0
    while True:
        now += rng.weibullvariate(scale, weibull_shape)
        rank = shape.rank_at(rng.randrange(shape.ranks))
        yield now, rank, pick(rng, causes)


def _patterned(
    shape: JobShape, rng: Random, arrivals: Iterator[Arrival], patterns: Patterns, offenders: list[int]
) -> Iterator[tuple[AnyFault, ...]]:
    for now, rank, cause in arrivals:
        at = round(now, 3)
        if offenders and rng.random() < patterns.offender_share:
            rank = _on_host(shape, rng, rng.choice(offenders))
        if patterns.bursts and rng.random() < patterns.bursts:
            yield (_power_fails(shape, rng, rank, at),)
        else:
            yield strike(cause, rng, rank, at)


def _on_host(shape: JobShape, rng: Random, number: int) -> Rank:
    replica, host = divmod(number, shape.hosts_per_replica)
    first = host * RANKS_PER_HOST
    return replica, rng.randrange(first, min(first + RANKS_PER_HOST, shape.ranks_per_replica))


def _power_fails(shape: JobShape, rng: Random, rank: Rank, at: float) -> AnyFault:
    """Correlated loss: the rack or the building of ``rank``."""
    replica, position = rank
    if rng.random() < RACKS_OF_BURSTS:
        return Crash(rack=(replica, position // RANKS_PER_RACK), at=at, cause="rack power")
    return Crash(building=shape.building_of(replica), at=at, cause="building power")


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ScheduleError(f"{name}: {value:g} does not fit; give a number more than 0")
