"""Who runs which positions, and how soon that can be felt elsewhere."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.network import ROUNDED, Network, NetworkConfig
from emulator.workers import split
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.tree import parent

JOBS = st.tuples(st.integers(1, 400), st.integers(2, 33), st.integers(1, 6)).filter(lambda j: j[2] <= j[0])


@given(JOBS)
def test_every_position_is_run_once_and_every_worker_runs_some(job):
    ranks, fan_out, workers = job
    parted = split(ranks, fan_out, workers)
    assert sorted(p for positions in parted.positions for p in positions) == list(range(ranks))
    assert all(parted.positions), parted
    assert all(parted.owners[p] == w for w, positions in enumerate(parted.positions) for p in positions)
    assert parted.owners[0] == 0, "the leaders are where the hub is"


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_the_parts_of_a_large_job_are_about_equal(workers):
    sizes = [len(positions) for positions in split(8192, 32, workers).positions]
    assert max(sizes) < 1.6 * min(sizes), "subtrees of 1,057 ranks stay whole"


@pytest.mark.parametrize("workers", [0, 9])
def test_more_workers_than_positions_are_refused(workers):
    with pytest.raises(ConfigError, match=rf"workers is {workers}: it must be 1 to 8"):
        split(8, 32, workers)


@given(JOBS.filter(lambda j: j[2] > 1))
def test_distances_are_shortest_ways_to_another_worker(job):
    ranks, fan_out, workers = job
    network = Network(3, ranks, NetworkConfig(buildings=2))
    parted = split(ranks, fan_out, workers)
    found = parted.distances(network, fan_out)
    for position in range(1, ranks):
        above = parent(position, fan_out)
        latency = ROUNDED * min(network.link((r, position), (r, above))[0] for r in range(3))
        if parted.owners[position] != parted.owners[above]:
            assert max(found[position], found[above]) <= latency
        else:
            assert abs(found[position] - found[above]) <= latency * (1 + 1e-9)
    assert min(found) >= network.lookahead and math.isfinite(min(found))
