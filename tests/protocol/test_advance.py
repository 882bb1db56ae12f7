"""``advance``: how a round ends, and who is presumed to be where in the next one."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ftruntime.protocol.advance import Next, NotYet, Settled, advance, unreachable_holders
from ftruntime.protocol.head import Commit, Fate, Penalty, Status
from ftruntime.protocol.plan import Catcher, Kind
from ftruntime.protocol.record import Stance

from .builders import (
    after,
    base,
    catch_up_plan,
    chain,
    closed,
    committed,
    everyone,
    head_at,
    head_of,
    job,
    ledger,
    life,
    lives,
    name,
    no,
    recovering,
    said,
    stored,
    succeeded,
    target,
    train_plan,
    word,
)

CONFIG = job()
COMMIT, CLOSE = Fate.COMMITTED, Fate.CLOSED
ALL = everyone(CONFIG)
QUIET = said(leased=ALL)  # all are there, and nobody has written anything


def ended(head, fate, members, by=ALL[0], config=CONFIG):
    """The head after the open round of ``head`` has ended."""
    result = advance(config, head, head.round, fate, by, members)
    assert isinstance(result, Next), result
    return result.head


# -- commit and close --------------------------------------------------------------------------


def test_a_commit_ends_the_round_and_opens_the_next_in_one_write():
    head = head_at(CONFIG, 2, closes=3, fruitless=1)
    new = ended(head, COMMIT, QUIET)
    assert (new.version, new.epoch, new.round) == (head.version + 1, 1, head.round + 1)
    assert new.chain == (*head.chain, Commit(3, "L3", head.round, ALL))
    assert (new.closes, new.fruitless, new.by, new.status) == (0, 0, life(0), Status.RUNNING)
    plan = new.plan
    assert (plan.round, plan.kind, plan.contributors) == (new.round, Kind.TRAIN, ALL)
    assert plan.base == base(CONFIG, 3)
    assert new.fate(head.round) is COMMIT


def test_a_close_keeps_the_base_and_opens_the_next_round():
    head = head_at(CONFIG, 2)
    new = ended(head, CLOSE, QUIET)
    assert (new.version, new.round, new.chain) == (head.version + 1, head.round + 1, head.chain)
    assert (new.plan.base, new.plan.kind, new.by) == (head.plan.base, Kind.TRAIN, life(0))
    assert new.fate(head.round) is CLOSE


def test_only_a_contributor_commits():
    head = head_of(CONFIG, train_plan(CONFIG, 1, lives(0, 1)))
    answer = advance(CONFIG, head, head.round, COMMIT, life(2), QUIET)
    assert answer == NotYet("2.1 does not contribute to round 3 as it stands")
    assert isinstance(advance(CONFIG, head, head.round, CLOSE, life(2), QUIET), Next)


@pytest.mark.parametrize("fate", [COMMIT, CLOSE])
def test_a_member_that_was_succeeded_changes_nothing(fate):
    head = succeeded(head_at(CONFIG, 1), 0)
    result = advance(CONFIG, head, head.round, fate, life(0), QUIET)
    assert result == NotYet("0.1 was succeeded by a later life")


@pytest.mark.parametrize("status", [Status.RECOVERING, Status.LOST])
@pytest.mark.parametrize("fate", [COMMIT, CLOSE])
def test_only_a_running_head_advances(fate, status):
    head = head_at(CONFIG, 1, status=status)
    result = advance(CONFIG, head, head.round, fate, life(0), QUIET)
    assert result == NotYet(f"round 3 is {status.name.lower()}: only recovery leads out of it")


# -- a retry keeps its round (schedules 5 and 16) ---------------------------------------------


@pytest.mark.parametrize("fate", [COMMIT, CLOSE])
def test_a_retry_is_told_what_became_of_its_round_and_never_ends_another(fate):
    head = head_at(CONFIG, 1)
    assert advance(CONFIG, committed(CONFIG, head), head.round, fate, life(0), QUIET) == Settled(COMMIT)
    assert advance(CONFIG, closed(head), head.round, fate, life(0), QUIET) == Settled(CLOSE)
    assert advance(CONFIG, recovering(head), head.round, fate, life(0), QUIET) == Settled(CLOSE)


def test_the_answer_is_the_same_to_one_that_was_succeeded():
    head = head_at(CONFIG, 1)
    later = succeeded(committed(CONFIG, head), 0)
    assert advance(CONFIG, later, head.round, COMMIT, life(0), QUIET) == Settled(COMMIT)


def test_a_round_commits_once_whoever_tries_again():
    head = head_at(CONFIG, 1)
    first = ended(head, COMMIT, QUIET, by=life(0))
    for by in ALL:
        assert advance(CONFIG, first, head.round, COMMIT, by, QUIET) == Settled(COMMIT)


def test_every_round_that_is_not_open_is_committed_or_closed():
    head = head_at(CONFIG, 5)
    for round in range(2, head.round):
        assert advance(CONFIG, head, round, COMMIT, life(0), QUIET) == Settled(COMMIT)
    for round in (0, 1):  # the closed round before the first plan, and the job's beginning
        assert advance(CONFIG, head, round, COMMIT, life(0), QUIET) == Settled(CLOSE)


def test_a_round_that_nobody_opened_cannot_end():
    with pytest.raises(AssertionError, match="no head has opened"):
        advance(CONFIG, head_at(CONFIG, 1), 4, COMMIT, life(0), QUIET)


# -- who is presumed to hold the next base ------------------------------------------------------


def of_record(kind, member, head, stance):
    """A record of each kind that matters: none, level, behind."""
    step = head.plan.base.step
    if kind == "none":
        return ()
    return (word(CONFIG, member, step if kind == "base" else step - 1, head.round, stance=stance),)


SITUATIONS = list(itertools.product(["none", "base", "other"], [False, True], [False, True], [False, True]))


@pytest.mark.parametrize(("record", "said_no", "leased", "current"), SITUATIONS)
@pytest.mark.parametrize("fate", [COMMIT, CLOSE])
def test_a_contributor_is_presumed_to_go_on_unless_it_is_gone_or_said_no(
    fate, record, said_no, leased, current
):
    head = head_at(CONFIG, 2)
    head = head if current else succeeded(head, 1)
    stance = Stance.NO if said_no else Stance.RUNNING
    records = of_record(record, life(1), head, stance)
    members = said(*records, leased=ALL if leased else lives(0, 2))
    new = ended(head, fate, members)
    live, no_said = leased and current, said_no and record != "none"
    level = fate is CLOSE and record == "base"  # after a commit nobody has reported the new base yet
    assert (life(1) in new.plan.contributors) is (live and (not no_said or level))
    assert {life(0), life(2)} <= set(new.plan.contributors)


@pytest.mark.parametrize(("record", "said_no", "leased", "current"), SITUATIONS)
@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("fate", [COMMIT, CLOSE])
def test_a_catcher_joins_when_it_is_level_and_ready(fate, ready, record, said_no, leased, current):
    plan = train_plan(CONFIG, 2, lives(0, 1), (Catcher(life(2), None, (), life(0)),))
    head = head_of(CONFIG, plan)
    head = head if current else succeeded(head, 2)
    stance = Stance.NO if said_no else Stance.RUNNING
    records = [msgspec.structs.replace(r, ready=ready) for r in of_record(record, life(2), head, stance)]
    new = ended(head, fate, said(*records, leased=ALL if leased else lives(0, 1)))
    level = leased and current and record == "base"
    may = not said_no if fate is COMMIT else True  # a closed round has nothing that it could lack
    assert (life(2) in new.plan.contributors) is (level and ready and may)
    assert new.plan.contributors[:2] == lives(0, 1)


def test_without_the_presumption_no_catcher_would_ever_join():
    """Schedule 15: its record never equals the newest base while every round commits."""
    plan = train_plan(CONFIG, 2, lives(0, 1), (Catcher(life(2), None, (), life(0)),))
    head = head_of(CONFIG, plan)
    new = ended(head, COMMIT, said(word(CONFIG, life(2), 2, head.round), leased=ALL))
    assert new.plan.base.step == 3 and life(2) in new.plan.contributors


def test_a_level_catcher_that_is_not_ready_goes_on_by_the_tap():
    """It has the round's reduced gradients and needs no fetch."""
    plan = train_plan(CONFIG, 2, lives(0, 1), (Catcher(life(2), None, (), life(0)),))
    record = word(CONFIG, life(2), 2, plan.round, ready=False)
    new = ended(head_of(CONFIG, plan), COMMIT, said(record, leased=ALL))
    assert new.plan.catcher(life(2)) == Catcher(life(2), None, (), life(0))


