"""The end of a job of real processes: whoever is killed near it, all end well, with the same state."""

from __future__ import annotations

import signal

import pytest

from ftruntime.launch import State

from .cluster import Cluster

STEPS = 14


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path, until=STEPS, slow_s=3.0)  # time to kill those who have not the last state yet
    yield made
    made.close()


def ended(cluster):
    """Everybody has ended well; the checker agrees, and finds the last state at every rank."""
    replicas = range(cluster.config.replicas)
    cluster.until(lambda: all(cluster.launcher.state(r) is State.DONE for r in replicas))
    result, log = cluster.verdict()
    assert result.ok, "\n".join([*result.failures, *[str(r.first) for r in result.invariants.values()]])
    (final,) = [e for e in log if e[0] == "final"]
    over = [e for e in log if e[0] == "over"]
    assert final[2] == STEPS == result.steps_committed
    assert sorted((e[2], e[4]) for e in over) == [(r, p) for r in replicas for p in range(2)]
    assert {tuple(e[5:7]) for e in over} == {tuple(final[2:4])}
    states = {(e[4], e[15]) for e in log if e[0] == "applied" and e[14] == final[3]}
    states |= {(e[4], e[7]) for e in log if e[0] == "installed" and e[6] == final[3]}
    assert len(states) == 2, "one state at each position, whatever the replica"
    return log


def test_a_job_ends_when_all_have_the_last_state(cluster):
    ended(cluster)
    assert [cluster.launcher.life(r) for r in range(3)] == [0, 0, 0]


def test_a_replica_that_is_killed_shortly_before_the_end_fetches_the_last_state(cluster):
    cluster.until(lambda: cluster.step >= STEPS - 2)
    cluster.kill(1, 1, signal.SIGKILL)
    log = ended(cluster)
    assert [cluster.launcher.life(r) for r in range(3)] == [0, 1, 0]
    assert any(e[0] == "installed" and e[2] == 1 and e[5] == STEPS for e in log)


def test_replicas_that_are_killed_right_after_the_last_commit_come_back_for_its_state(cluster):
    cluster.until(lambda: cluster.step >= STEPS)
    for replica in (2, 0):
        cluster.kill(replica, 0, signal.SIGKILL)
    log = ended(cluster)
    assert [cluster.launcher.life(r) for r in range(3)] == [1, 0, 1]
    assert {e[2] for e in log if e[0] == "installed" and e[5] == STEPS} == {0, 2}
