"""Emulated jobs that end as real ones do: by a final head, whatever fails on the way there."""

from __future__ import annotations

import pytest

from .whole_job import run


def ended(**changes):
    """The run, in which every rank that ended well has the last state, and every replica is down."""
    ran = run(agreed_end=True, **changes)
    assert ran.result.ok, ran.result.failures
    (final,) = ran.of("final")
    assert final[2] == ran.result.steps_committed == ran.emulation.settings.steps
    over = ran.of("over")
    assert {tuple(entry[5:7]) for entry in over} == {tuple(final[2:4])}
    assert set(ran.emulation.hub.launcher.states) == {"down"}
    return ran, {tuple(entry[2:5:2]) for entry in over}


def test_all_ranks_end_well():
    _, over = ended()
    assert over == {(replica, position) for replica in range(3) for position in range(2)}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails(seed):
    ran, over = ended(seed=seed, faults="table", mtbf_minutes=1.0, replicas=4, checkpoint_every=5)
    assert ran.emulation.settings.faults == "table" and ran.of("fault")
    assert {replica for replica, _ in over}, "somebody has the result"


def test_without_it_the_trace_ends_with_the_last_commit():
    assert run().of("final") == []
