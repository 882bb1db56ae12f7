"""Planted faults of convergence, progress and blast radius: each is seen, by its invariant."""

from __future__ import annotations

import pytest

from conformance.checker import check

from .log_builder import Job, good_log
from .planting import broken, heads, of, pick, where

A, B, C = (0, 1), (1, 1), (2, 1)


@pytest.fixture
def log():
    return good_log()


def _slow_return(steps, level_after=None):
    """1.1 crashes; its successor is level ``level_after`` steps later, or never."""
    job = Job()
    job.start(A, B, C)
    job.head(A, [A, B, C])
    for _ in range(4):
        job.step()
    job.crash(B)
    job.exit(B)
    job.close()
    job.head(A, [A, C])
    new = (1, 2)
    job.start(new)
    for n in range(steps):
        if n == level_after:
            job.install(new, A)
            job.step(also=[new], catchers=[[*new, -1, []]])
        else:
            job.step(catchers=[[*new, 4, [0, 2]]])
    job.put("end", [[*m, *held[:2], True] for m, held in job.held.items()], "time is up")
    return job.log


# -- convergence -----------------------------------------------------------------------------


def test_a_replica_that_never_catches_up():
    assert broken(_slow_return(30)) == {"convergence"}


def test_a_replica_that_catches_up_too_late():
    assert broken(_slow_return(30, level_after=22)) == {"convergence"}


def test_a_replica_that_catches_up_in_time():
    log = _slow_return(30, level_after=10)
    assert broken(log) == set()
    assert check(log).invariants["convergence"].checked == 1


def test_a_run_that_ends_before_the_bound_says_nothing():
    result = check(_slow_return(10))
    assert result.invariants["convergence"].checked == 0
    assert "convergence" not in result.expected


def test_what_was_shared_before_the_fault_does_not_count(log):
    """A late fault after which two replicas never hold the same again."""
    i = where(log, "head")[-8]
    log.insert(i, ["fault", log[i][1], {"kind": "slow", "target": [1, 0]}])
    for n in reversed(where(log, "applied", of(1, 3))):
        if n > i:
            del log[n]
    assert "convergence" not in broken(log)
    log[-1][1] += 20.0
    assert "convergence" in broken(log)


# -- progress --------------------------------------------------------------------------------


def _pause(log, seconds, n=5):
    """Nothing happens for a time before the n-th head."""
    i = where(log, "head")[n]
    for entry in log[i:]:
        entry[1] += seconds
    return i


def test_no_commit_for_too_long(log):
    _pause(log, 15.0)
    assert broken(log) == {"progress"}


def test_a_job_that_stops_committing_for_good(log):
    log[-1][1] += 15.0
    assert broken(log) == {"progress"}


def test_a_store_that_is_away_is_an_excuse(log):
    i = _pause(log, 15.0)
    away = {"kind": "store_away", "duration": 15.0}
    log.insert(i, ["heal", log[i][1] - 0.5, away])
    log.insert(i, ["fault", log[i - 1][1], away])
    assert broken(log) == set()


def test_too_few_replicas_are_an_excuse(log):
    log[0][2]["min_replicas"] = 3
    i = where(log, "start", of(1, 2))[0]
    for entry in log[i:]:
        entry[1] += 15.0
    assert "progress" not in broken(log)


def test_a_replica_that_keeps_crashing_is_no_excuse(log):
    """Crashes of 1.1 and its successors do not start the clock of the others anew."""
    i = where(log, "head")[5]
    t = log[i][1]
    for entry in log[i:]:
        entry[1] += 15.0
    extra = [["crash", t + 7.0, 1, 1, 0, "own"], ["exit", t + 8.0, 1, 1, "rank lost", True]]
    log[i:i] = extra
    assert "progress" in broken(log)


# -- blast radius ------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [True, False])
def test_a_bystander_leaves(log, restart):
    end = log.pop()
    end[2] = [state for state in end[2] if state[0] != 2]
    log += [["exit", end[1] - 1.0, 2, 1, "peer lost", restart], end]
    assert broken(log) == {"blast_radius"}


def test_a_job_that_stops_whole_is_no_bystander(log):
    end = log.pop()
    for replica, incarnation, *_ in end[2]:
        log.append(["exit", end[1] - 1.0, replica, incarnation, "job fatal", False])
    log.append(["end", end[1], [], "job fatal"])
    assert broken(log) == set()


def test_a_crash_after_which_the_replica_runs_on(log):
    del log[where(log, "exit", of(1, 1))[0]]
    assert "blast_radius" in broken(log)


def test_a_fault_costs_the_others_too_much(log):
    i = where(log, "exit", of(1, 1))[0] + 1
    for entry in log[i:]:
        entry[1] += 6.0
    assert broken(log) == {"blast_radius"}


def test_a_crash_of_what_does_not_live(log):
    crash = pick(log, "crash", of(1, 1))
    i = where(log, "start", of(1, 2))[0]
    log.insert(i, [crash[0], log[i][1], *crash[2:]])
    assert broken(log) == {"blast_radius"}


def test_heads_are_not_counted_as_stall_without_a_fault(log):
    assert check(log).invariants["blast_radius"].checked < len(heads(log))
