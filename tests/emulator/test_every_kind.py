"""Each kind of fault by itself: every invariant holds, and whoever runs ahead or is folded, one trace."""

from __future__ import annotations

from random import Random

import pytest

from faultinject import KINDS, JobShape
from faultinject.fuzz import is_promised
from faultinject.fuzz.draw import DRAW, fault_of_kind
from faultinject.vocabulary import Crash

from .test_folding import both
from .whole_job import run

SHAPE = JobShape(replicas=4, ranks_per_replica=6, min_replicas=1, buildings=2)
JOB = {
    "replicas": 4,
    "ranks_per_replica": 6,
    "min_replicas": 1,
    "buildings": 2,
    "steps": 14,
    "checkpoint_every": 3,
    "fan_out": 2,
    "buckets": 2,
}
RESTART = Crash(rank=(1, 4), at=45.0)  # so that somebody comes back: fetches, restores, joins


def drawn(kind, seed):
    """Two faults of a kind, of which one strikes a replica that comes back, if the job survives them all."""
    r = Random(f"{kind}/{seed}")
    while True:
        two = [fault_of_kind(r, kind, SHAPE, 100.0, 20.0) for _ in range(2)]
        for faults in ([RESTART, *two], two[:1]):
            if is_promised(faults, SHAPE):
                return faults


@pytest.mark.parametrize("kind", KINDS)
def test_every_invariant_holds_and_the_trace_is_one(kind):
    faults = drawn(kind, 0)
    fast = run(faults, **JOB)
    assert fast.result.failures == [], faults
    assert fast.emulation.steps_committed >= JOB["steps"]
    assert fast.trace_hash == run(faults, careful=True, **JOB).trace_hash, faults


@pytest.mark.parametrize("kind", KINDS)
def test_folding_changes_nothing(kind):
    both(drawn(kind, 2), **JOB)


def test_every_field_can_be_drawn():
    onset = {"at", "step", "phase", "point", "cause", "groups"}
    fields = {name for cls in KINDS.values() for name in cls.__struct_fields__}
    assert fields - onset <= DRAW.keys()