def test_a_level_catcher_that_is_not_ready_is_nobodys_donor():
    """The committer is left with too few: only those who are presumed to hold the new base hand it on."""
    config = job(replicas=4, min_replicas=2)
    plan = train_plan(config, 2, lives(0, 1), (Catcher(life(2), None, (), life(0)),))
    records = [word(config, life(2), 2, plan.round, ready=False), word(config, life(3), 0, plan.round)]
    new = ended(head_of(config, plan), COMMIT, said(*records, leased=lives(0, 2, 3)), config=config)
    assert new.plan.kind is Kind.CATCH_UP and new.plan.catcher(life(3)).donors == lives(0)


def test_a_level_catcher_that_missed_the_round_fetches():
    plan = train_plan(CONFIG, 2, lives(0, 1), (Catcher(life(2), None, (), life(0)),))
    new = ended(head_of(CONFIG, plan), COMMIT, said(no(CONFIG, life(2), 2, plan.round), leased=ALL))
    assert new.plan.catcher(life(2)).fetch == target(CONFIG, 3)


def test_one_that_is_no_catcher_of_the_round_has_not_got_its_gradients():
    head = head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 1)))
    new = ended(head, COMMIT, said(word(CONFIG, life(2), 2, head.round), leased=ALL))
    assert new.plan.contributors == lives(0, 1)
    assert new.plan.catcher(life(2)).fetch == target(CONFIG, 3)


