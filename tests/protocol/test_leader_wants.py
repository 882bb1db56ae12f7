"""What a leader wants of the head beside a commit: to close, to recover, a checkpoint; and its timers."""

from __future__ import annotations

import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol import store
from ftruntime.protocol.advice import FREE_RETRIES, rest
from ftruntime.protocol.effects import SetTimer
from ftruntime.protocol.head import Fate
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.record import Stance

from .builders import (
    after,
    closed,
    committed,
    everyone,
    head_at,
    head_of,
    held,
    job,
    life,
    lives,
    recovering,
    stored,
    succeeded,
    train_plan,
    word,
)
from .chair import CONFIG, HEAD, LOST, ROUND, Chair, chair

# -- closing -----------------------------------------------------------------------------------


def closes(c):
    return [x for x in c.requests(store.Read) if x.linearizable]


def test_after_the_time_to_close_any_leased_member_closes():
    c = chair("RUNNING")
    c.timer("close", ROUND - 1)
    assert closes(c) == []
    c.timer("close", ROUND)
    assert len(closes(c)) == 1
    c.answer(store.Read, store.View(HEAD, (), everyone(CONFIG)))
    (cas,) = c.requests(store.Cas)
    assert cas.head.fate(ROUND) is Fate.CLOSED


def test_a_step_that_failed_again_and_again_rests_before_it_is_tried_once_more():
    head = after(HEAD, closes=FREE_RETRIES)
    c = Chair(CONFIG, head)
    assert SetTimer("rest", ROUND, rest(CONFIG, head)) in c.timers()
    for other in everyone(CONFIG):
        c.hear(word(CONFIG, other, 2, ROUND, stance=Stance.NO))
    c.sealed(ROUND, False)
    assert c.leader.awaits("rest", ROUND) and closes(c) == []
    c.timer("rest", ROUND)
    assert not c.leader.awaits("rest", ROUND) and len(closes(c)) == 1


def test_the_roll_is_called_while_no_round_asks_for_the_ranks():
    c = chair("RUNNING")
    c.timer("renew", 0)
    assert c.asked(m.RollCall) == [], "they vote"
    c = Chair(CONFIG, head_of(CONFIG, train_plan(CONFIG, 2, lives(1, 2), (Catcher(life(0)),))), step=0)
    c.timer("renew", 0)
    (call,) = c.asked(m.RollCall)
    assert SetTimer("roll", call.order, CONFIG.timeouts.round) in c.timers()
    c.timer("renew", 0)
    assert c.asked(m.RollCall) == [], "one at a time"
    c.done(call.order)
    c.timer("roll", call.order)
    assert c.exits() == []
    c.timer("renew", 0)
    (call,) = c.asked(m.RollCall)
    c.timer("roll", call.order)
    assert [e.restart for e in c.exits()] == [True], "a rank that hangs is replaced with its replica"


def test_a_member_without_a_lease_closes_nothing():
    c = chair("RUNNING")
    c.lease(life(0), False)
    c.timer("close", ROUND)
    assert closes(c) == []


def test_a_commit_needs_no_lease():
    c = chair("RUNNING")
    c.lease(life(0), False)
    c.yes(ROUND)
    assert len(c.requests(store.Cas)) == 1


def test_who_has_everything_commits_and_does_not_close():
    c = chair("COMPLETE")
    c.timer("close", ROUND)
    assert closes(c) == []


def test_the_end_of_the_grace_lets_a_recovery_go_on_without_the_missing():
    c = chair("DROPPING")
    asks = recovering(closed(HEAD))
    c.see(asks)
    c.done()
    c.answer(store.Read, store.View(asks, (word(CONFIG, life(0), 2, asks.round),), lives(0)))
    assert c.requests(store.Cas) == [] and "not-yet" in [what for what, *_ in c.notes()]
    c.timer("grace", asks.round)
    c.answer(store.Read, store.View(asks, (word(CONFIG, life(0), 2, asks.round),), lives(0)))
    (cas,) = c.requests(store.Cas)
    assert cas.head.plan.contributors == lives(0)


# -- checkpoints -------------------------------------------------------------------------------

KEEPING = job(checkpoint_every=3)


def applied(config, replica=0, step=2):
    """The replica has applied the round on ``step``."""
    head = head_at(config, step)
    c = Chair(config, head, replica=replica)
    c.yes(head.round)
    c.answer(store.Cas, store.CasDone(True, committed(config, head)))
    c.done()
    return c


