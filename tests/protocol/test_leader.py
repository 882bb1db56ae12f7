"""A contributor's round, driven through the leader's public methods: each row of ``run.py``'s table."""

from __future__ import annotations

import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol import store
from ftruntime.protocol.effects import Exit, SetTimer
from ftruntime.protocol.head import Fate
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.record import Stance
from ftruntime.protocol.task import task_of

from .builders import (
    after,
    closed,
    committed,
    head_of,
    held,
    job,
    life,
    lives,
    no,
    recovering,
    target,
    train_plan,
    word,
)
from .chair import APPLY, CONFIG, DROP, HEAD, ROUND, WITHOUT_ORDER, Chair, chair

# -- begin -------------------------------------------------------------------------------------


def test_the_plan_goes_down_to_the_ranks_and_the_run_begins():
    c = chair()
    down, puts = c.first
    assert down == [m.Enlist(life(0)), m.Begin(HEAD.plan, task_of(HEAD.plan, life(0)))]
    assert c.run.plan == HEAD.plan
    assert len(puts) == 1, "it has said nothing before"


def test_a_round_begins_once():
    c = chair()
    c.see(after(HEAD))
    c.hear(word(CONFIG, life(1), 2, ROUND))
    assert c.down == []


def test_durations_count_from_when_the_round_is_first_seen():
    c = Chair(CONFIG, HEAD)
    c.see(closed(HEAD, durations=HEAD.plan.durations.__class__(480.0)))
    c.done()
    assert SetTimer("round", ROUND + 1, 240.0) in c.out, "a replica gives up in proportion"
    c.see(recovering(closed(HEAD)))
    assert SetTimer("grace", ROUND + 2, CONFIG.timeouts.rollback_grace) in c.out
    assert not [t for t in c.timers() if t.name == "close"]


def test_the_first_round_waits_for_its_grace():
    head = after(head_of(CONFIG, train_plan(CONFIG, 0, round=1)))
    c = Chair(CONFIG, head)
    assert SetTimer("close", 1, CONFIG.timeouts.start_grace) in c.out


# -- RUNNING -----------------------------------------------------------------------------------


def test_all_yes_asks_the_store_to_commit():
    c = chair()
    c.yes(ROUND)
    assert c.state == "COMPLETE" and ("voted", ROUND, "yes") in c.notes()
    (cas,) = c.requests(store.Cas)
    assert cas.head.fate(ROUND) is Fate.COMMITTED and cas.head.by == life(0)
    assert c.down == [], "only the head decides"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (lambda c: c.no(ROUND), "reset"),
        (lambda c: c.timer("round", ROUND), "the round has not ended in time"),
        (lambda c: c.hear(no(CONFIG, life(1), 2, ROUND)), "1.1 said no"),
    ],
)
def test_a_report_that_it_may_fail_seals_the_round_at_every_rank(event, reason):
    c = chair()
    event(c)
    assert c.state == "SEALING" and c.asked(m.Seal) == c.down == [m.Seal(ROUND)]
    assert ("sealing", ROUND, reason) in c.notes()
    assert SetTimer("silent", ROUND, CONFIG.timeouts.seal) in c.timers()
    assert c.run.report.reason == reason
    assert c.puts() == [], "a report is no decision: nothing is said before it is known what is here"


@pytest.mark.parametrize(
    "event",
    [
        lambda c: c.no(ROUND - 1),
        lambda c: c.no(ROUND, None),
        lambda c: c.timer("round", ROUND - 1),
        lambda c: c.timer("silent", ROUND),
        lambda c: c.timer("late", ROUND + 1),
        lambda c: c.hear(no(CONFIG, life(1), 2, ROUND - 1)),
        lambda c: c.hear(no(CONFIG, life(0), 2, ROUND)),
        lambda c: c.hear(no(CONFIG, life(1, 9), 2, ROUND)),
        lambda c: c.sealed(ROUND, False),
    ],
)
def test_what_is_about_another_round_or_member_changes_nothing(event):
    c = chair()
    event(c)
    assert c.state == "RUNNING" and c.down == []


def test_a_member_that_sends_zeros_counts_as_one_of_the_ring():
    zeros = job(catch_up={"window": 4, "mode": "zeros"})
    plan = train_plan(zeros, 2, lives(0, 1), (Catcher(life(2)),))
    c = Chair(zeros, head_of(zeros, plan))
    c.hear(no(zeros, life(2), 2, ROUND))
    assert c.state == "SEALING"


def test_a_learner_that_says_no_fails_nobody():
    c = Chair(CONFIG, head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 1), (Catcher(life(2)),))))
    c.hear(no(CONFIG, life(2), 2, ROUND))
    assert c.state == "RUNNING"