def test_the_committer_is_a_holder_whatever_else_the_store_says():
    head = head_at(CONFIG, 2)
    record = no(CONFIG, life(0), 2, head.round)  # an older word: it has voted yes since
    new = ended(head, COMMIT, said(record, leased=lives(1, 2)))
    assert life(0) in new.plan.contributors


def test_a_no_to_another_round_is_not_a_no_to_this_one():
    head = head_at(CONFIG, 2)
    new = ended(head, COMMIT, said(no(CONFIG, life(1), 1, head.round - 1), leased=ALL))
    assert life(1) in new.plan.contributors


def test_a_branch_that_was_cut_is_never_a_base_again():
    """Schedule 11: however high its step."""
    head = head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 1)))
    zombie = word(CONFIG, life(2), 9, head.round)
    for fate in (COMMIT, CLOSE):
        new = ended(head, fate, said(zombie, leased=ALL))
        assert new.plan.base.step <= 3 and life(2) not in new.plan.contributors
        assert new.plan.catcher(life(2)).fetch.lineage == new.plan.base.lineage


# -- closes, fruitless rounds, penalties -------------------------------------------------------


def test_each_close_doubles_how_long_observers_wait_and_a_commit_ends_that():
    head, waits = head_at(CONFIG, 1), []
    for _ in range(8):
        head = ended(head, CLOSE, QUIET)
        waits.append(head.plan.durations.close_after / CONFIG.timeouts.close)
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64]
    assert head.closes == 8 and head.plan.reason.endswith("try 9")
    done = ended(head, COMMIT, QUIET)
    assert done.closes == 0 and done.plan.durations.close_after == CONFIG.timeouts.close


