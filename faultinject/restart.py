"""How long a replica needs to come back, in its parts, with the source of each figure."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec

from .causes import uniform
from .errors import ScheduleError

SOURCE = "second-hand notes on arXiv 2602.00277"

ALLOCATION_SECONDS = (20.0, 40.0)
FIRST_STEP_SECONDS = (120.0, 240.0)
# Communicator init by number of ranks. The origin is ours: below 16K the time shrinks in proportion.
INIT_SECONDS = ((0, 0.0), (16_384, 17.0), (22_528, 30.0), (65_536, 100.0), (98_304, 200.0))
INIT_FLOOR_SECONDS = 1.0  # rendezvous and connections of even two processes


class Part(msgspec.Struct, frozen=True):
    """One part of a restart: how long it takes, and where the figure is from."""

    seconds: float
    source: str


class RestartTime(msgspec.Struct, frozen=True):
    """The parts of one restart, one after the other; catch-up of the state comes on top.

    A runtime with a warm-up (design 3.5) spends ``first_step`` before it joins, and then its peers do
    not wait for it; without one, the first step of the returned replica takes that long for all.
    """

    allocation: Part
    communicator_init: Part
    first_step: Part

    @property
    def seconds(self) -> float:
        """The whole restart."""
        return self.allocation.seconds + self.communicator_init.seconds + self.first_step.seconds


def communicator_init_seconds(ranks: int) -> float:
    """Interpolated between the published sizes, and beyond the largest along the last slope."""
    if ranks < 1:
        raise ScheduleError(f"ranks: {ranks} does not fit; give an integer, 1 or more")
    between = list(pairwise(INIT_SECONDS))
    low, high = next((pair for pair in between if ranks <= pair[1][0]), between[-1])
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return round(max(INIT_FLOOR_SECONDS, low[1] + slope * (ranks - low[0])), 3)


def draw_restart(ranks_per_replica: int, *, seed: int, replica: int, life: int) -> RestartTime:
    """The time that the ``life``-th restart of a replica takes; a function of the arguments alone.

    Only communicator init grows with the replica. Allocation and first step are done by all processes
    side by side, and the published ranges are those of whole jobs already. Raises ScheduleError
    for fewer ranks than one.
    """
    rng = Random(f"faultinject/restart/{seed}/{replica}/{life}")
    return RestartTime(
        allocation=Part(uniform(rng, *ALLOCATION_SECONDS), f"{SOURCE}: warm allocation 20-40 s"),
        communicator_init=Part(
            communicator_init_seconds(ranks_per_replica),
            f"{SOURCE}: 17 s at 16K, 30 s at 22K, 100 s at 64K, 200 s at 98K; interpolated",
        ),
        first_step=Part(uniform(rng, *FIRST_STEP_SECONDS), f"{SOURCE}: first step 2-4 min"),
    )
