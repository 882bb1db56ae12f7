"""Whatever happens, a folded run decides what the unfolded one decides, at the same time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from emulator.stalls import attribute
from faultinject import JobShape
from faultinject.strategies import schedules
from faultinject.vocabulary import Crash, Phase

from .whole_job import Ran, run

HORIZON = 250
STEPS = 25
SAME_KINDS = ("head", "fault", "heal", "crash", "start", "register", "exit", "fenced", "end", "last_fault")


def story(ran: Ran) -> dict[str, Any]:
    """All that must not depend on who is run."""
    job, stalls = ran.emulation, attribute(ran.entries, ran.emulation.settings.steps)
    return {
        "entries": {kind: sorted(map(repr, ran.of(kind))) for kind in SAME_KINDS},
        "heads": ran.of("head"),
        "notes": sorted(ran.notes),
        "checkpoints": [entry[:5] for entry in ran.of("checkpoint")],
        "resources": sorted(map(repr, ran.of("resources"))),
        "steps": job.steps_committed,
        "rounds": job.rounds,
        "seconds": job.now,
        "messages": job.messages,
        "stalls": stalls,
        "effective": job.effective_training_time,
        "faults": job.faults_injected,
        "verdicts": {name: found.violated for name, found in ran.result.invariants.items()},
        "failures": ran.result.failures,
        "expected": ran.result.expected,
    }


def differing(folded: Ran, unfolded: Ran) -> list[str]:
    one, other = story(folded), story(unfolded)
    return [name for name in one if one[name] != other[name]]


def both(faults: Any = (), window: int = 2, **job: Any) -> tuple[Ran, Ran]:
    folded, unfolded = run(faults, fold=True, window=window, **job), run(faults, **job)
    assert differing(folded, unfolded) == []
    return folded, unfolded


def processes(ran: Ran) -> int:
    """How many ranks said where they begin."""
    return len({(entry[2], entry[4]) for entry in ran.of("initial")})


@st.composite
def jobs(draw):
    """Settings of a job: each of these changes the way that the protocol takes, or who is alike."""
    replicas = draw(st.sampled_from([2, 3, 4, 14]))
    return {
        "replicas": replicas,
        "ranks_per_replica": draw(st.sampled_from([7, 10, 17, 21]) if replicas < 14 else st.just(7)),
        "min_replicas": draw(st.integers(1, replicas)),
        "steps": STEPS,
        "seed": draw(st.integers(0, 99)),
        "catch_up": draw(st.sampled_from(["tap", "zeros"])),
        "gradient_retention": draw(st.sampled_from(["device", "host", "none"])),
        "buckets": draw(st.integers(1, 2)),
        "slots": draw(st.integers(1, 8)),
        "checkpoint_every": draw(st.sampled_from([0, 3])),
        "jitter": draw(st.sampled_from([0.0, 0.2])),
        "fan_out": draw(st.sampled_from([2, 2, 3, 32])),
    }


@st.composite
def jobs_with_faults(draw):
    job = draw(jobs())
    shape = JobShape(**{name: job[name] for name in ("replicas", "ranks_per_replica", "min_replicas")})
    recoverable = draw(st.sampled_from([True, True, False]))
    drawn = schedules(
        shape, max_faults=4, horizon_seconds=HORIZON, max_step=HORIZON // 20, recoverable=recoverable
    )
    return job, draw(drawn).faults


@settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
@given(jobs_with_faults(), st.integers(1, 3))
def test_folding_changes_nothing_whatever_is_drawn(drawn, window):
    job, faults = drawn
    note(f"{job}\n{faults}")
    both(faults, window, **job)


TABLE = {
    "tap": {"seed": 1, "mtbf_minutes": 6.0, "steps": 80},
    "zeros": {"seed": 2, "mtbf_minutes": 6.0, "catch_up": "zeros", "jitter": 0.05},
    "checkpoints": {"seed": 3, "mtbf_minutes": 8.0, "checkpoint_every": 4},
}


@pytest.mark.parametrize("name", TABLE)
def test_it_folds_again_after_recovery_and_changes_nothing(name: str) -> None:
    job = {"replicas": 3, "ranks_per_replica": 24, "fan_out": 2, "steps": 60, **TABLE[name]}
    folded, unfolded = both("table", **job)
    report = folded.emulation.folded
    assert report is not None and report["refolds"] > 0, "a run that is never seated anew shows nothing"
    assert report["most_positions"] < 24
    assert processes(folded) < processes(unfolded)
    for entry in folded.of("refold"):
        assert len(entry[2]) < 24 and sum(entry[3]) == 24
    fresh = [entry[4] for entry in folded.of("refold") if entry[4][0][4]]
    assert fresh, "a fault touches a position that was folded"
    for states in fresh:
        assert len({repr(row[4]) for row in states}) == 1, "they begin alike in all replicas"


def test_faults_that_come_too_densely_begin_the_run_anew() -> None:
    """The third fault comes before the job has recovered from the first: one fault ahead is not enough."""
    crashes = [Crash(at=100.0 + n, rank=(n, rank)) for n, rank in enumerate((5, 9, 14))]
    folded, _ = both(crashes, window=1, replicas=4, min_replicas=1, ranks_per_replica=20, fan_out=2, steps=30)
    assert folded.emulation.folded["window"] == 4


def test_a_rollback_to_a_checkpoint_reaches_positions_that_were_folded_when_it_was_written() -> None:
    every = [Crash(at=700.0 + replica, rank=(replica, 11)) for replica in range(2)]
    first = [Crash(at=130.0, rank=(1, 6))]
    job = {"replicas": 2, "ranks_per_replica": 16, "fan_out": 2, "steps": 45, "checkpoint_every": 3}
    folded, _ = both([*first, *every], window=1, min_replicas=1, **job)
    assert folded.of("refold") and folded.of("checkpoint")
    sources = {entry[8] for entry in folded.of("installed")}
    assert "checkpoint" in sources, sources


def test_a_fault_that_waits_for_a_phase_is_expected_by_its_step() -> None:
    crash = Crash(rank=(1, 13), step=6, phase=Phase.FTAR)
    folded, _ = both([crash], window=1, replicas=3, ranks_per_replica=20, fan_out=2, steps=20)
    assert folded.emulation.faults_injected == [crash]