def test_a_round_without_training_does_not_count_for_the_doubling():
    config = job(min_replicas=3)
    head = head_of(config, catch_up_plan(config, 1), closes=2)
    new = ended(head, CLOSE, said(word(config, life(0), 1, head.round)), config=config)
    assert new.closes == 2 and new.plan.durations.close_after == config.timeouts.close


FETCHING = Catcher(life(2), target(CONFIG, 1), lives(0))


@pytest.mark.parametrize(
    ("catchers", "holders", "behind", "fruitless"),
    [
        ((FETCHING,), (0,), (2,), 2),  # a whole round's time brought nobody nearer
        ((), (0,), (), 0),  # there is nobody to bring nearer
        ((), (0,), (2,), 1),  # somebody new to catch up
        ((FETCHING,), (0, 2), (), 1),  # it came level, and they are still too few
        ((FETCHING,), (0,), (), 1),  # it has gone
        ((FETCHING,), (0, 1, 2), (), 0),  # they train
    ],
)
def test_fruitless_rounds_are_counted(catchers, holders, behind, fruitless):
    config = job(min_replicas=3, catch_up={"window": 4, "fruitless": 9})
    head = head_of(config, catch_up_plan(config, 1, catchers), fruitless=1)
    records = [word(config, life(r), 1, head.round) for r in holders]
    records += [word(config, life(r), 0, head.round) for r in behind]
    assert ended(head, CLOSE, said(*records), config=config).fruitless == fruitless


def test_a_round_of_training_is_not_fruitless():
    assert ended(head_at(CONFIG, 1, fruitless=5), CLOSE, QUIET).fruitless == 0


def test_an_accused_replica_is_left_out_of_the_next_plan_after_a_close():
    head = head_at(CONFIG, 1)
    members = said(no(CONFIG, life(0), 1, head.round, accuses=(2,)), leased=ALL)
    new = ended(head, CLOSE, members)
    assert new.penalties == (Penalty(life(2), head.round + 2, 1),)
    assert new.plan.contributors == lives(0, 1)


def test_whom_a_catcher_cannot_reach_is_nobodys_business():
    """A replica that crashes while it joins takes nobody out of the plan with it (design 3.5)."""
    config = job(replicas=4)
    plan = train_plan(config, 1, lives(0, 1, 2), (Catcher(life(3), None, (), life(0)),))
    head = head_of(config, plan)
    members = said(no(config, life(3), 1, head.round, accuses=(0, 1)), leased=lives(0, 1, 2, 3))
    new = advance(config, head, head.round, CLOSE, life(0), members).head
    assert new.penalties == ()
    assert set(lives(0, 1, 2)) <= set(new.plan.contributors)


def test_after_a_commit_only_those_who_failed_it_because_of_a_peer_wait():
    head = head_at(CONFIG, 1)
    unhappy = no(CONFIG, life(1), 1, head.round, accuses=(2,))
    assert ended(head, COMMIT, said(unhappy, leased=ALL)).penalties[0].member == life(1)
    assert ended(head, COMMIT, said(no(CONFIG, life(1), 1, head.round), leased=ALL)).penalties == ()
    late = no(CONFIG, life(0), 1, head.round, accuses=(2,))
    assert ended(head, COMMIT, said(late, leased=ALL), by=life(0)).penalties == ()


def test_accusations_of_a_round_without_training_punish_nobody():
    config = job(min_replicas=3)
    head = head_of(config, catch_up_plan(config, 1, (FETCHING,)))
    members = said(word(config, life(0), 1, head.round), no(config, life(2), 0, head.round, accuses=(0,)))
    assert ended(head, CLOSE, members, config=config).penalties == ()


# -- the first step of a rollback ---------------------------------------------------------------


