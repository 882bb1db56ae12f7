"""Whether a job can survive a schedule: a simple, cautious count of replicas that are out at once.

A schedule within its budget leaves a healthy core at every moment, so whatever goes wrong under it
is a bug. Cautious means that a schedule that could be survived may still be refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from .shape import JobShape
from .targets import replicas_of
from .vocabulary import (
    AnyFault,
    CheckpointDamaged,
    CorruptGradient,
    CorruptOptimizer,
    CorruptParameter,
    DonorLost,
    Group,
    InfGradient,
    LauncherDelay,
    LauncherTwice,
    NanGradient,
    ReplicaLostForEver,
    ScaleDown,
    StoreEmpty,
    StoreRestoredOld,
    Zombie,
)

RECOVERY_SECONDS = 900.0  # a cold restart at 98K ranks, the longest that is published


class Outage(NamedTuple):
    """Replicas that may be out of the job from ``begin`` to before ``end`` (virtual seconds)."""

    begin: float
    end: float
    replicas: frozenset[int]


def fits_budget(faults: Iterable[AnyFault], shape: JobShape) -> bool:
    """Whether ``min_replicas`` replicas are sure to be healthy whenever anything happens.

    A store that lost its head is rebuilt from the records of all replicas (design 3.2), so no replica
    may be out then, and none may be gone for ever.
    """
    faults = tuple(faults)
    outages = [outage for fault in faults if (outage := outage_of(fault, faults, shape)) is not None]
    donors = sum(isinstance(fault, DonorLost) for fault in faults)  # that die, whoever they are, at any time
    if _most_out_at_once(outages) + donors > shape.replicas - shape.min_replicas:
        return False
    lossy = [fault for fault in faults if isinstance(fault, StoreEmpty | StoreRestoredOld)]
    losses = [_span(fault, RECOVERY_SECONDS) for fault in lossy]
    if losses and donors:
        return False
    return not any(_overlap(loss, outage) for loss in losses for outage in outages)


def outage_of(fault: AnyFault, faults: Iterable[AnyFault], shape: JobShape) -> Outage | None:
    """Which replicas a fault may put out, and for how long, the delays of their launcher included."""
    replicas = _put_out(fault, shape)
    if not replicas:
        return None
    delays = [other for other in faults if isinstance(other, LauncherDelay | LauncherTwice)]
    late = sum(delay.seconds for delay in delays if delay.replica in replicas)
    begin, end = _span(fault, _length(fault) + late)
    return Outage(begin, end, replicas)


TRAINS_ON = (
    CorruptGradient | NanGradient | InfGradient | CorruptParameter | CorruptOptimizer | CheckpointDamaged
)


def _put_out(fault: AnyFault, shape: JobShape) -> frozenset[int]:
    if isinstance(fault, TRAINS_ON):
        return frozenset()
    groups = getattr(fault, "groups", None)
    return _cut_off(groups) if groups else replicas_of(fault, shape)


def _cut_off(groups: tuple[Group, ...]) -> frozenset[int]:
    """All replicas in groups but the core's, which is the store's own group or else the largest."""
    core = next((group for group in groups if "store" in group), None)
    if core is None:
        core = max(groups, key=len)
    apart = [party for group in groups if group is not core for party in group]
    return frozenset(party for party in apart if party != "store")


def _length(fault: AnyFault) -> float:
    if isinstance(fault, ReplicaLostForEver | ScaleDown):
        return math.inf
    if isinstance(fault, Zombie):
        return fault.delay + RECOVERY_SECONDS
    return float(getattr(fault, "duration", 0.0)) + RECOVERY_SECONDS


def _span(fault: AnyFault, length: float) -> tuple[float, float]:
    """From its onset on; a fault with a step instead of a time may come at any moment."""
    return (0.0, math.inf) if fault.at is None else (fault.at, fault.at + length)


def _overlap(loss: tuple[float, float], outage: Outage) -> bool:
    return loss[0] < outage.end and outage.begin < loss[1]


def _most_out_at_once(outages: list[Outage]) -> int:
    # The number out is largest at the beginning of some outage.
    return max((len(_out_at(outage.begin, outages)) for outage in outages), default=0)


def _out_at(moment: float, outages: list[Outage]) -> frozenset[int]:
    return frozenset().union(*(each.replicas for each in outages if each.begin <= moment < each.end))
