"""Strikes at data on its way or at rest: chunks, ranges, donors, checkpoints, samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultinject import Fault
from faultinject import vocabulary as v

from ..odd import oddities

if TYPE_CHECKING:
    from ..inject import Injector


def corrupt_chunk(i: Injector, fault: v.CorruptChunk, now: float) -> None:
    targets = i.targets(fault)
    i.carefully(fault)
    for process in targets:
        oddities(process).chunks += fault.count


def corrupt_range(i: Injector, fault: v.CorruptRange, now: float) -> None:
    for process in i.targets(fault):
        oddities(process).ranges += fault.count


def donor_lost(i: Injector, fault: v.DonorLost, now: float) -> None:
    for process in i.targets(fault):
        oddities(process).asks += 1


def donor_slow(i: Injector, fault: v.DonorSlow, now: float) -> None:
    """Ranges that are on their way already arrive as they would have."""
    odd = [oddities(process) for process in i.targets(fault)]
    for each in odd:
        each.host_slow *= fault.factor

    def mend(now: float) -> None:
        for each in odd:
            each.host_slow /= fault.factor

    i.later(fault.duration, fault, mend)


def checkpoint_damaged(i: Injector, fault: v.CheckpointDamaged, now: float) -> None:
    i.job.damage(fault.position, fault.damage)
    i.for_good(fault)


def disk_full(i: Injector, fault: v.DiskFull, now: float) -> None:
    for process in i.targets(fault):
        odd = oddities(process)
        odd.full_until = max(odd.full_until, now + fault.duration)
    i.later(fault.duration, fault)


def loader_stuck(i: Injector, fault: v.LoaderStuck, now: float) -> None:
    for process in i.targets(fault):
        odd = oddities(process)
        odd.samples_at = max(odd.samples_at, now + fault.duration)
    i.later(fault.duration, fault)


def loader_slow(i: Injector, fault: v.LoaderSlow, now: float) -> None:
    for process in i.targets(fault):
        oddities(process).late.append((now + fault.duration, fault.seconds))
    i.later(fault.duration, fault)


def loader_killed(i: Injector, fault: v.LoaderKilled, now: float) -> None:
    for process in i.targets(fault):
        oddities(process).late.append((math.inf, fault.seconds))


DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    v.CorruptChunk: corrupt_chunk,
    v.CorruptRange: corrupt_range,
    v.DonorLost: donor_lost,
    v.DonorSlow: donor_slow,
    v.CheckpointDamaged: checkpoint_damaged,
    v.DiskFull: disk_full,
    v.LoaderStuck: loader_stuck,
    v.LoaderSlow: loader_slow,
    v.LoaderKilled: loader_killed,
}
