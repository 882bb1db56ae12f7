"""Genesis and registration."""

from __future__ import annotations

import pytest

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.head import Fate, Status
from ftruntime.protocol.plan import Kind, lineage_root
from ftruntime.protocol.registry import genesis, register

from .builders import job, life


def test_genesis_is_a_closed_round_and_one_that_waits():
    config = job()
    head = genesis(config)
    root = lineage_root(config.job, config.initial_digest)
    assert (head.round, head.status, head.order) == (1, Status.RUNNING, (1, 1))
    assert (head.end.step, head.end.lineage, head.end.round) == (0, root, 0)
    assert head.fate(0) is Fate.CLOSED and head.fate(1) is Fate.OPEN
    assert head.on_chain(root)
    assert head.plan.kind is Kind.CATCH_UP and head.plan.contributors == head.plan.catchers == ()
    assert head.plan.base.ledger == (0,) * config.stream_count
    assert head.incarnations == ((0, ""),) * config.replicas
    assert head.job == config.digest()


def test_lineage_zero_names_the_job_and_its_initial_state():
    roots = {lineage_root(j, d) for j, d in [("a", "1"), ("a", "2"), ("b", "1"), ("a1", ""), ("a", "\x001")]}
    assert len(roots) == 5


def test_each_life_gets_the_next_incarnation_and_fences_the_one_before():
    config = job()
    head, first = register(config, genesis(config), 1, "a")
    head, second = register(config, head, 1, "b")
    assert (first, second) == (1, 2)
    assert head.current(life(1, 2)) and not head.current(life(1, 1))
    assert head.version == 3 and head.by is None
    assert head.incarnations == ((0, ""), (2, "b"), (0, ""))


def test_registration_changes_nothing_else():
    config = job()
    before = genesis(config)
    head, _ = register(config, before, 0, "a")
    assert (head.round, head.plan, head.chain, head.status) == (1, before.plan, before.chain, before.status)


def test_a_repeat_after_a_lost_answer_is_the_same_life():
    config = job()
    head, incarnation = register(config, genesis(config), 1, "a")
    again, same = register(config, head, 1, "a")
    assert again is head and same == incarnation == 1


def test_a_nonce_of_an_earlier_life_is_a_new_one():
    config = job()
    head, _ = register(config, genesis(config), 1, "a")
    head, _ = register(config, head, 1, "b")
    assert register(config, head, 1, "a")[1] == 3


def test_a_life_that_the_store_forgot_lends_its_name_to_nobody():
    """The store came back from before the second life; the third process is the third life all the same."""
    config = job()
    older, _ = register(config, genesis(config), 1, "a", attempt=0)
    assert register(config, older, 1, "c", attempt=2)[1] == 3
    ahead, _ = register(config, older, 1, "b", attempt=0)
    assert register(config, ahead, 1, "c", attempt=1)[1] == 3, "nor does the head's count go back"


def test_another_job_is_refused_and_both_are_named():
    ours, theirs = job(), job(samples_per_step=8)
    with pytest.raises(ConfigError) as caught:
        register(theirs, genesis(ours), 2, "a")
    assert str(caught.value) == (
        f"replica 2 is configured as {theirs.digest()} but the job runs as {ours.digest()}: "
        "give every replica the same configuration"
    )
