"""A case of a campaign: a job and its faults, a pure function of the campaign's seed and a number."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import msgspec

from ..schedule import Schedule
from ..shape import JobShape
from ..vocabulary import AnyFault, Phase
from .draw import draw_faults

MAX_VIRTUAL_HOURS = 4.0  # by then a job whose faults are over has come to its last step
AFTERWARDS = (60.0, 150.0, 300.0)  # seconds of training after the last onset; a restart takes 150 to 300
RETURN = (Phase.FETCH, Phase.JOIN)
SHAPE = ("replicas", "ranks_per_replica", "min_replicas", "buildings")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """``job``: values of the settings of an emulation, by their names there."""

    number: int
    job: dict[str, Any]
    faults: tuple[AnyFault, ...]

    @property
    def shape(self) -> JobShape:
        return JobShape(**{name: self.job[name] for name in SHAPE})

    @property
    def schedule(self) -> Schedule:
        return Schedule(job=self.shape, faults=self.faults)


def draw_case(seed: int, number: int) -> Case:
    """The case of this number: always the same one for a seed, whatever else was drawn before."""
    r = Random(f"fthsdp/fuzz/{seed}/{number}")
    job = _draw_job(r)
    drawn = Case(number=number, job=job, faults=())
    faults = draw_faults(r, drawn.shape, job["step_seconds"])
    rest = max(AFTERWARDS) if any(fault.phase in RETURN for fault in faults) else r.choice(AFTERWARDS)
    steps = math.ceil((_last_onset(faults, job) + rest) / job["step_seconds"])
    return msgspec.structs.replace(drawn, job={**job, "steps": steps}, faults=faults)


def _last_onset(faults: tuple[AnyFault, ...], job: dict[str, Any]) -> float:
    step_seconds = job["step_seconds"]
    return float(max((f.step or 0) * step_seconds if f.at is None else f.at for f in faults))


def _draw_job(r: Random) -> dict[str, Any]:
    """Small, for a small job does all that a large one does, and takes a hundredth of the time."""
    replicas = r.choice((2, 2, 3, 3, 4))
    return {
        "replicas": replicas,
        "ranks_per_replica": r.choice((1, 1, 1, 2, 2, 3, 5)),
        "min_replicas": r.randint(1, replicas),
        "buildings": r.choice((12, 12, 2, 1)),
        "seed": r.randrange(1000),
        "step_seconds": r.choice((20.0, 40.0, 40.0)),  # fewer and longer steps are as many virtual hours
        "jitter": r.choice((0.0, 0.0, 0.05, 0.2)),
        "max_virtual_hours": MAX_VIRTUAL_HOURS,
        **_draw_ftar(r),
        **_draw_rules(r),
    }


def _draw_ftar(r: Random) -> dict[str, Any]:
    return {
        "buckets": r.choice((1, 1, 2, 3)),
        "bucket_mib": r.choice((1, 1, 4)),
        "chunk_mib": r.choice((1, 2)),
        "slots": r.randint(1, 8),
    }


def _draw_rules(r: Random) -> dict[str, Any]:
    return {
        "catch_up": r.choice(("tap", "tap", "zeros")),
        "gradient_retention": r.choice(("device", "host", "none")),
        "samples_per_step": r.choice((1, 8)),
        "checkpoint_every": r.choice((0, 0, 2, 5)),
        "divisor": r.choice(("contributors", "replicas")),
        "lr_scaling": r.choice(("none", "linear", "sqrt")),
        "fan_out": r.choice((2, 32)),
    }
