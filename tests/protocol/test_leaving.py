"""Taken out by an operator: a replica goes between two steps, and never while others depend on it."""

from __future__ import annotations

from ftruntime.protocol import messages as m
from ftruntime.protocol.leader import TAKEN_OUT, Leader
from ftruntime.protocol.plan import Catcher, Kind
from ftruntime.protocol.planner import make_plan

from .builders import (
    base,
    catch_up_plan,
    committed,
    head_of,
    job,
    life,
    lives,
    nonce,
    recovering,
    said,
    train_plan,
    word,
)
from .chair import APPLY, CONFIG, HEAD, ROUND, Chair, chair

FIVE = job(replicas=5, min_replicas=3)
STEP = 6


def planned(leaving, holders=(0, 1, 2, 3, 4)):
    head = head_of(FIVE, train_plan(FIVE, STEP, lives(*holders)))
    records = [word(FIVE, life(r), STEP, STEP + 1, leaving=r in leaving) for r in range(5)]
    return make_plan(FIVE, head, base(FIVE, STEP), lives(*holders), said(*records))


def test_who_is_leaving_is_planned_for_no_more():
    plan = planned({3})
    assert (plan.kind, plan.contributors) == (Kind.TRAIN, lives(0, 1, 2, 4))
    assert plan.catchers == (), "nobody taps who goes"


def test_who_is_needed_to_train_at_all_stays_for_now():
    plan = planned({2, 3, 4})
    assert plan.contributors == lives(0, 1, 2, 3, 4)


def leave(c):
    c._happens(c.leader.leave)


def test_a_contributor_says_so_and_finishes_its_round():
    c = chair()
    leave(c)
    (record,) = c.puts()
    assert record.leaving and not c.exits()
    c.yes(ROUND)
    assert not c.exits()
    without = train_plan(CONFIG, HEAD.plan.base.step + 1, lives(1, 2))
    c.see(committed(CONFIG, HEAD, without))
    assert c.asked(m.Outcome)[0].verdict is APPLY and not c.exits(), "what it voted for it applies"
    c.done()
    assert [(e.reason, e.restart) for e in c.exits()] == [(TAKEN_OUT, True)]


def test_one_that_the_next_plan_still_counts_on_trains_on():
    c = chair()
    leave(c)
    c.yes(ROUND)
    c.see(committed(CONFIG, HEAD))
    c.done()
    assert not c.exits() and c.state == "RUNNING"


def test_whoever_holds_the_base_of_a_round_of_catching_up_stays():
    behind = (Catcher(life(1), None, ()),)
    c = Chair(CONFIG, head_of(CONFIG, catch_up_plan(CONFIG, 3, behind)))
    leave(c)
    assert not c.exits()
    late = Chair(CONFIG, head_of(CONFIG, catch_up_plan(CONFIG, 3, behind)), step=1)
    leave(late)
    assert late.exits(), "of one that lags nobody wants anything"


def test_nobody_goes_while_a_rollback_counts_who_is_there():
    c = Chair(CONFIG, recovering(HEAD))
    leave(c)
    assert not c.exits()


def test_one_that_is_not_registered_yet_goes_at_once():
    leader, out = Leader(CONFIG, 0, nonce(0), 0), []
    leader.started(0, out)
    leader.leave(out)
    assert any(getattr(effect, "reason", "") == TAKEN_OUT for effect in out)
