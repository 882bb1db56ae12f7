"""Strikes at devices: fail them, fill them, slow them down, spoil what they hold or compute."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from faultinject import Fault
from faultinject import vocabulary as v

from ..netfaults import LinkFaultKind
from ..odd import fail, oddities
from .network import hinder

if TYPE_CHECKING:
    from ..inject import Injector

FLIPPED_BIT = 17


def uncorrectable_ecc(i: Injector, fault: v.UncorrectableEcc, now: float) -> None:
    for process in i.targets(fault):
        oddities(process).doom = "uncorrectable ECC error"


def gpu_lost(i: Injector, fault: v.GpuLost, now: float) -> None:
    for process in i.targets(fault):
        if process.alive:  # the first of a host takes its replica along
            fail(process, "the GPU fell off the bus", now)


def out_of_memory(i: Injector, fault: v.OutOfMemory, now: float) -> None:
    for process in i.targets(fault):
        process.device.squeeze()


def slow(i: Injector, fault: v.Slow, now: float) -> None:
    """A straggler: its links or its device, until the fault ends."""
    if fault.part == "link":
        _slow_link(i, fault, now)
        return
    targets = i.targets(fault)

    def set_to(factor: float) -> None:
        for process in targets:
            process.device.slow_down(factor)

    set_to(fault.factor)
    spells = _spells(fault, now)
    for well, again in pairwise(spells):
        i.job.kernel.at(well[1], lambda _, now: set_to(1.0), None)
        i.job.kernel.at(again[0], lambda _, now: set_to(fault.factor), None)
    i.later(fault.duration, fault, lambda now: set_to(1.0))


def _slow_link(i: Injector, fault: v.Slow, now: float) -> None:
    for begin, end in _spells(fault, now):
        hinder(i, fault, LinkFaultKind.BANDWIDTH, min(1.0, 1.0 / fault.factor), begin, end)
    i.later(fault.duration, fault)


def _spells(fault: v.Slow, now: float) -> list[tuple[float, float]]:
    """When it is slow: all the time, or half of each period; the last spell ends no later than the fault."""
    end = now + fault.duration
    if fault.period is None:
        return [(now, end)]
    starts = [now + n * fault.period for n in range(1 + int(fault.duration / fault.period))]
    return [(start, min(end, start + fault.period / 2)) for start in starts if start < end]


def corrupt_gradient(i: Injector, fault: v.CorruptGradient, now: float) -> None:
    for process in i.registered(fault):
        process.device.flip_bit(FLIPPED_BIT)


def nan_gradient(i: Injector, fault: v.NanGradient, now: float) -> None:
    for process in i.registered(fault):
        process.device.poison()


def inf_gradient(i: Injector, fault: v.InfGradient, now: float) -> None:
    for process in i.registered(fault):
        process.device.overflow()


def corrupt_parameter(i: Injector, fault: v.CorruptParameter, now: float) -> None:
    _corrupt_state(i, fault, "parameter")


def corrupt_optimizer(i: Injector, fault: v.CorruptOptimizer, now: float) -> None:
    _corrupt_state(i, fault, "optimizer")


def _corrupt_state(i: Injector, fault: v.AnyFault, part: str) -> None:
    for process in i.registered(fault):
        process.device.flip_state(part)
    i.for_good(fault)


DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    v.UncorrectableEcc: uncorrectable_ecc,
    v.GpuLost: gpu_lost,
    v.OutOfMemory: out_of_memory,
    v.Slow: slow,
    v.CorruptGradient: corrupt_gradient,
    v.NanGradient: nan_gradient,
    v.InfGradient: inf_gradient,
    v.CorruptParameter: corrupt_parameter,
    v.CorruptOptimizer: corrupt_optimizer,
}
