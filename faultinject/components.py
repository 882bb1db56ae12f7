"""Failures by component: each GPU, host, link and process of a job fails on its own, and begins anew then.

Each unit's times between failures are Weibull distributed. With shape 1 (exponential) a unit has no memory;
below 1 it fails soon after it failed, or was new, and then for a long time not; above 1 it wears out. How
often each fails follows from how many units a component has, and from its share of the cause table.

The shapes here are this project's choice: the source counts causes and says nothing of times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from .causes import CAUSES, Cause, pick
from .shape import RANKS_PER_HOST, JobShape, Rank


class Component(NamedTuple):
    """``units``: how many a job has; ``first``: the rank at which a unit sits (or begins).

    causes: rows of the cause table that are this component's
    weibull_shape: of a unit's times between failures
    """

    name: str
    units: Callable[[JobShape], int]
    first: Callable[[JobShape, int], Rank]
    causes: tuple[str, ...]
    weibull_shape: float

    @property
    def rows(self) -> tuple[Cause, ...]:
        return tuple(cause for cause in CAUSES if cause.name in self.causes)

    @property
    def percent(self) -> float:
        """Of all interruptions."""
        return sum(row.percent for row in self.rows)


def _hosts(shape: JobShape) -> int:
    return shape.replicas * shape.hosts_per_replica


def _on_host(shape: JobShape, unit: int) -> Rank:
    replica, host = divmod(unit, shape.hosts_per_replica)
    return replica, host * RANKS_PER_HOST


def _ranks(shape: JobShape) -> int:
    return shape.ranks


COMPONENTS: tuple[Component, ...] = (
    Component(
        "gpu",
        _ranks,
        JobShape.rank_at,
        ("HBM3 memory", "PCIe device", "faulty GPU compute", "silent data corruption"),
        0.8,
    ),
    Component("host", _hosts, _on_host, ("host maintenance", "kernel", "reboot"), 0.8),
    Component("link", _ranks, JobShape.rank_at, ("network", "NCCL time-out"), 0.7),
    Component("process", _ranks, JobShape.rank_at, ("software", "other"), 1.0),
)


def component_interruptions(
    shape: JobShape, rng: Random, mtbf: float, weibull_shape: float | None
) -> Iterator[tuple[float, Rank, Cause]]:
    """Endless (seconds, victim, cause) in order of time. In the long run one comes in ``mtbf`` seconds.

    weibull_shape: of every component; None: each its own
    """
    waiting: list[tuple[float, int, int]] = []  # when the unit of a component fails next
    scales = []
    for number, component in enumerate(COMPONENTS):
        own = component.weibull_shape if weibull_shape is None else weibull_shape
        mean = mtbf * component.units(shape) * 100.0 / component.percent
        scales.append((mean / math.gamma(1 + 1 / own), own))
        for unit in range(component.units(shape)):
            waiting.append((rng.weibullvariate(*scales[number]), number, unit))
    heapq.heapify(waiting)
    while True:
        now, number, unit = waiting[0]
        component = COMPONENTS[number]
        heapq.heapreplace(waiting, (now + rng.weibullvariate(*scales[number]), number, unit))
        yield now, component.first(shape, unit), pick(rng, component.rows)
