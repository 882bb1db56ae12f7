"""Makes a failing case small: fewer faults, shorter ones, a smaller job, as long as it fails alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..errors import ScheduleError
from ..schedule import check
from ..vocabulary import AnyFault
from .case import Case
from .promised import is_promised

TRIES = 120  # runs that one case is worth
LENGTHS = ("duration", "delay", "seconds")
ROUND = (10.0, 30.0, 60.0, 100.0)  # seconds that a person reads at a glance
SIMPLER: dict[str, tuple[Any, ...]] = {
    "ranks_per_replica": (1, 2, 3),
    "replicas": (2, 3),
    "buckets": (1,),
    "bucket_mib": (1,),
    "checkpoint_every": (0,),
    "jitter": (0.0,),
    "catch_up": ("tap",),
    "gradient_retention": ("device",),
    "slots": (8,),
    "chunk_mib": (1,),
    "fan_out": (32,),
    "samples_per_step": (8,),
    "divisor": ("contributors",),
    "lr_scaling": ("sqrt",),
    "min_replicas": (1, 2),
    "step_seconds": (20.0,),
    "buildings": (12,),
    "seed": (0,),
}


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = TRIES) -> Case:
    """The smallest case found for which ``fails`` still says so, in at most ``tries`` questions.

    Every case asked about is valid and promised to survive, as ``case`` is.
    """
    left = tries
    while True:
        for simpler in _simpler(case):
            if left == 0:
                return case
            left -= 1
            if fails(simpler):
                case = simpler
                break
        else:
            return case


def _simpler(case: Case) -> Iterator[Case]:
    """Cases that are simpler in one thing, the most worthwhile first."""
    for faults in (*_fewer(case.faults), *_shorter(case.faults)):
        yield from _if_sound(msgspec.structs.replace(case, faults=faults))
    for name, values in SIMPLER.items():
        for value in values[: values.index(case.job[name])] if case.job[name] in values else values:
            if name not in ("replicas", "ranks_per_replica", "min_replicas") or value < case.job[name]:
                yield from _if_sound(msgspec.structs.replace(case, job=_with(case.job, name, value)))


def _with(job: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    changed = {**job, name: value}
    return {**changed, "min_replicas": min(changed["min_replicas"], changed["replicas"])}


def _if_sound(case: Case) -> Iterator[Case]:
    try:
        check(case.schedule, case.shape)
    except ScheduleError:
        return  # it hits a rank that the smaller job has not
    if is_promised(case.faults, case.shape):
        yield case


def _fewer(faults: tuple[AnyFault, ...]) -> Iterator[tuple[AnyFault, ...]]:
    half = len(faults) // 2
    if half > 1:
        yield from (faults[:half], faults[half:])
    for index in range(len(faults)):
        yield faults[:index] + faults[index + 1 :]


def _shorter(faults: tuple[AnyFault, ...]) -> Iterator[tuple[AnyFault, ...]]:
    for index, fault in enumerate(faults):
        for simpler in (*_shorter_one(fault), *_rounder(fault)):
            yield (*faults[:index], simpler, *faults[index + 1 :])


def _shorter_one(fault: AnyFault) -> Iterator[AnyFault]:
    for name in LENGTHS:
        length = getattr(fault, name, None)
        for seconds in ROUND:
            if length is not None and seconds < length:
                yield msgspec.structs.replace(fault, **{name: seconds})


def _rounder(fault: AnyFault) -> Iterator[AnyFault]:
    """An earlier onset, at a whole number."""
    if fault.at is not None and fault.at != round(fault.at):
        yield msgspec.structs.replace(fault, at=float(int(fault.at)))
    if fault.step:
        yield msgspec.structs.replace(fault, step=fault.step - 1)
