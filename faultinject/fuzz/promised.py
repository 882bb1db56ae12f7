"""Whether the protocol promises to survive a case, so that whatever goes wrong in it is a bug.

Wider than ``budget.fits_budget``, which keeps ``min_replicas`` replicas healthy at every moment: here all
may be out for a while, for the job must come back when they do, if need be from its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from ..budget import fits_budget
from ..shape import JobShape
from ..vocabulary import (
    AnyFault,
    Crash,
    NanGradient,
    ReplicaLostForEver,
    ScaleDown,
    StoreAway,
    StoreEmpty,
    StoreLeaderChange,
    StoreLostAnswer,
    StoreRestart,
    StoreRestoredOld,
    StoreSlow,
    Zombie,
)

START_SECONDS = 5.0  # by then every first process has seen a head
HEARD_SECONDS = 5.0  # after the store answers again, by then everybody has seen its newest head
NEEDS_STORE = StoreSlow | StoreAway | StoreRestart | StoreLostAnswer | StoreLeaderChange
GONE = ReplicaLostForEver | ScaleDown
LOSES_HEAD = StoreEmpty | StoreRestoredOld


def is_promised(faults: Iterable[AnyFault], shape: JobShape) -> bool:
    """Whether the job must survive ``faults`` (docs/guarantees.md) and come to its last step.

    Enough replicas are left in the end, and when the store loses its head all are there and have seen it:
    what nobody alive knows of cannot be mended (guarantee 3).
    """
    faults = tuple(faults)
    lost = {fault.replica for fault in faults if isinstance(fault, GONE)}
    # A zombie that has no successor is fenced by nobody: to the store it lives, and no peer reaches it.
    unfenced = {fault.replica for fault in faults if isinstance(fault, Zombie)} & lost
    if unfenced or len(lost) > shape.replicas - shape.min_replicas:
        return False
    losses = [fault for fault in faults if isinstance(fault, LOSES_HEAD)]
    return not losses or _heads_are_known(losses, faults, shape)


def _heads_are_known(losses: Sequence[AnyFault], faults: tuple[AnyFault, ...], shape: JobShape) -> bool:
    if not fits_budget(map(_as_outage, faults), msgspec.structs.replace(shape, min_replicas=1)):
        return False
    others = [_quiet(fault) for fault in faults if isinstance(fault, NEEDS_STORE)]
    if any(_overlap(_quiet(loss), other) for loss in losses for other in others):
        return False
    if any(_overlap(_quiet(one), _quiet(other)) for one, other in combinations(losses, 2)):
        return False
    return all(loss.at is None or loss.at >= START_SECONDS for loss in losses)


def _as_outage(fault: AnyFault) -> AnyFault:
    """A rank whose gradient is not a number may end, and its replica with it."""
    if isinstance(fault, NanGradient):
        return Crash(rank=fault.rank, at=fault.at, step=fault.step, phase=fault.phase)
    return fault


def _quiet(fault: AnyFault) -> tuple[float, float]:
    """When ``fault`` may keep somebody from hearing of the newest head; one by phase may come at any time."""
    if fault.at is None:
        return (0.0, math.inf)
    return (fault.at - HEARD_SECONDS, fault.at + getattr(fault, "duration", 0.0) + HEARD_SECONDS)


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