@pytest.mark.parametrize(("replica", "writes"), [(0, False), (1, True), (2, False)])
def test_every_so_many_steps_one_contributor_in_turn_writes(replica, writes):
    c = applied(KEEPING, replica)
    assert len(c.asked(m.WriteCheckpoint)) == writes
    if writes:
        assert c.asked(m.WriteCheckpoint) == [m.WriteCheckpoint(2, "step-3-L3")]


@pytest.mark.parametrize(("config", "step"), [(KEEPING, 1), (KEEPING, 3), (CONFIG, 2)])
def test_and_not_after_other_steps_or_when_none_are_wanted(config, step):
    assert all(applied(config, r, step).asked(m.WriteCheckpoint) == [] for r in range(3))


def recorded(c):
    return [x.head.checkpoints[-1] for x in c.requests(store.Cas) if x.head.checkpoints]


def test_it_goes_on_record_when_all_ranks_have_written():
    c = applied(KEEPING, 1)
    assert recorded(c) == []
    c.done(2)
    (checkpoint,) = recorded(c)
    assert (checkpoint.name, checkpoint.step, checkpoint.lineage) == ("step-3-L3", 3, "L3")
    assert checkpoint.ledger == stored(KEEPING, 3).ledger
    known = after(committed(KEEPING, head_at(KEEPING, 2)), checkpoints=(checkpoint,))
    c.answer(store.Cas, store.CasDone(True, known))
    assert c.requests() == []


def test_writing_holds_up_no_round():
    c = applied(KEEPING, 1)
    assert c.run.round == 5
    c.yes(5)
    c.see(committed(KEEPING, committed(KEEPING, head_at(KEEPING, 2))))
    assert c.state == "APPLYING"


def test_a_checkpoint_of_a_state_that_was_cut_is_forgotten():
    c = applied(KEEPING, 1)
    head = committed(KEEPING, head_at(KEEPING, 2))
    cut = recovering(head, chain=head.chain[:-1])
    c.see(cut)
    c.done()
    c.done(2)
    assert recorded(c) == []
    c.see(
        after(cut, round=cut.round + 1, status=HEAD.status, plan=train_plan(KEEPING, 2, round=cut.round + 1))
    )
    assert c.leader._saved is None and recorded(c) == []


# -- timers that still mean something ----------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "name", "tag", "awaited"),
    [
        ("RUNNING", "close", ROUND, True),
        ("RUNNING", "close", ROUND - 1, False),
        ("RUNNING", "grace", ROUND, True),
        ("RUNNING", "round", ROUND, True),
        ("RUNNING", "round", ROUND + 1, False),
        ("COMPLETE", "round", ROUND, False),
        ("SEALING", "silent", ROUND, True),
        ("RUNNING", "silent", ROUND, False),
        ("KEPT", "silent", ROUND, False),
        ("RUNNING", "late", ROUND, True),
        ("RUNNING", "late", ROUND + 1, False),
        ("APPLYING", "order", 1, True),
        ("APPLYING", "order", 2, False),
        ("RUNNING", "order", 1, False),
        ("RUNNING", "renew", 0, True),
        ("RUNNING", "poll", 0, True),
        ("RUNNING", "store", 999, False),
    ],
)
def test_which_timers_still_mean_something(state, name, tag, awaited):
    assert chair(state).leader.awaits(name, tag) is awaited


def test_a_timer_that_fired_is_awaited_no_more():
    c = chair()
    c.timer("close", ROUND)
    assert not c.leader.awaits("close", ROUND)


def test_who_is_gone_awaits_nothing_and_does_nothing():
    c = chair("COMPLETE")
    c.see(succeeded(committed(CONFIG, HEAD), 0))
    assert [e.restart for e in c.exits()] == [False]
    assert c.down == [] and not c.leader.awaits("renew", 0) and not c.leader.awaits("poll", 0)
    c.see(closed(committed(CONFIG, HEAD)))
    c.yes(ROUND)
    assert c.out == [] and c.down == []


def test_a_copy_is_independent():
    c = chair("RUNNING")
    copy = c.leader.clone()
    c.yes(ROUND)
    c.see(committed(CONFIG, HEAD))
    c.done()
    assert (copy.run.round, copy.run.state.name) == (ROUND, "RUNNING")
    assert copy.held == held(CONFIG, 2) and copy.session.client.head == HEAD
    assert LOST.accused == (2,)
