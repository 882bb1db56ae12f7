"""Whatever happens, a folded run decides what the unfolded one decides, at the same time."""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from conformance.checker import check
from emulator.cli import main
from emulator.stalls import attribute
from faultinject import JobShape
from faultinject.strategies import schedules
from faultinject.vocabulary import Crash, Phase

from .whole_job import Ran, run

HORIZON = 250
STEPS = 25
SAME_KINDS = ("head", "fault", "heal", "crash", "start", "register", "exit", "fenced", "end", "last_fault")


def used(ran: Ran) -> dict[Any, Counter[str]]:
    """What the ranks of each replica use together with the state of each step."""
    total: dict[Any, Counter[str]] = defaultdict(Counter)
    for _, _, replica, incarnation, _, step, weight, counters in ran.of("resources"):
        total[replica, incarnation, step].update({"weight": weight, **counters})
    return total


def story(ran: Ran) -> dict[str, Any]:
    """All that must not depend on who is run."""
    job, stalls = ran.emulation, attribute(ran.entries, ran.emulation.settings.steps)
    return {
        "entries": {kind: sorted(map(repr, ran.of(kind))) for kind in SAME_KINDS},
        "heads": ran.of("head"),
        "notes": sorted(ran.notes),
        "checkpoints": [entry[:5] for entry in ran.of("checkpoint")],
        "resources": used(ran),
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
    """Where a replica ends, what its ranks still send at that very instant depends on their order, and where
    rings run ahead of a stop so does what they send: messages may differ by those of one instant, and
    nothing else."""
    folded, unfolded = run(faults, fold=True, window=window, **job), run(faults, **job)
    found = differing(folded, unfolded)
    if found == ["messages"]:
        ranks = unfolded.emulation.settings.ranks
        found = [] if abs(folded.emulation.messages - unfolded.emulation.messages) <= 4 * ranks else found
    assert found == []
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


# -- the checker looks at what begins to be run -----------------------------------------------------


@pytest.fixture(scope="module")
def log() -> list[list[Any]]:
    """The entries of a run in which a position begins to be run in the middle."""
    crashes = [Crash(at=100.0, rank=(1, 6)), Crash(at=900.0, rank=(2, 11))]
    job = {"replicas": 3, "ranks_per_replica": 16, "fan_out": 2, "steps": 25}
    ran = run(crashes, fold=True, window=1, **job)
    assert ran.result.ok and any(row[4] for entry in ran.of("refold") for row in entry[4])
    return ran.entries


def tampered(log: list[list[Any]], place: int, value: Any) -> set[str]:
    """Which invariants are violated when the first row of the refold says ``value`` at ``place``."""
    entries = copy.deepcopy(log)
    row = next(e for e in entries if e[0] == "refold" and e[4][0][4])[4][0]
    row[place] = value(row[place])
    return {name for name, found in check(entries).invariants.items() if found.violated}


def test_a_state_that_is_not_the_same_in_all_replicas_is_seen(log: list[list[Any]]) -> None:
    assert "equality" in tampered(log, 4, lambda fresh: [[p, digest ^ 1] for p, digest in fresh])


def test_a_state_that_was_never_committed_is_seen(log: list[list[Any]]) -> None:
    assert "single_lineage" in tampered(log, 3, lambda lineage: "0" * len(lineage))


def test_a_rank_that_is_run_without_a_word_is_seen(log: list[list[Any]]) -> None:
    assert "atomicity" in tampered(log, 4, lambda fresh: fresh[1:])


# -- the command line -------------------------------------------------------------------------------

JOB = "--replicas 3 --ranks-per-replica 20 --fan-out 2 --steps 30 --seed 1"
ARGS = f"emulate {JOB} --json --run-dir mine".split()


def test_a_folded_run_can_be_replayed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that had to begin anew, and though a replay does not know what came after the end."""
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, [*ARGS, "--faults", "table", "--mtbf-minutes", "0.7", "--fold"])
    found = json.loads(ran.stdout)
    assert ran.exit_code == 0 and found["folded"]["window"] > 2, ran.output
    assert "from the beginning again" in ran.stderr
    again = CliRunner().invoke(main, ["replay", "mine"])
    assert (again.exit_code, again.stdout) == (0, f"same trace: {found['trace_hash']}\n"), again.output


def test_tensors_cannot_be_folded() -> None:
    ran = CliRunner().invoke(main, ["emulate", "--fold", "--fidelity", "tensor"])
    assert ran.exit_code == 2 and "fold is for fidelity fingerprint" in ran.output