# -- SEALING -----------------------------------------------------------------------------------


def test_a_replica_that_has_everything_keeps_it_and_says_no():
    c = chair("SEALING")
    c.sealed(ROUND, True)
    assert c.state == "KEPT" and c.down == [] and ("sealed", ROUND, "kept") in c.notes()
    (record,) = c.puts()
    assert (record.stance, record.accuses, record.as_of) == (Stance.NO, (2,), ROUND)


def test_a_replica_that_lacks_a_bucket_drops_and_its_no_is_final():
    c = chair("SEALING")
    c.sealed(ROUND, False)
    assert c.state == "DROPPED" and c.down == [m.Outcome(1, ROUND, DROP)]
    (record,) = c.puts()
    assert (record.stance, record.accuses, record.as_of, record.held.step) == (Stance.NO, (2,), ROUND, 2)
    c.done()
    c.yes(ROUND)
    assert c.state == "DROPPED" and c.requests(store.Cas) == []


def test_a_yes_while_the_seal_is_under_way_is_not_undone_by_it():
    c = chair("SEALING")
    c.yes(ROUND)
    assert c.state == "SEALING" and c.requests(store.Cas) == []
    c.sealed(ROUND, True)
    assert c.state == "COMPLETE" and len(c.requests(store.Cas)) == 1 and c.puts() == []


def test_a_second_no_seals_nothing_twice():
    c = chair("SEALING")
    c.no(ROUND)
    c.timer("round", ROUND)
    c.hear(no(CONFIG, life(1), 2, ROUND))
    assert c.down == [] and c.timers() == []


def test_a_rank_that_does_not_answer_the_seal_means_the_replica_is_broken():
    c = chair("SEALING")
    c.timer("silent", ROUND - 1)
    assert c.exits() == []
    c.timer("silent", ROUND)
    assert c.exits() == [Exit(f"a rank did not answer the seal of round {ROUND}", True)]


# -- KEPT --------------------------------------------------------------------------------------


def test_a_later_yes_overwrites_the_no():
    c = chair("KEPT")
    c.yes(ROUND)
    assert c.state == "COMPLETE"
    (record,) = c.puts()
    assert (record.stance, record.accuses) == (Stance.YES, ())
    assert len(c.requests(store.Cas)) == 1


def test_a_no_after_all_buckets_are_kept_changes_nothing():
    c = chair("KEPT")
    c.no(ROUND)
    assert c.state == "KEPT" and c.down == []


# -- the head decides --------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "scalars"), [("COMPLETE", (7.0,)), ("KEPT", (5.0,))])
def test_what_is_whole_is_applied_when_the_head_shows_the_round_committed(state, scalars):
    """Schedules 4 and 5: whoever committed it, and whatever this replica said."""
    c = chair(state)
    c.see(committed(CONFIG, HEAD))
    assert c.state == "APPLYING" and c.down == [m.Outcome(1, ROUND, APPLY, scalars)]
    assert c.leader.held == held(CONFIG, 2), "only when every rank has"
    c.done()
    assert c.leader.held == held(CONFIG, 3) and ("apply", ROUND, "step 3") in c.notes()
    assert [type(x) for x in c.down] == [m.Begin], "and only then the next plan"
    assert c.run.round == ROUND + 1


@pytest.mark.parametrize("state", WITHOUT_ORDER)
@pytest.mark.parametrize("after_it", [closed(HEAD), recovering(HEAD)])
def test_what_the_head_shows_closed_is_dropped(state, after_it):
    c = chair(state)
    c.see(after_it)
    assert c.state == "DROPPING" and c.down == [m.Outcome(1, ROUND, DROP)]
    c.done()
    assert c.leader.held == held(CONFIG, 2)
    begun = [type(x) for x in c.down]
    assert begun == ([m.Begin] if after_it.status.name == "RUNNING" else [])


def test_what_was_dropped_is_never_applied():
    """Schedule 17: it is a catcher, whatever the head says afterwards."""
    c = chair("DROPPED")
    c.done()
    c.see(committed(CONFIG, HEAD, train_plan(CONFIG, 3, lives(1, 2))))
    assert c.run is None and c.asked(m.Outcome) == []
    assert [type(x) for x in c.down] == [m.Begin]


def test_the_seal_is_answered_before_a_commit_is_carried_out():
    c = chair("SEALING")
    c.see(committed(CONFIG, HEAD))
    assert c.state == "SEALING" and c.down == []
    c.sealed(ROUND, True)
    assert c.state == "APPLYING" and c.down == [m.Outcome(1, ROUND, APPLY, (5.0,))]


