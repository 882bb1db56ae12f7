"""What a head says of a round, and of the heads that it came from."""

from __future__ import annotations

import msgspec
import pytest

from ftruntime.protocol.head import TRAIL, Fate, Status, descends, successor
from ftruntime.protocol.registry import genesis

from .builders import closed, committed, head_at, job

CONFIG = job()
HEAD = head_at(CONFIG, 3)


def test_the_open_plan_is_open_and_no_other_of_that_round_is() -> None:
    """A store that came back older opened the round again, with another plan."""
    other = msgspec.structs.replace(HEAD.plan, lineage_after="another")
    assert HEAD.fate_of(HEAD.plan) is Fate.OPEN
    assert HEAD.fate_of(other) is Fate.CLOSED


@pytest.mark.parametrize(
    ("later", "fate"), [(committed(CONFIG, HEAD), Fate.COMMITTED), (closed(HEAD), Fate.CLOSED)]
)
def test_an_ended_plan_is_what_the_chain_says(later, fate) -> None:
    assert later.fate_of(HEAD.plan) is fate


def test_a_round_that_another_plan_committed_is_closed_for_this_one() -> None:
    other = msgspec.structs.replace(HEAD.plan, lineage_after="another")
    assert committed(CONFIG, HEAD).fate_of(other) is Fate.CLOSED


def test_a_plan_of_a_round_beyond_this_head_is_closed() -> None:
    """It was made on a branch that is gone; no head that follows will open just this one."""
    assert HEAD.fate_of(msgspec.structs.replace(HEAD.plan, round=HEAD.round + 5)) is Fate.CLOSED


def test_a_head_comes_from_those_before_it_and_from_no_other() -> None:
    first = genesis(CONFIG)
    ours, theirs = successor(first, closes=1), successor(first, closes=2)
    assert descends(successor(ours), ours) and descends(ours, first) and descends(ours, ours)
    assert not descends(successor(theirs), ours) and not descends(theirs, ours)


def test_what_is_further_back_than_the_trail_is_believed() -> None:
    first = head = genesis(CONFIG)
    for _ in range(TRAIL):
        head = successor(head)
    assert head.trail is not None and len(head.trail) == TRAIL
    assert descends(successor(head), first)


def test_a_later_epoch_stands_for_all() -> None:
    first = genesis(CONFIG)
    rebuilt = successor(successor(first, closes=2), epoch=2, status=Status.RECOVERING)
    assert descends(rebuilt, successor(first, closes=1))


def test_a_job_without_trails_tells_no_branches_apart() -> None:
    first = genesis(job(trail=False))
    assert first.trail is None and successor(first).trail is None
    assert descends(successor(first, closes=2), successor(first, closes=1))
