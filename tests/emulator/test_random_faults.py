"""Random short schedules of every kind against small whole jobs: whatever happens, every invariant holds."""

from __future__ import annotations

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from faultinject import KINDS, JobShape, kind_of
from faultinject.strategies import schedules

from .whole_job import run

HORIZON = 250  # seconds in which faults begin; replicas that restart have come back soon after
STEPS = 25
FORGETFUL = ("store_empty", "store_restored_old")  # when all who knew the head are gone, so is the head
ROUGH = [kind for kind in KINDS if kind not in FORGETFUL]


@st.composite
def jobs(draw):
    """Settings of a job: each of these changes the way that the protocol takes."""
    replicas = draw(st.integers(2, 4))
    return {
        "replicas": replicas,
        "ranks_per_replica": draw(st.integers(1, 5)),
        "min_replicas": draw(st.integers(1, replicas)),
        "steps": STEPS,
        "seed": draw(st.integers(0, 99)),
        "catch_up": draw(st.sampled_from(["tap", "zeros"])),
        "gradient_retention": draw(st.sampled_from(["device", "host", "none"])),
        "buckets": draw(st.integers(1, 3)),
        "slots": draw(st.integers(1, 8)),
        "checkpoint_every": draw(st.sampled_from([0, 3])),
        "divisor": draw(st.sampled_from(["contributors", "replicas"])),
        "lr_scaling": draw(st.sampled_from(["none", "linear", "sqrt"])),
        "jitter": draw(st.sampled_from([0.0, 0.2])),
        "fan_out": draw(st.sampled_from([2, 32])),
    }


def shape_of(job):
    return JobShape(**{name: job[name] for name in ("replicas", "ranks_per_replica", "min_replicas")})


@st.composite
def jobs_with_faults(draw):
    job = draw(jobs())
    drawn = schedules(shape_of(job), max_faults=4, horizon_seconds=HORIZON, max_step=HORIZON // 20)
    return job, draw(drawn).faults


@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
@given(jobs_with_faults())
def test_every_invariant_holds(drawn):
    job, faults = drawn
    note(f"{job}\n{faults}")
    ran = run(faults, **job)
    assert ran.result.failures == []
    assert ran.emulation.steps_committed >= STEPS, "what can be survived is survived, and training goes on"


@st.composite
def jobs_with_too_many_faults(draw):
    job = draw(jobs())
    drawn = schedules(
        shape_of(job), max_faults=6, kinds=ROUGH, recoverable=False, horizon_seconds=100, max_step=5
    )
    return job, draw(drawn).faults


@settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))
@given(jobs_with_too_many_faults())
def test_every_invariant_holds_whether_or_not_the_job_survives(drawn):
    job, faults = drawn
    note(f"{job}\n{faults}")
    assert run(faults, **job).result.failures == []


@settings(max_examples=5, derandomize=True, suppress_health_check=list(HealthCheck))
@given(jobs_with_faults())
def test_the_same_schedule_gives_the_same_trace(drawn):
    """Also when no position runs ahead of another, and when each runs by itself."""
    job, faults = drawn
    assert run(faults, **job).trace_hash == run(faults, careful=True, **job).trace_hash


def test_the_schedules_are_of_every_kind():
    """A kind that is never drawn would never be tried."""
    seen = set()
    shape = JobShape(replicas=4, ranks_per_replica=2, min_replicas=1)

    @settings(max_examples=1500, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(schedules(shape, horizon_seconds=HORIZON))
    def draw(schedule):
        seen.update(kind_of(fault) for fault in schedule.faults)

    draw()
    assert seen == set(KINDS)
