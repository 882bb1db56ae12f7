"""Planted faults at the end of a job: what is final stays so, and who ends well has the last state."""

from __future__ import annotations

import pytest

from .log_builder import digest, good_log
from .planting import broken, heads, of, rollback_head, where


@pytest.fixture
def log():
    return good_log()


def _end(log):
    """The job is over. Returns where more may be put, a rank that has the last state, and that state."""
    at = where(log, "end")[0]
    newest = next(e for e in reversed(log) if e[0] == "applied")
    log.insert(at, ["final", log[at - 1][1], *newest[13:15]])
    return at + 1, newest[2:5], newest[13:15]


def test_a_job_that_ends(log):
    at, rank, state = _end(log)
    log.insert(at, ["over", log[at - 1][1], *rank, *state])
    assert broken(log) == set()


def test_a_rank_ends_well_with_an_older_state(log):
    at, rank, _ = _end(log)
    older = next(log[i] for i in where(log, "applied", of(*rank)))[13:15]
    log.insert(at, ["over", log[at - 1][1], *rank, *older])
    assert broken(log) == {"single_lineage"}


def test_a_rank_ends_well_though_the_job_is_not_over(log):
    at, rank, state = _end(log)
    log[at - 1] = ["over", log[at - 1][1], *rank, *state]
    assert broken(log) == {"single_lineage"}


def test_a_job_ends_with_what_is_not_the_end_of_its_chain(log):
    at, _, _ = _end(log)
    log[at - 1][3] = digest("elsewhere")
    assert broken(log) == {"single_lineage"}


def _over_after(log, head):
    """The job is over with the commit of ``head``, and goes on all the same."""
    log.insert(log.index(head) + 1, ["final", head[1], *_end_of(head)])


def _end_of(head):
    return head[7]["step_after"], head[7]["lineage_after"]


def test_something_is_committed_after_the_end(log):
    _over_after(log, heads(log)[6])
    assert broken(log) == {"single_lineage"}


def test_a_job_that_was_over_is_asked_to_go_on(log):
    head = heads(log)[6]
    log.insert(log.index(head) + 1, ["goes_on", head[1], 99])
    _over_after(log, head)
    assert broken(log) == set()


def test_what_was_final_is_rolled_back(log):
    head = rollback_head(log)
    before = [h for h in heads(log) if h[1] < head[1] and h[7] and h[7]["outcome"] == "committed"][-1]
    at = log.index(head)
    log.insert(at, ["final", head[1], *_end_of(before)])
    log.insert(at + 2, ["goes_on", head[1], 99])
    assert broken(log) == {"single_lineage"}
