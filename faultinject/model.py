"""The failure model: when the next interruption comes, whom it hits, and from which cause."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from .causes import CAUSES, Cause, pick, strike
from .errors import ScheduleError
from .schedule import MAX_FAULTS, Schedule
from .shape import JobShape
from .vocabulary import AnyFault

# One failure every 18 min on 98,304 GPUs, as published for FT-HSDP.
REFERENCE_RANKS = 98_304
REFERENCE_MTBF_SECONDS = 18 * 60.0
# No default below this: a million ranks would fail every 106 s, and a job that fails more often
# than once a minute cannot even finish the detection of one failure (60 s) before the next.
MTBF_FLOOR_SECONDS = 60.0


def default_mtbf(shape: JobShape) -> float:
    """Seconds between failures of a job of this size: the published figure, inversely with its ranks."""
    return max(MTBF_FLOOR_SECONDS, REFERENCE_MTBF_SECONDS * REFERENCE_RANKS / shape.ranks)


def interruptions(
    shape: JobShape,
    *,
    seed: int,
    mtbf_seconds: float | None = None,
    weibull_shape: float = 1.0,
    causes: tuple[Cause, ...] = CAUSES,
) -> Iterator[tuple[AnyFault, ...]]:
    """Endless interruptions in order of time, each the faults that it consists of.

    Gaps are Weibull distributed with mean ``mtbf_seconds`` (default: ``default_mtbf``); shape 1 is
    the exponential distribution, below 1 failures come in bursts. The victim is any rank of the job
    alike, the cause is drawn by the percentages of the table. The sequence depends on the arguments
    alone. Raises ScheduleError for arguments that make no sense.
    """
    mtbf = default_mtbf(shape) if mtbf_seconds is None else mtbf_seconds
    _positive("mtbf_seconds", mtbf)
    _positive("weibull_shape", weibull_shape)
    if not causes:
        raise ScheduleError("causes: none given; give at least one")
    return _interruptions(shape, Random(f"faultinject/interruptions/{seed}"), mtbf, weibull_shape, causes)


def draw(
    shape: JobShape,
    *,
    horizon_seconds: float,
    seed: int,
    mtbf_seconds: float | None = None,
    weibull_shape: float = 1.0,
    causes: tuple[Cause, ...] = CAUSES,
) -> Schedule:
    """The ``interruptions`` of the first ``horizon_seconds``. A longer horizon only adds to the end.

    Raises ScheduleError for arguments that make no sense or give more faults than a schedule may have.
    """
    _positive("horizon_seconds", horizon_seconds)
    faults: list[AnyFault] = []
    for interruption in interruptions(
        shape, seed=seed, mtbf_seconds=mtbf_seconds, weibull_shape=weibull_shape, causes=causes
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


def _interruptions(
    shape: JobShape, rng: Random, mtbf: float, weibull_shape: float, causes: tuple[Cause, ...]
) -> Iterator[tuple[AnyFault, ...]]:
    scale = mtbf / math.gamma(1 + 1 / weibull_shape)  # so that the mean is the mtbf
    now = 0.0
    while True:
        now += rng.weibullvariate(scale, weibull_shape)
        rank = shape.rank_at(rng.randrange(shape.ranks))
        yield strike(pick(rng, causes), rng, rank, round(now, 3))


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ScheduleError(f"{name}: {value:g} does not fit; give a number more than 0")