def lost(*records, leased, head=None):
    """Close a round whose contributors are 0 and 1 with what is given as the store's word."""
    head = head or head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 1)), chain=chain(CONFIG, 2, lives(0, 1)))
    return advance(CONFIG, head, head.round, CLOSE, life(2), said(*records, leased=leased))


def test_nobody_who_could_hold_the_end_of_the_chain_means_recovering():
    result = lost(word(CONFIG, life(2), 1, 4), leased=lives(2))
    assert isinstance(result, Next)
    assert (result.head.status, result.head.round, result.head.by) == (Status.RECOVERING, 5, life(2))
    assert result.head.chain[-1].step == 2, "the first step of a rollback rolls nothing back"
    assert result.head.fate(4) is CLOSE


# Contributor 0 of the last commit (round 3) said no to round 4, so that it is no presumed holder.
UNDECIDED = [
    (None, False),
    (1, False),
    (3, False),  # as_of <= the round of the commit: it may still apply it
    (4, True),  # it has carried out the commit, and does not hold it
]


@pytest.mark.parametrize(("as_of", "decided"), UNDECIDED)
@pytest.mark.parametrize("stance", list(Stance))
def test_a_live_contributor_of_the_last_commit_is_undecided_whatever_it_voted(as_of, decided, stance):
    """Schedules 1 and 2."""
    head = head_of(
        CONFIG, train_plan(CONFIG, 2, lives(1)), chain=chain(CONFIG, 2, lives(0, 1))
    )  # 0 is no contributor of the open round
    records = () if as_of is None else (word(CONFIG, life(0), 1, 4, as_of=as_of, stance=stance),)
    result = lost(*records, leased=lives(0, 2), head=head)
    if decided:
        assert isinstance(result, Next) and result.head.status is Status.RECOVERING
    else:
        assert result == NotYet("0.1 has not said what became of round 3 there")


def test_a_contributor_that_is_gone_is_not_waited_for():
    head = head_of(CONFIG, train_plan(CONFIG, 2, lives(1)), chain=chain(CONFIG, 2, lives(0, 1)))
    stale = word(CONFIG, life(0), 1, 3, as_of=3)
    gone = lost(stale, leased=lives(2), head=head)
    fenced = lost(stale, leased=lives(0, 2), head=succeeded(head, 0))
    for result in (gone, fenced):
        assert isinstance(result, Next) and result.head.status is Status.RECOVERING


def test_a_restore_needs_no_holder_however_long_it_takes():
    head = head_of(CONFIG, catch_up_plan(CONFIG, 2, (Catcher(life(2), target(CONFIG, 2)),), restore="step-2"))
    new = ended(head, CLOSE, said(word(CONFIG, life(2), 0, head.round)), by=life(2))
    assert (new.status, new.plan.kind) == (Status.RUNNING, Kind.CATCH_UP)
    gone = word(CONFIG, life(2), 0, head.round, unreadable=("step-2",))
    assert ended(head, CLOSE, said(gone), by=life(2)).status is Status.RECOVERING, "unless it cannot be read"
    other = word(CONFIG, life(2), 0, head.round, unreadable=("step-1",))
    assert ended(head, CLOSE, said(other), by=life(2)).status is Status.RUNNING


# -- holders that no peer reaches --------------------------------------------------------------


def unreachable(fruitless, *accusers):
    """Only 0 holds the base; 1 and 2 catch up from it and accuse it or not."""
    config = job(min_replicas=2)
    catchers = tuple(Catcher(life(r), target(config, 1), lives(0)) for r in (1, 2))
    head = head_of(config, catch_up_plan(config, 1, catchers), fruitless=fruitless)
    records = [word(config, life(0), 1, head.round)]
    records += [word(config, life(r), 0, head.round, accuses=(0,) if r in accusers else ()) for r in (1, 2)]
    return ended(head, CLOSE, said(*records), config=config, by=life(1))


