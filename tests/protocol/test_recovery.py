"""``recover``, checkpoints on record, and the loss of the store."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.advance import Next, NotYet, Settled, advance
from ftruntime.protocol.head import Fate, Rollback, Status
from ftruntime.protocol.plan import Base, Kind
from ftruntime.protocol.record import Held, Stance
from ftruntime.protocol.recovery import rebuild, record_checkpoint, recover, suspend

from .builders import (
    after,
    base,
    closed,
    committed,
    everyone,
    head_at,
    job,
    life,
    lives,
    name,
    recovering,
    said,
    stored,
    succeeded,
    target,
    word,
)

CONFIG = job()
ALL = everyone(CONFIG)
HEAD = recovering(head_at(CONFIG, 4), by=life(1))  # round 7 asks for promises; the chain ends at step 4
ROUND = HEAD.round


def promise(member, step, **changes):
    return word(CONFIG, member, step, ROUND, **changes)


def off_chain(member, step, lineage="cut off"):
    return promise(member, step, held=Held(step, lineage, (0,) * CONFIG.stream_count))


def recovered(*records, leased=None, head=HEAD, grace_over=True, config=CONFIG):
    result = recover(config, head, ROUND, records[0].member, said(*records, leased=leased), grace_over)
    assert isinstance(result, Next), result
    return result.head


# -- promises ------------------------------------------------------------------------------------


def test_every_leased_member_must_have_promised():
    quiet = recover(CONFIG, HEAD, ROUND, life(0), said(promise(life(0), 4), leased=ALL), True)
    assert quiet == NotYet(f"1.1 has not promised in round {ROUND}")
    early = [promise(life(0), 4), promise(life(1), 4, as_of=ROUND - 1), promise(life(2), 4)]
    assert recover(CONFIG, HEAD, ROUND, life(0), said(*early), True) == quiet


def test_a_promise_of_a_member_without_a_lease_is_not_asked_for_and_does_not_count():
    head = recovered(promise(life(0), 3), promise(life(1), 4), leased=lives(0))
    assert head.end.step == 3 and head.plan.contributors == lives(0)


def test_a_life_that_was_succeeded_is_not_asked_for():
    """Schedule 18: a zombie keeps no recovery from ending."""
    head = succeeded(HEAD, 1)
    records = [promise(life(0), 4), promise(life(1), 4, as_of=0), promise(life(1, 2), 0)]
    new = recovered(*records, head=head)
    assert life(1) not in new.plan.contributors
    assert new.plan.catcher(life(1, 2)).fetch == target(CONFIG, 4)


def test_it_waits_for_all_replicas_until_its_grace_is_over():
    two = said(promise(life(0), 4), promise(life(2), 4))
    waits = recover(CONFIG, HEAD, ROUND, life(0), two, False)
    assert waits == NotYet("2 of 3 replicas have promised; waiting for the rest")
    assert isinstance(recover(CONFIG, HEAD, ROUND, life(0), two, True), Next)
    all_there = said(*(promise(m, 4) for m in ALL))
    assert isinstance(recover(CONFIG, HEAD, ROUND, life(0), all_there, False), Next)


def test_somebody_must_be_there():
    assert recover(CONFIG, HEAD, ROUND, life(0), said(), True) == NotYet("nobody is there")


@pytest.mark.parametrize(
    ("head", "round", "answer"),
    [
        (closed(HEAD, round=ROUND + 1), ROUND, Settled(Fate.CLOSED)),
        (after(HEAD, status=Status.RUNNING), ROUND, Settled(Fate.OPEN)),
        (recovering(HEAD), ROUND, Settled(Fate.CLOSED)),
        (succeeded(HEAD, 0), ROUND, NotYet("0.1 was succeeded by a later life")),
    ],
    ids=["over", "not recovering", "recovering anew", "succeeded"],
)
def test_who_comes_too_late_is_told_so(head, round, answer):
    assert recover(CONFIG, head, round, life(0), said(promise(life(0), 4)), True) == answer


# -- targets -------------------------------------------------------------------------------------

# (steps held by replicas 0.., checkpoints on record, where the job goes on, from what)
TARGETS = [
    ((4, 4, 4), (), 4, "live"),
    ((4, 3, 0), (), 4, "live"),
    ((3, 3, 2), (), 3, "live"),
    ((1, 0, 0), (2,), 2, "step-2"),
    ((2, 0, 0), (2,), 2, "live"),  # a live state before a stored one
    ((0, 0, 0), (2, 3), 3, "step-3"),
    ((0, 0, 0), (), 0, "live"),
    ((None, None, None), (2,), 2, "step-2"),
    ((None, None, None), (), 0, "initial"),
    ((None, 1, None), (), 1, "live"),
]


@pytest.mark.parametrize(("steps", "checkpoints", "step", "source"), TARGETS)
def test_the_newest_target_on_the_chain_wins(steps, checkpoints, step, source):
    """Replicas with None hold a branch that was cut: nine steps, and never a target."""
    records = [
        off_chain(life(r), 9) if held is None else promise(life(r), held) for r, held in enumerate(steps)
    ]
    head = after(HEAD, checkpoints=tuple(stored(CONFIG, s) for s in checkpoints))
    new = recovered(*records, head=head)
    assert new.plan.base == base(CONFIG, step)
    assert (new.status, new.round, new.version) == (Status.RUNNING, ROUND + 1, head.version + 1)
    assert [c.step for c in new.chain] == list(range(step + 1))
    assert (new.plan.round, new.plan.base.lineage) == (new.round, new.end.lineage)
    holders = tuple(life(r) for r, held in enumerate(steps) if held == step)
    assert new.plan.contributors == holders
    assert new.plan.restore == ("" if holders else source)
    if step < 4:
        assert new.rollback == Rollback(new.round, 4, step, name(CONFIG, step), source)
    else:
        assert new.rollback is None, "nothing was cut"


def test_a_checkpoint_of_a_branch_that_was_cut_is_no_target():
    wrong = msgspec.structs.replace(stored(CONFIG, 3), lineage="cut off")
    assert recovered(promise(life(0), 1), head=after(HEAD, checkpoints=(wrong,))).end.step == 1


def test_a_checkpoint_that_a_live_member_could_not_read_is_no_target():
    head = after(HEAD, checkpoints=(stored(CONFIG, 2), stored(CONFIG, 3)))
    broken = promise(life(0), 0, unreadable=("step-3",))
    assert recovered(broken, head=head).plan.restore == "step-2"
    gone = recovered(promise(life(1), 0), broken, leased=lives(1), head=head)
    assert gone.plan.restore == "step-3", "the word of a member that has gone counts no more"


def test_a_cut_deletes_later_checkpoints_and_counts_anew():
    wrong = msgspec.structs.replace(stored(CONFIG, 3), lineage="cut off")
    head = after(HEAD, checkpoints=(stored(CONFIG, 1), wrong), closes=4, fruitless=1)
    new = recovered(promise(life(0), 2), head=head)
    assert [c.step for c in new.checkpoints] == [1]
    assert (new.closes, new.fruitless, new.by) == (0, 0, life(0))


def test_without_a_cut_the_last_rollback_stays_on_record():
    known = Rollback(3, 2, 1, name(CONFIG, 1), "live")
    assert recovered(promise(life(0), 4), head=after(HEAD, rollback=known)).rollback == known


def test_the_rounds_of_steps_that_were_cut_are_closed_now():
    new = recovered(promise(life(0), 2))
    assert [new.fate(r) for r in (2, 3, 4, 5)] == [Fate.COMMITTED] * 2 + [Fate.CLOSED] * 2


def test_a_cut_step_is_trained_again_from_the_cursors_of_the_survivors():
    """Schedule 12: the cursors come from the state that survives."""
    new = recovered(promise(life(0), 2), promise(life(1), 1))
    assert new.plan.base.ledger == base(CONFIG, 2).ledger
    assert all(r.start == new.plan.base.ledger[r.stream] for own in new.plan.ranges for r in own)


def test_all_replicas_lost_means_everyone_restores_the_checkpoint():
    head = after(HEAD, checkpoints=(stored(CONFIG, 3),))
    new = recovered(promise(life(0), 0), promise(life(1), 0), head=head)
    assert new.plan.kind is Kind.CATCH_UP and new.plan.restore == "step-3"
    assert all(c.fetch == target(CONFIG, 3) and c.donors == () for c in new.plan.catchers)
    assert "held by step-3" in new.plan.reason


def test_a_checkpoint_far_back_is_still_a_target():
    """Its commit has stayed on the chain when those around it were forgotten."""
    long = head_at(CONFIG, 40, checkpoints=(stored(CONFIG, 4),))
    step = advance(CONFIG, long, long.round, Fate.COMMITTED, life(0), said(leased=ALL))
    asks = recovering(step.head)
    lost = said(word(CONFIG, life(0), 0, asks.round))
    new = recover(CONFIG, asks, asks.round, life(0), lost, True).head
    assert new.plan.base == base(CONFIG, 4) and new.plan.restore == "step-4"


def test_too_few_holders_hand_the_state_on_first():
    """Schedule 13: no plan would mean no catch-up, so never enough again."""
    config = job(min_replicas=2)
    head = recovering(head_at(config, 4))
    records = [word(config, life(0), 4, head.round), word(config, life(1), 2, head.round)]
    new = recover(config, head, head.round, life(0), said(*records), True).head
    assert new.plan.kind is Kind.CATCH_UP
    assert new.plan.catcher(life(1)).fetch == target(config, 4)
    assert new.plan.catcher(life(1)).donors == lives(0)


# -- holders that no peer reaches ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fruitless", "min_replicas", "accusers", "step"),
    [
        (2, 2, (1, 2), 3),  # back to what two that reach each other hold
        (1, 2, (1, 2), 4),  # not tried for long enough
        (2, 2, (1,), 4),  # somebody reaches it
        (2, 3, (1, 2), 4),  # the others are too few by themselves
    ],
)
def test_a_holder_that_reaches_the_store_but_no_peer(fruitless, min_replicas, accusers, step):
    config = job(min_replicas=min_replicas, catch_up={"window": 4, "fruitless": 2})
    records = [promise(life(0), 4)]
    records += [promise(life(r), 3, accuses=(0,) if r in accusers else ()) for r in (1, 2)]
    new = recovered(*records, head=after(HEAD, fruitless=fruitless, job=config.digest()), config=config)
    assert new.end.step == step


def test_who_is_left_must_reach_each_other():
    """0 holds the end and nobody reaches it; 1 and 2 do not reach each other either: nothing is gained."""
    config = job(min_replicas=2, catch_up={"window": 4, "fruitless": 2})
    records = [promise(life(0), 4), promise(life(1), 3, accuses=(0, 2)), promise(life(2), 3, accuses=(0, 1))]
    new = recovered(*records, head=after(HEAD, fruitless=2, job=config.digest()), config=config)
    assert new.end.step == 4


# -- random promises -----------------------------------------------------------------------------

PROMISES = st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=3, max_size=3)


@given(PROMISES, st.sets(st.integers(1, 4)), st.permutations(range(3)))
def test_no_rollback_goes_past_what_a_live_member_holds(steps, checkpoints, order):
    records = [off_chain(life(r), 9) if s is None else promise(life(r), s) for r, s in enumerate(steps)]
    head = after(HEAD, checkpoints=tuple(stored(CONFIG, s) for s in sorted(checkpoints)))
    members = said(*(records[i] for i in order))
    new = recover(CONFIG, head, ROUND, life(0), members, False).head
    best = max([0, *checkpoints, *(s for s in steps if s is not None)])
    assert new.end.step == best == new.plan.base.step
    assert HEAD.on_chain(new.plan.base.lineage)
    same = recover(CONFIG, head, ROUND, life(0), said(*records), False).head
    assert new == same, "the order of the records means nothing"


# -- checkpoints on record ---------------------------------------------------------------------


def test_a_checkpoint_goes_on_record_while_it_is_on_the_chain():
    head = head_at(CONFIG, 4)
    result = record_checkpoint(CONFIG, head, stored(CONFIG, 3), life(0))
    assert result.head == after(head, checkpoints=(stored(CONFIG, 3),), by=life(0))


def test_the_oldest_checkpoints_go():
    head = head_at(CONFIG, 6, checkpoints=tuple(stored(CONFIG, s) for s in (2, 4, 5)))
    kept = record_checkpoint(CONFIG, head, stored(CONFIG, 6), life(0)).head.checkpoints
    assert [c.step for c in kept] == [4, 5, 6]
    late = record_checkpoint(CONFIG, head, stored(CONFIG, 3), life(0)).head.checkpoints
    assert [c.step for c in late] == [3, 4, 5]


@pytest.mark.parametrize(
    ("head", "checkpoint", "fate"),
    [
        (head_at(CONFIG, 4, checkpoints=(stored(CONFIG, 3),)), stored(CONFIG, 3), Fate.COMMITTED),
        (head_at(CONFIG, 2), stored(CONFIG, 3), Fate.CLOSED),
        (succeeded(head_at(CONFIG, 4), 0), stored(CONFIG, 3), Fate.CLOSED),
    ],
    ids=["known", "cut off", "succeeded"],
)
def test_a_checkpoint_that_is_not_put_on_record(head, checkpoint, fate):
    assert record_checkpoint(CONFIG, head, checkpoint, life(0)) == Settled(fate)


# -- the store is lost ---------------------------------------------------------------------------


def test_suspend_stops_a_store_that_came_back_older():
    old = head_at(CONFIG, 2)
    stopped = suspend(old)
    assert stopped == after(old, status=Status.LOST, by=None)
    assert isinstance(
        advance(CONFIG, stopped, stopped.round, Fate.COMMITTED, life(0), said(leased=ALL)), NotYet
    )


def seen(member, head, step=4):
    return word(CONFIG, member, step, 3, seen=head)


def newborn(replica):
    """A process that its launcher has started anew: it holds nothing and has seen no head."""
    return word(CONFIG, life(replica, 0), 0, 0, as_of=0, ready=False)


def test_the_head_is_rebuilt_from_the_newest_that_anyone_has_seen():
    older, newest = head_at(CONFIG, 3), committed(CONFIG, head_at(CONFIG, 3))
    records = [seen(life(0), older), seen(life(1), newest), seen(life(2), older)]
    new = rebuild(CONFIG, records, None, False).head
    assert msgspec.structs.replace(new, trail=newest.trail) == msgspec.structs.replace(
        newest,
        version=newest.version + 1,
        epoch=2,
        round=newest.round + 1,
        status=Status.RECOVERING,
        by=None,
    )


@pytest.mark.parametrize(("version", "round"), [(1, 1), (16, 5), (40, 9)])
def test_the_rebuilt_head_goes_beyond_all_that_anyone_has_seen(version, round):
    """On whatever branch: a number of a round is never used twice."""
    newest = head_at(CONFIG, 4)
    stands = after(newest, version=version, round=round)
    new = rebuild(CONFIG, [seen(m, newest) for m in ALL], stands, False).head
    assert (new.version, new.round) == (max(newest.version, version) + 1, max(newest.round, round) + 1)


def test_of_two_branches_the_one_with_more_commits_goes_on():
    """A store that came back older was written to since: many versions, and fewer commits."""
    ours, theirs = head_at(CONFIG, 4), after(head_at(CONFIG, 2), version=90, round=3)
    new = rebuild(
        CONFIG, [seen(life(0), theirs), seen(life(1), ours), seen(life(2), theirs)], theirs, False
    ).head
    assert new.chain == ours.chain and new.version == 91 and new.round == ours.round + 1


def test_all_replicas_must_have_said_what_they_have_seen():
    two = [seen(life(0), head_at(CONFIG, 4)), seen(life(2), head_at(CONFIG, 4))]
    assert rebuild(CONFIG, two, None, False) == NotYet(
        "the store lost its head; no record yet from replicas [1]"
    )
    assert isinstance(rebuild(CONFIG, two, None, True), Next), "the operator's word opens the job again"


def test_a_record_without_a_head_is_from_before_the_loss():
    records = [
        seen(life(0), head_at(CONFIG, 4)),
        word(CONFIG, life(1), 4, 3),
        seen(life(2), head_at(CONFIG, 4)),
    ]
    assert isinstance(rebuild(CONFIG, records, None, False), NotYet)


def test_a_process_that_was_started_anew_says_that_its_earlier_life_is_gone():
    records = [seen(life(0), head_at(CONFIG, 4)), newborn(1), newborn(2)]
    assert rebuild(CONFIG, records, None, False).head.chain == head_at(CONFIG, 4).chain


@pytest.mark.parametrize("confirmed", [False, True])
def test_without_any_head_nothing_is_invented(confirmed):
    result = rebuild(CONFIG, [newborn(r) for r in range(3)], None, confirmed)
    assert result == NotYet("the store lost its head and no member has seen one: confirm to start anew")


def test_the_operator_may_go_on_with_what_the_store_holds():
    stopped = suspend(head_at(CONFIG, 3))
    records = [newborn(r) for r in range(3)]
    assert isinstance(rebuild(CONFIG, records, stopped, False), NotYet)
    assert rebuild(CONFIG, records, stopped, True).head.end.step == 3


def test_a_suspended_head_knows_no_more_than_the_one_that_it_stopped():
    """It has the version of the head that one member has seen, and not its commit."""
    old = head_at(CONFIG, 3)
    newest = committed(CONFIG, old)
    stopped = suspend(old)
    assert stopped.version == newest.version
    records = [seen(life(0), stopped), seen(life(1), newest), seen(life(2), stopped)]
    for order in (records, records[::-1]):
        assert rebuild(CONFIG, order, stopped, False).head.end.step == 4


def test_words_of_an_earlier_loss_do_not_count():
    """The store was rebuilt once, and lost its head again: it brought the words of the first loss back."""
    first = head_at(CONFIG, 3)
    second = after(head_at(CONFIG, 4), epoch=2)
    stale = [seen(life(0), first), seen(life(1), second), seen(life(2), first)]
    assert rebuild(CONFIG, stale, None, False) == NotYet(
        "the store lost its head; no record yet from replicas [0, 2]"
    )
    fresh = [seen(member, second) for member in ALL]
    assert rebuild(CONFIG, fresh, None, False).head.epoch == 3


def test_what_follows_a_rebuilt_head_is_a_recovery_by_promises():
    newest = head_at(CONFIG, 4)
    asks = rebuild(CONFIG, [seen(m, newest) for m in ALL], None, False).head
    records = [word(CONFIG, m, 4 if m == life(1) else 3, asks.round) for m in ALL]
    new = recover(CONFIG, asks, asks.round, life(0), said(*records), False).head
    assert (new.status, new.epoch, new.plan.contributors) == (Status.RUNNING, 2, lives(1))
    assert new.plan.base == Base(4, "L4", base(CONFIG, 4).ledger)


def test_a_no_is_a_promise_like_any_other():
    assert recovered(promise(life(0), 4, stance=Stance.NO)).end.step == 4
