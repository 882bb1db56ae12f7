"""Planted faults of exactly once, and of the gradient: each is seen, by its invariant."""

from __future__ import annotations

import pytest

from .log_builder import good_log
from .planting import broken, heads, of, pick, rollback_head, where


@pytest.fixture
def log():
    return good_log()


def _retell(log, round, change):
    """Plan and devices agree on a change of the ranges of contributor 0."""
    plan = next(e[8] for e in heads(log) if e[4] == round)
    change(plan["ranges"][0][0])
    for i in where(log, "computed", lambda e: e[5] == round and e[2:4] == plan["contributors"][0]):
        change(log[i][8][0])


# -- exactly once ----------------------------------------------------------------------------


def test_samples_are_skipped(log):
    def skip(r):
        r[1] += 4

    _retell(log, 5, skip)
    assert broken(log) == {"exactly_once"}


@pytest.mark.parametrize("changed", [[[0, 4, 4]], [[0, 0, 0]], [[99, 0, 4]], [[1, 0, 4]]])
def test_a_plan_that_never_runs_gives_out_samples_wrongly(log, changed):
    plan = heads(log)[-1][8]
    plan["ranges"][0] = changed
    assert "exactly_once" in broken(log)


def test_samples_are_trained_twice(log):
    def again(r):
        r[1] -= 4

    _retell(log, 5, again)
    assert "exactly_once" in broken(log)


def test_a_range_overlaps_the_next(log):
    def longer(r):
        r[2] += 1

    _retell(log, 5, longer)
    assert "exactly_once" in broken(log)


def test_a_device_reads_other_samples_than_planned(log):
    pick(log, "computed", of(1, 1, 1), 4)[8][0][1] += 1
    assert "exactly_once" in broken(log)


def test_a_device_reads_other_tokens_for_the_same_samples(log):
    pick(log, "computed", of(1, 1, 1), 4)[9] ^= 1
    assert {"exactly_once", "gradient"} <= broken(log)


def test_the_samples_of_a_lost_commit_read_differently_when_trained_again(log):
    t = rollback_head(log)[1]
    before = [log[n][8] for n in where(log, "computed", lambda e: e[1] < t)]
    again = where(log, "computed", lambda e: e[1] > t and e[8] in before)
    assert again
    for n in again:
        log[n][9] ^= 1
    assert "exactly_once" in broken(log)


def test_the_ledger_is_not_rewound_by_a_rollback(log):
    ledger = rollback_head(log)[8]["base_ledger"]
    ledger[0] += 4
    assert broken(log) == {"exactly_once"}


def test_a_commit_without_the_work_of_one_rank(log):
    del log[where(log, "computed", of(1, 1, 1))[4]]
    assert {"exactly_once", "gradient"} <= broken(log)


def test_a_rank_trains_a_round_twice(log):
    i = where(log, "computed", of(1, 1, 1))[4]
    log.insert(i, list(log[i]))
    assert "exactly_once" in broken(log)


def test_somebody_else_trains(log):
    entry = pick(log, "computed", of(1, 1, 0), 2)
    i = where(log, "start", of(1, 2))[0]
    stranger = list(entry)
    stranger[3], stranger[5] = 2, max(e[4] for e in heads(log[:i]))
    log.insert(where(log, "initial", of(1, 2, 0))[0] + 1, stranger)
    assert "exactly_once" in broken(log)


def test_gradients_are_reused_that_were_never_computed(log):
    reused = pick(log, "reused", of(2, 1, 1))
    del log[where(log, "computed", lambda e: of(2, 1, 1)(e) and e[5] == reused[5] - 1)[0]]
    assert broken(log) == {"exactly_once"}


def test_reused_gradients_have_changed(log):
    pick(log, "reused", of(2, 1, 1))[7][0] ^= 1
    assert {"exactly_once", "gradient"} <= broken(log)


def test_reused_gradients_are_of_other_samples(log):
    pick(log, "reused", of(2, 1, 1))[6][0][1] += 4
    assert "exactly_once" in broken(log)


# -- gradient --------------------------------------------------------------------------------


def test_one_replica_applies_another_sum(log):
    pick(log, "applied", of(2, 1, 1), 4)[9][0] ^= 1
    assert broken(log) == {"gradient"}


def test_all_replicas_apply_the_same_wrong_sum(log):
    for i in where(log, "applied", lambda e: e[5] == 4):
        log[i][9][0] += 1
    assert broken(log) == {"gradient"}


def test_silent_corruption_of_a_local_gradient(log):
    pick(log, "computed", of(1, 1, 1), 4)[10][1] ^= 1 << 40
    assert broken(log) == {"gradient"}


@pytest.mark.parametrize(("key", "place", "value"), [("divisor", 11, 13), ("lr_factor", 12, 0.9)])
def test_plan_and_ranks_agree_on_a_wrong_number(log, key, place, value):
    head = heads(log)[5]
    head[8][key] = value
    for i in where(log, "applied", lambda e: e[5] == head[4]):
        log[i][place] = value
    assert broken(log) == {"gradient"}


@pytest.mark.parametrize(("place", "value"), [(11, 13), (12, 0.9), (10, [5.0]), (10, []), (6, False)])
def test_one_rank_applies_another_number(log, place, value):
    pick(log, "applied", of(2, 1, 1), 4)[place] = value
    assert broken(log) == {"gradient"}


def test_the_first_rank_to_apply_is_not_taken_at_its_word(log):
    pick(log, "applied", of(0, 1, 0), 4)[10] = [5.0]
    assert "gradient" in broken(log)


def test_a_new_state_that_does_not_follow_from_the_update(log):
    for i in where(log, "applied", lambda e: e[5] == 4 and e[4] == 0):
        log[i][15] ^= 1
    assert "gradient" in broken(log)


def test_a_held_round_leaves_out_a_bucket(log):
    held = next(i for i in where(log, "applied", of(1, 2, 0)) if not log[i][6])
    log[held][9][1] = 0
    assert broken(log) == {"gradient"}


def test_divisor_of_replicas_is_demanded_where_configured(log):
    log[0][2]["divisor"] = "replicas"
    assert broken(log) == {"gradient"}


@pytest.mark.parametrize("scaling", ["none", "linear"])
def test_another_learning_rate_rule_is_not_accepted(log, scaling):
    log[0][2]["lr_scaling"] = scaling
    assert broken(log) == {"gradient"}


def _as_tensors(log):
    """The same run, with gradients as small tensors: two numbers a bucket."""
    log[0][2]["fidelity"] = "tensor"
    for e in log:
        if e[0] in ("computed", "reused"):
            e[-1] = [[(g >> 40) / 7.0, (g >> 44) * 1e-9] for g in e[-1]]
    rounds: dict[tuple[int, int], list] = {}
    for e in log:
        if e[0] in ("computed", "reused"):
            rounds.setdefault((e[5], e[4]), []).append(e[-1])
        elif e[0] == "applied":
            parts = rounds[(e[5], e[4])]
            e[9] = [
                [sum(column) for column in zip(*bucket, strict=True)] for bucket in zip(*parts, strict=True)
            ]
    return log


def test_tensors_are_summed_within_a_tolerance(log):
    assert broken(_as_tensors(log)) == set()


@pytest.mark.parametrize("place", [0, 1])
def test_tensors_that_are_not_the_sum(log, place):
    _as_tensors(log)
    for i in where(log, "applied", lambda e: e[5] == 4):
        log[i][9][1][place] *= 1.0001
    assert broken(log) == {"gradient"}