@pytest.mark.parametrize(
    ("fruitless", "accusers", "status"),
    [
        (1, (1, 2), Status.RUNNING),
        (2, (1,), Status.RUNNING),
        (2, (1, 2), Status.RECOVERING),
        (3, (1, 2), Status.RECOVERING),
    ],
)
def test_a_holder_that_nobody_reaches_is_given_up_after_a_bounded_time(fruitless, accusers, status):
    assert unreachable(fruitless, *accusers).status is status


def test_a_holder_is_unreachable_when_everyone_else_says_so():
    head = head_at(CONFIG, 1)
    two = said(word(CONFIG, life(1), 0, 3, accuses=(0,)), word(CONFIG, life(2), 0, 3, accuses=(0, 1)))
    assert unreachable_holders(head, two, {0}) == {0}
    assert unreachable_holders(head, two, {0, 1}) == {0, 1}
    assert unreachable_holders(head, two, {0, 1, 2}) == set(), "there is nobody else"
    assert unreachable_holders(head, said(), {0}) == set()
    mixed = said(word(CONFIG, life(1), 0, 3, accuses=(0,)), word(CONFIG, life(2), 0, 3))
    assert unreachable_holders(head, mixed, {0}) == set()


# -- trimming the chain ------------------------------------------------------------------------


def steps(head):
    return [c.step for c in head.chain]


def long_head(config, step, **changes):
    """A chain on which nobody's record holds anything back."""
    return head_at(config, step, **changes)


@pytest.mark.parametrize(
    ("records", "kept_from"),
    [
        ((), 13),
        ((word(CONFIG, life(1), 9, 22),), 9),
        ((word(CONFIG, life(1), 0, 22),), 13),  # the genesis stays anyway
        ((word(CONFIG, life(1), 0, 22, fetching=target(CONFIG, 11)),), 11),
        ((word(CONFIG, life(1), 12, 22), word(CONFIG, life(2), 10, 22)), 10),
        ((word(CONFIG, life(1, 2), 9, 22),), 13),  # of a life that is not the current one
    ],
)
@pytest.mark.parametrize("leased", [True, False])
def test_commits_older_than_every_rollback_target_are_forgotten(records, kept_from, leased):
    """A member that holds or fetches a state may come back: leased or not, its state stays."""
    head = long_head(CONFIG, 20)
    who = ALL if leased else lives(0)
    new = ended(head, COMMIT, said(*records, leased=who))
    assert steps(new) == [0, *range(kept_from, 22)]


def test_the_chain_back_to_a_checkpoint_stays():
    new = ended(long_head(CONFIG, 20, checkpoints=(stored(CONFIG, 10),)), COMMIT, QUIET)
    assert steps(new) == [0, *range(10, 22)]


def test_never_more_than_the_limit_and_the_genesis():
    new = ended(long_head(CONFIG, 40), COMMIT, said(word(CONFIG, life(1), 1, 42), leased=ALL))
    assert steps(new) == [0, *range(41 - CONFIG.chain_limit + 1, 42)]


def test_a_checkpoint_stays_a_target_however_far_the_chain_has_gone():
    """Without its commit it would not be on the chain: all replicas lost would mean beginning anew."""
    new = ended(long_head(CONFIG, 40, checkpoints=(stored(CONFIG, 4),)), COMMIT, QUIET)
    assert new.on_chain(name(CONFIG, 4))
    assert len(new.chain) <= CONFIG.chain_limit + 2


def test_trimming_settles_nothing_anew():
    head = long_head(CONFIG, 20)
    new = ended(head, COMMIT, QUIET)
    assert all(new.fate(c.round) is COMMIT for c in new.chain[1:])


def test_the_ledger_moves_by_what_was_trained_and_by_nothing_else():
    head = head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 2)))
    new = ended(head, COMMIT, QUIET)
    before = ledger(CONFIG, 2)
    assert new.plan.base.ledger == (before[0] + 4, before[1], before[2] + 4, *before[3:])
    assert ended(after(head), CLOSE, QUIET).plan.base.ledger == before
