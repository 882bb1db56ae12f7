"""Planted faults of agreement, atomicity, single lineage and equality: each is seen, by its invariant."""

from __future__ import annotations

import pytest

from .log_builder import digest, good_log
from .planting import broken, heads, of, pick, rollback_head, where


@pytest.fixture
def log():
    return good_log()


# -- agreement -------------------------------------------------------------------------------


def test_one_rank_drops_what_the_others_apply(log):
    entry = pick(log, "applied", of(2, 1, 1), -1)
    entry[:] = ["dropped", *entry[1:6]]
    assert broken(log) == {"agreement"}


def test_a_rank_drops_what_it_has_applied(log):
    i = where(log, "applied", of(2, 1, 0))[-1]
    log.insert(i + 1, ["dropped", *log[i][1:6]])
    assert broken(log) == {"agreement"}


def test_a_rank_applies_what_it_has_dropped(log):
    i = where(log, "applied", of(1, 1, 0))[3]
    log.insert(i, ["dropped", *log[i][1:6]])
    assert broken(log) == {"agreement"}


# -- atomicity -------------------------------------------------------------------------------


def test_a_rank_never_said_what_it_holds(log):
    del log[where(log, "initial", of(1, 1, 1))[0]]
    assert broken(log) == {"atomicity"}


def test_a_rank_misses_an_update(log):
    del log[where(log, "applied", of(2, 1, 1))[3]]
    assert "atomicity" in broken(log)


def test_a_rank_installs_another_state_than_its_replica(log):
    older = pick(log, "applied", of(0, 1, 1), 5)
    pick(log, "installed", of(1, 2, 1))[5:8] = older[13:16]
    assert "atomicity" in broken(log)


def test_one_rank_is_ahead_of_a_step_that_all_must_vote_for(log):
    """Rank 1 of 2.1 carries out round r only after rank 0 has carried out r+1."""
    first = where(log, "applied", of(2, 1, 1))[2]
    behind = log.pop(first)
    log.insert(where(log, "applied", of(2, 1, 0))[3] + 1, behind)
    assert "atomicity" in broken(log)


def test_ranks_of_a_replica_compute_on_two_states(log):
    entry = pick(log, "computed", of(2, 1, 1), 4)
    entry[6] = pick(log, "computed", of(2, 1, 1), 3)[6]
    assert {"atomicity", "single_lineage"} <= broken(log)


# -- single lineage ----------------------------------------------------------------------------


def test_a_round_is_applied_before_it_is_committed(log):
    i = where(log, "applied", of(2, 1, 0))[3]
    head = max(n for n in where(log, "head") if n < i)
    log.insert(head, log.pop(i))
    assert broken(log) == {"single_lineage"}


def test_a_head_goes_back(log):
    heads(log)[5][2] = heads(log)[4][2]
    assert broken(log) == {"single_lineage"}


def test_a_step_is_committed_twice(log):
    heads(log)[6][7]["step_after"] -= 1
    assert "single_lineage" in broken(log)


def test_a_lineage_comes_twice(log):
    heads(log)[6][7]["lineage_after"] = heads(log)[4][7]["lineage_after"]
    assert "single_lineage" in broken(log)


def test_a_plan_builds_on_an_older_state(log):
    older, plan = heads(log)[5][8], heads(log)[6][8]
    for key in ("base_step", "base_lineage", "base_ledger"):
        plan[key] = older[key]
    assert "single_lineage" in broken(log)


def test_a_round_that_was_not_open_is_committed(log):
    heads(log)[6][7]["round"] -= 1
    assert "single_lineage" in broken(log)


def test_the_chain_is_cut_in_silence(log):
    rollback_head(log)[9] = None
    assert "single_lineage" in broken(log)


def test_a_rollback_to_a_state_off_the_chain(log):
    rollback_head(log)[9]["to_lineage"] = digest("elsewhere")
    assert "single_lineage" in broken(log)


def test_a_state_that_nobody_committed_is_installed(log):
    pick(log, "installed")[6] = digest("elsewhere")
    assert "single_lineage" in broken(log)


def test_a_closed_round_is_applied(log):
    closed = next(e for e in heads(log) if e[7] and e[7]["outcome"] == "closed")
    i = where(log, "dropped", lambda e: e[5] == closed[7]["round"])[0]
    model = pick(log, "applied", of(*log[i][2:4], 0), 8)
    log[i] = ["applied", *log[i][1:6], *model[6:]]
    assert "single_lineage" in broken(log)


def test_a_checkpoint_of_no_committed_state(log):
    pick(log, "checkpoint")[3:5] = [7, digest("elsewhere")]
    assert broken(log) == {"single_lineage"}


def test_the_end_finds_a_replica_on_a_state_of_its_own(log):
    log[-1][2][0][3] = digest("elsewhere")
    assert broken(log) == {"single_lineage"}


# -- equality ------------------------------------------------------------------------------------


def test_a_replica_starts_from_other_bits(log):
    pick(log, "initial", of(1, 1, 1))[7] ^= 1
    assert broken(log) == {"equality"}


def test_all_replicas_start_from_wrong_bits(log):
    for i in where(log, "initial"):
        log[i][7] ^= 1
    assert broken(log) == {"equality"}


def test_a_checkpoint_has_other_bits(log):
    pick(log, "shard", of(0, 1, 1))[8] ^= 1
    assert broken(log) == {"equality"}


def test_a_checkpoint_lacks_a_shard(log):
    log.remove(pick(log, "shard", of(0, 1, 1)))
    assert broken(log) == {"equality"}


def test_fetched_bits_are_not_the_donors(log):
    pick(log, "installed", of(1, 2, 0))[7] ^= 1
    assert broken(log) == {"equality"}


def test_a_shard_rots_between_two_steps(log):
    pick(log, "applied", of(2, 1, 1), 4)[8] ^= 1
    assert "equality" in broken(log)