def test_a_sealed_rank_without_a_bucket_drops_what_others_committed():
    c = chair("SEALING")
    c.see(committed(CONFIG, HEAD))
    c.sealed(ROUND, False)
    assert c.down == [m.Outcome(1, ROUND, DROP)]
    c.done()
    assert c.run is None and c.leader.held == held(CONFIG, 2)


def test_committed_elsewhere_it_waits_for_its_last_buckets():
    """A neighbour serves them on."""
    c = chair("RUNNING")
    c.see(committed(CONFIG, HEAD))
    assert c.state == "RUNNING" and c.down == []
    assert SetTimer("late", ROUND, 2 * CONFIG.timeouts.chunk) in c.timers()
    c.see(after(committed(CONFIG, HEAD)))
    assert c.timers() == [], "once"
    c.yes(ROUND)
    assert c.state == "APPLYING" and c.requests(store.Cas) == []


def test_the_no_of_a_peer_to_a_round_that_was_committed_hurries_nobody():
    c = chair("RUNNING")
    c.see(committed(CONFIG, HEAD))
    c.hear(no(CONFIG, life(1), 2, ROUND))
    assert c.state == "RUNNING" and c.down == []


def test_and_not_for_ever():
    c = chair("RUNNING")
    c.see(committed(CONFIG, HEAD))
    c.timer("late", ROUND)
    assert c.state == "SEALING" and c.down == [m.Seal(ROUND)]


def test_a_recovering_head_asks_at_once_what_is_here():
    """Schedule 14: what it committed is carried out before anything is promised."""
    c = chair("RUNNING")
    c.see(recovering(committed(CONFIG, HEAD)))
    assert c.state == "SEALING"
    assert c.puts()[-1].as_of == ROUND
    c.sealed(ROUND, True)
    assert c.state == "APPLYING" and c.puts() == []
    c.done()
    assert c.said() == (ROUND + 2, "RUNNING", 3)


def test_a_jump_over_several_heads_needs_no_case_of_its_own():
    c = chair("COMPLETE")
    far = committed(CONFIG, committed(CONFIG, HEAD))
    c.see(far)
    assert c.down == [m.Outcome(1, ROUND, APPLY, (7.0,))]
    c.done()
    assert c.leader.held == held(CONFIG, 3)
    assert c.run is None, "it does not hold the base of the open round"
    assert c.puts()[-1].stance is Stance.NO


# -- one order at a time -----------------------------------------------------------------------


def test_the_next_order_waits_until_every_rank_has_carried_out_the_last():
    c = chair("APPLYING")
    c.see(closed(committed(CONFIG, HEAD)))
    c.see(recovering(closed(committed(CONFIG, HEAD))))
    assert c.down == []
    c.done(99)
    assert c.down == [] and c.state == "APPLYING"
    c.done()
    assert c.down == [] and c.leader.held.step == 3
    c.done()
    assert c.down == [], "an order is done once"


def test_orders_are_numbered():
    c = chair("DROPPING")
    c.done()
    c.see(closed(closed(HEAD)))
    assert c.down == [m.Outcome(2, ROUND + 1, DROP)]


def test_a_rank_that_does_not_carry_out_an_order_means_the_replica_is_broken():
    c = chair("APPLYING")
    assert SetTimer("order", 1, CONFIG.timeouts.round) in c.timers()
    c.timer("order", 2)
    assert c.exits() == []
    c.timer("order", 1)
    assert c.exits() == [Exit("a rank did not carry out order 1 (apply)", True)]
    c.done()
    c.timer("order", 1)
    assert c.exits() == []


# -- refused -----------------------------------------------------------------------------------


def test_a_wrong_presumption_is_refused_and_costs_one_round():
    """Schedule 7: a contributor whose state is not the base contributes nothing and says so."""
    c = Chair(CONFIG, HEAD, step=1)
    down, puts = c.first
    assert down == [m.Enlist(life(0))] and c.run is None
    assert [(r.stance, r.round, r.held.step) for r in puts] == [(Stance.NO, ROUND, 1)]
    assert ("refused", ROUND, "holds step 1, not step 2") in c.notes()
    c.see(after(HEAD))
    assert c.down == []
    catcher = Catcher(life(0), target(CONFIG, 2), lives(1), life(1))
    c.see(closed(HEAD, contributors=lives(1, 2), catchers=(catcher,)))
    assert [type(x) for x in c.down] == [m.Begin, m.StartFetch]


def test_a_zombie_with_the_right_step_and_the_wrong_lineage_is_refused():
    """Schedule 11."""
    wrong = held(CONFIG, 2).__class__(2, "another", held(CONFIG, 2).ledger)
    c = Chair(CONFIG, HEAD, step=0)
    c.leader.held = wrong
    c.see(closed(HEAD))
    assert c.asked(m.Begin) == [] and c.said()[1] == "NO"
