"""Real processes, real sockets, real deaths: three replicas of two ranks, judged by the checker."""

from __future__ import annotations

import os
import signal

import pytest

from ftruntime.launch import State

from .cluster import Cluster
from .replay import replay


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.close()


def _well(cluster):
    """The checker finds nothing, and every state has the bits of an undisturbed run of the same rounds."""
    result, log = cluster.verdict()
    assert result.ok, "\n".join([*result.failures, *[str(r.first) for r in result.invariants.values()]])
    digests = replay(log, cluster.config)
    applied = [e for e in log if e[0] == "applied"]
    assert len({(e[2], e[5], e[4]) for e in applied}) > 2 * result.steps_committed
    assert [e for e in applied if digests[e[5], e[4]] != e[15]] == []
    return result


def test_a_job_trains(cluster):
    cluster.everyone(10)
    result = _well(cluster)
    assert result.steps_committed >= 10
    assert result.invariants["gradient"].checked and result.invariants["equality"].checked


@pytest.mark.parametrize(("replica", "position"), [(0, 0), (1, 1), (2, 0)])
def test_a_rank_that_is_killed_costs_its_replica_and_nobody_else(cluster, replica, position):
    cluster.everyone(3)
    cluster.kill(replica, position, signal.SIGKILL)
    cluster.until(lambda: cluster.launcher.life(replica) == 1)
    cluster.everyone(5)
    assert [cluster.launcher.life(r) for r in range(3)] == [int(r == replica) for r in range(3)]
    result = _well(cluster)
    assert result.invariants["fencing"].checked


def test_a_joiner_that_dies_while_it_joins_stalls_nobody(cluster):
    cluster.everyone(3)
    cluster.kill(2, 0, signal.SIGKILL)
    cluster.until(lambda: cluster.launcher.life(2) == 1 and cluster.launcher.state(2) is State.RUNNING)
    cluster.until(lambda: cluster.launcher.incarnation(2))  # it has registered: it is connecting, or fetches
    cluster.kill(2, 1, signal.SIGKILL)
    cluster.until(lambda: cluster.launcher.life(2) == 2)
    cluster.everyone(3)
    assert [cluster.launcher.life(r) for r in range(3)] == [0, 0, 2]
    _well(cluster)


def test_two_replicas_die_and_fetch_from_the_one_that_is_left(cluster):
    cluster.everyone(3)
    for replica in (0, 1):
        cluster.kill(replica, 0, signal.SIGKILL)
    cluster.until(lambda: cluster.launcher.life(0) == cluster.launcher.life(1) == 1)
    cluster.everyone(3)
    _well(cluster)


def test_a_replica_that_stops_past_its_lease_comes_back_as_the_same_life(cluster):
    cluster.everyone(3)
    cluster.fault("pause", 1)
    for position in range(2):
        os.kill(cluster.launcher.pid(1, position), signal.SIGSTOP)
    cluster.steps(3)
    cluster.until(lambda: cluster.lost_lease(1))
    for position in range(2):
        os.kill(cluster.launcher.pid(1, position), signal.SIGCONT)
    cluster.heal("pause", 1)
    cluster.everyone(3)
    assert [cluster.launcher.life(r) for r in range(3)] == [0, 0, 0], cluster.story()
    _well(cluster)


def test_the_store_is_killed_and_comes_back(cluster):
    cluster.everyone(3)
    cluster.restart_store(1.0)
    cluster.everyone(5)
    assert [cluster.launcher.life(r) for r in range(3)] == [0, 0, 0], cluster.story()
    _well(cluster)
