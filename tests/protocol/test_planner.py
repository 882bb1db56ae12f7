"""The planner: kinds, divisors, donors, and that everyone makes the same plan."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.head import Penalty
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Catcher, Durations, Kind, Target, lineage_after
from ftruntime.protocol.planner import MAX_DOUBLINGS, Members, durations, make_plan
from ftruntime.protocol.record import Stance

from .builders import (
    base,
    catch_up_plan,
    everyone,
    head_at,
    head_of,
    job,
    life,
    lives,
    name,
    no,
    said,
    stored,
    succeeded,
    target,
    train_plan,
    word,
)

CONFIG = job(replicas=5)
STEP = 6


def planned(holders, records=(), *, config=CONFIG, head=None, restore="", tapping=()):
    """The plan of the open round of ``head`` on step 6."""
    head = head or head_of(config, train_plan(config, STEP, lives(*range(3))))
    members = said(*records, leased=(*lives(*holders), *(r.member for r in records)))
    return make_plan(config, head, base(config, STEP), lives(*holders), members, restore, tapping)


def behind(replica, step=1, config=CONFIG, **changes):
    return word(config, life(replica), step, STEP + 2, **changes)


# -- what kind of plan, and whose --------------------------------------------------------------


def test_those_who_hold_the_base_train_and_the_rest_catch_up():
    plan = planned((0, 1, 2), [behind(3), behind(4)])
    assert (plan.kind, plan.round, plan.base) == (Kind.TRAIN, STEP + 2, base(CONFIG, STEP))
    assert plan.contributors == lives(0, 1, 2)
    assert [c.member for c in plan.catchers] == list(lives(3, 4))
    assert plan.restore == "" and not any(c.zeros for c in plan.catchers)


@pytest.mark.parametrize(("holders", "kind"), [((0, 1, 2), Kind.TRAIN), ((0, 1), Kind.CATCH_UP)])
def test_fewer_than_min_replicas_do_not_train(holders, kind):
    config = job(replicas=5, min_replicas=3)
    plan = planned(holders, [behind(4, config=config)], config=config)
    assert plan.kind is kind
    if kind is Kind.CATCH_UP:
        assert plan.contributors == plan.ranges == () and plan.lineage_after == ""
        assert (plan.divisor, plan.lr_factor) == (0, 0.0)
        catcher = plan.catcher(life(4))
        assert catcher.fetch == target(config, STEP) and set(catcher.donors) == set(lives(0, 1))
        assert catcher.tap is None, "nothing is reduced that could be tapped"


@pytest.mark.parametrize(
    ("replica", "record", "able"),
    [
        (0, None, True),  # a contributor of the last plan is ready by having been one
        (0, word(CONFIG, life(0), STEP, 8, ready=False), True),
        (3, None, False),
        (3, word(CONFIG, life(3), STEP, 8, ready=False), False),
        (3, word(CONFIG, life(3), STEP, 8, ready=True), True),
    ],
)
def test_only_the_ready_join(replica, record, able):
    plan = planned((1, 2, replica), [record] if record else [])
    assert (life(replica) in plan.contributors) is able


def test_a_holder_that_is_not_ready_has_nothing_to_fetch():
    plan = planned((0, 1, 2), [word(CONFIG, life(3), STEP, 8, ready=False)])
    assert plan.catcher(life(3)) == Catcher(life(3), None, (), life(0))


def test_members_without_a_lease_or_of_an_earlier_life_catch_up_with_nobody():
    head = succeeded(head_of(CONFIG, train_plan(CONFIG, STEP, lives(0, 1, 2))), 4)
    members = Members((behind(3), behind(4)), frozenset(lives(0, 1, 2, 4)))
    plan = make_plan(CONFIG, head, base(CONFIG, STEP), lives(0, 1, 2), members)
    assert plan.catchers == ()


# -- penalties ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("until", "left_out"), [(8, False), (9, True), (100, True)])
def test_a_penalty_counts_until_its_round(until, left_out):
    head = head_of(CONFIG, train_plan(CONFIG, STEP, lives(0, 1, 2)), penalties=(Penalty(life(1), until, 1),))
    plan = planned((0, 1, 2), [word(CONFIG, life(1), STEP, 8)], head=head)
    assert (life(1) not in plan.contributors) is left_out
    if left_out:
        assert plan.catcher(life(1)) == Catcher(life(1), None, (), life(2)), "level, and taps"


def test_penalties_never_stop_the_job():
    config = job(replicas=5, min_replicas=3)
    head = head_of(config, train_plan(config, STEP, lives(0, 1, 2)), penalties=(Penalty(life(1), 99, 1),))
    assert planned((0, 1, 2), config=config, head=head).contributors == lives(0, 1, 2)


def test_a_penalty_is_of_one_life():
    head = head_of(CONFIG, train_plan(CONFIG, STEP, lives(0, 1, 2)), penalties=(Penalty(life(1, 9), 99, 1),))
    assert life(1) in planned((0, 1, 2), head=head).contributors


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("divisor", "lr_scaling", "count", "expected"),
    [
        ("contributors", "none", 3, (12, 1.0)),
        ("contributors", "linear", 3, (12, 0.6)),
        ("contributors", "sqrt", 3, (12, math.sqrt(0.6))),
        ("replicas", "none", 3, (20, 1.0)),
        ("replicas", "linear", 5, (20, 1.0)),
        ("contributors", "sqrt", 5, (20, 1.0)),
    ],
)
def test_divisor_and_learning_rate(divisor, lr_scaling, count, expected):
    config = job(replicas=5, divisor=divisor, lr_scaling=lr_scaling)
    head = head_of(config, train_plan(config, STEP))
    plan = planned(range(count), config=config, head=head)
    assert (plan.divisor, plan.lr_factor) == expected


def test_the_lineage_is_of_the_whole_plan():
    plan = planned((0, 1, 2))
    assert plan.lineage_after == lineage_after(
        name(CONFIG, STEP), plan.round, plan.contributors, plan.ranges, plan.divisor, plan.lr_factor
    )


def test_each_contributor_gets_its_samples_from_the_cursor_on():
    plan = planned((0, 1, 2))
    ledger = base(CONFIG, STEP).ledger
    for own in plan.ranges:
        (r,) = own
        assert (r.start, r.count) == (ledger[r.stream], CONFIG.samples_per_step)
    streams = [r.stream for own in plan.ranges for r in own]
    assert len(set(streams)) == 3 and [s % 5 for s in streams] == [0, 1, 2]
    assert plan.ranges_of(life(1)) == (SampleRange(streams[1], ledger[streams[1]], 4),)


@pytest.mark.parametrize("closes", [0, 1, 5, MAX_DOUBLINGS, MAX_DOUBLINGS + 3])
def test_durations_double_up_to_a_limit(closes):
    seconds = CONFIG.timeouts.close * 2 ** min(closes, MAX_DOUBLINGS)
    assert durations(CONFIG, closes) == Durations(seconds)
    head = head_of(CONFIG, train_plan(CONFIG, STEP), closes=closes)
    assert planned((0, 1, 2), head=head).durations == Durations(seconds)


def test_a_round_without_training_waits_no_longer_for_failed_steps():
    config = job(replicas=5, min_replicas=4)
    head = head_of(config, train_plan(config, STEP), closes=4)
    assert planned((0, 1), config=config, head=head).durations == durations(config, 0)


# -- donors and fetches ------------------------------------------------------------------------


def test_donors_are_spread_over_catchers():
    config = job(replicas=8, catch_up={"window": 4, "donors": 2})
    head = head_of(config, train_plan(config, STEP, lives(0, 1, 2, 3)))
    plan = planned((0, 1, 2, 3), [behind(r, config=config) for r in (4, 5, 6, 7)], config=config, head=head)
    load = [sum(life(r) in c.donors for c in plan.catchers) for r in range(4)]
    assert load == [2, 2, 2, 2]
    taps = [c.tap for c in plan.catchers]
    assert sorted(taps) == list(lives(0, 1, 2, 3)), "and so are taps"


@pytest.mark.parametrize(("holders", "count"), [((0,), 1), ((0, 1), 2), ((0, 1, 2), 2)])
def test_never_more_donors_than_holders_or_the_limit(holders, count):
    catcher = planned(holders, [behind(3)]).catcher(life(3))
    assert len(set(catcher.donors)) == len(catcher.donors) == count
    assert set(catcher.donors) <= set(lives(*holders)) and list(catcher.donors) == sorted(catcher.donors)


def going_on(fetching, last, *, held=1, holders=(0, 1, 2), **changes):
    """The catcher 3 of a plan whose last plan had ``last`` as its entry."""
    catchers = () if last is None else (last,)
    head = head_of(CONFIG, train_plan(CONFIG, STEP, lives(0, 1, 2), catchers), **changes)
    record = behind(3, held, fetching=fetching)
    return planned(holders, [record], head=head).catcher(life(3))


def test_a_fetch_survives_into_the_next_round():
    """A fetch that takes five steps goes on while its state is on the chain and its donors serve it."""
    last = Catcher(life(3), target(CONFIG, 3), lives(0, 1), life(0))
    assert going_on(target(CONFIG, 3), last) == last


NEW = target(CONFIG, STEP)
OLD = target(CONFIG, 3)


@pytest.mark.parametrize(
    ("fetching", "last", "holders", "fetch", "donors"),
    [
        (OLD, Catcher(life(3), OLD, lives(0, 1)), (1, 2), OLD, (1,)),  # one donor has gone
        (OLD, Catcher(life(3), OLD, lives(0, 1)), (2,), NEW, (2,)),  # all of them have
        (OLD, None, (0, 1, 2), NEW, (0, 1)),  # the last plan did not know of it
        (OLD, Catcher(life(3), target(CONFIG, 4), lives(0, 1)), (0, 1, 2), NEW, (0, 1)),  # or another
        (None, Catcher(life(3), OLD, lives(0, 1)), (0, 1, 2), NEW, (0, 1)),  # it was given up
        (Target(3, "cut off"), Catcher(life(3), Target(3, "cut off"), lives(0)), (0, 1, 2), NEW, (0, 1)),
        (
            target(CONFIG, 1),
            Catcher(life(3), target(CONFIG, 1), lives(0)),
            (0, 1, 2),
            NEW,
            (0, 1),
        ),  # beyond the window of 4
        (
            target(CONFIG, 2),
            Catcher(life(3), target(CONFIG, 2), lives(0)),
            (0, 1, 2),
            target(CONFIG, 2),
            (0,),
        ),
    ],
)
def test_when_a_fetch_goes_on_and_when_it_begins_again(fetching, last, holders, fetch, donors):
    catcher = going_on(fetching, last, held=0, holders=holders)
    assert (catcher.fetch, set(catcher.donors)) == (fetch, set(lives(*donors)))


def test_held_gradients_that_wait_to_be_applied_need_no_donor():
    assert going_on(target(CONFIG, 5), None, held=5) == Catcher(life(3), target(CONFIG, 5), (), life(0))


@pytest.mark.parametrize(
    ("fetching", "checkpoints", "goes_on"),
    [
        (target(CONFIG, 3), (stored(CONFIG, 3),), True),
        (target(CONFIG, 3), (), False),
        (Target(0, name(CONFIG, 0)), (), True),
    ],
)
def test_a_restore_goes_on_while_what_it_loads_is_there(fetching, checkpoints, goes_on):
    config = job(replicas=5, catch_up={"window": 8, "donors": 2})
    last = Catcher(life(3), fetching, ())
    head = head_of(config, train_plan(config, STEP, lives(0, 1, 2), (last,)), checkpoints=checkpoints)
    record = behind(3, 2, fetching=fetching, config=config)
    catcher = planned((0, 1, 2), [record], config=config, head=head).catcher(life(3))
    assert (catcher.fetch == fetching and catcher.donors == ()) is goes_on


def test_one_that_taps_what_leads_to_the_base_needs_no_fetch():
    record = behind(3, STEP - 1)
    assert planned((0, 1, 2), [record], tapping={life(3)}).catcher(life(3)).fetch is None
    assert planned((0, 1, 2), [record]).catcher(life(3)).fetch == NEW


def test_only_contributors_are_donors_while_there_is_training():
    """A holder that is not ready may be about to die of its warm-up."""
    plan = planned((0, 1, 4), [word(CONFIG, life(4), STEP, 8, ready=False), behind(3)])
    assert plan.contributors == lives(0, 1)
    assert set(plan.catcher(life(3)).donors) == set(lives(0, 1))


@pytest.mark.parametrize(
    ("last", "stance", "round", "tap"),
    [
        (None, Stance.RUNNING, 8, 0),  # spread by replica
        (1, Stance.RUNNING, 8, 1),  # it serves, so it stays
        (1, Stance.NO, 8, 2),  # the catcher missed the round: another one
        (2, Stance.NO, 8, 0),
        (1, Stance.NO, 7, 1),  # an older no
        (4, Stance.RUNNING, 8, 0),  # it contributes no more
    ],
)
def test_a_tap_stays_as_long_as_it_serves(last, stance, round, tap):
    catchers = () if last is None else (Catcher(life(3), NEW, (), life(last)),)
    head = head_of(CONFIG, train_plan(CONFIG, STEP, lives(0, 1, 2), catchers))
    record = word(CONFIG, life(3), 1, round, stance=stance)
    plan = planned((0, 1, 2), [record], head=head)
    assert plan.catcher(life(3)).tap == life(tap)


# -- restore -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "checkpoints", "asked", "restore"),
    [
        (3, (stored(CONFIG, 3),), "step-3", "step-3"),
        (3, (stored(CONFIG, 3),), "", "step-3"),
        (0, (), "", "initial"),
        (0, (), "initial", "initial"),
    ],
)
def test_nobody_holds_the_base(step, checkpoints, asked, restore):
    head = head_at(CONFIG, step, checkpoints=checkpoints)
    members = said(*(behind(r, 1, held=word(CONFIG, life(r), 9, 0).held) for r in range(5)))
    plan = make_plan(CONFIG, head, base(CONFIG, step), (), members, asked)
    assert (plan.kind, plan.restore) == (Kind.CATCH_UP, restore)
    assert plan.catchers == tuple(Catcher(m, target(CONFIG, step)) for m in everyone(CONFIG))


# -- the ring ----------------------------------------------------------------------------------


def test_zeros_make_catchers_members_of_the_ring_after_the_contributors():
    config = job(replicas=5, catch_up={"window": 4, "mode": "zeros"})
    head = head_of(config, train_plan(config, STEP, lives(1, 3, 4)))
    plan = planned((1, 3, 4), [behind(0, config=config), behind(2, config=config)], config=config, head=head)
    assert all(c.zeros and c.tap is None for c in plan.catchers)
    assert plan.ring() == lives(1, 3, 4, 0, 2)
    assert plan.divisor == 12, "a replica that sends zeros is no contributor"


def test_who_is_not_warm_or_was_accused_has_no_place_in_the_ring():
    """A ring that it is in fails with it, round after round."""
    config = job(replicas=5, catch_up={"window": 4, "mode": "zeros"})
    head = head_of(config, train_plan(config, STEP, lives(1, 3, 4)), penalties=(Penalty(life(2), 99, 1),))
    cold = msgspec.structs.replace(behind(0, config=config), ready=False)
    plan = planned((1, 3, 4), [cold, behind(2, config=config)], config=config, head=head)
    assert plan.ring() == lives(1, 3, 4)
    assert plan.catchers == (Catcher(life(0)), Catcher(life(2)))


def test_with_taps_the_ring_is_the_contributors():
    assert planned((0, 1, 2), [behind(3)]).ring() == lives(0, 1, 2)


# -- reasons -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closes", "records", "reason"),
    [
        (0, [], "3 of 5 replicas hold step 6"),
        (2, [], "3 of 5 replicas hold step 6, try 3"),
        (1, [behind(3), behind(4)], "3 of 5 replicas hold step 6, try 2, catching up: 3.1, 4.1"),
    ],
)
def test_a_person_can_read_why(closes, records, reason):
    head = head_of(CONFIG, train_plan(CONFIG, STEP, lives(0, 1, 2)), closes=closes)
    assert planned((0, 1, 2), records, head=head).reason == reason


@pytest.mark.parametrize(
    ("holders", "checkpoints", "reason"),
    [
        ((0, 1), (), "step 6 needs 4 replicas; held by 0.1, 1.1"),
        ((), (stored(CONFIG, STEP),), "step 6 needs 4 replicas; held by step-6"),
        ((), (), "step 6 needs 4 replicas; held by nobody"),
    ],
)
def test_a_person_can_read_why_nobody_trains(holders, checkpoints, reason):
    config = job(replicas=5, min_replicas=4)
    head = head_of(config, catch_up_plan(config, STEP), checkpoints=checkpoints)
    assert planned(holders, config=config, head=head).reason == reason


# -- everyone makes the same plan --------------------------------------------------------------

RECORDS = st.tuples(
    st.sampled_from([STEP, STEP, STEP, 4, 1]),
    st.sampled_from(list(Stance)),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, STEP).map(lambda s: target(CONFIG, s))),
    st.booleans(),  # leased
)


@given(st.lists(RECORDS, min_size=5, max_size=5), st.sets(st.integers(0, 4)), st.randoms(), st.booleans())
def test_the_plan_depends_on_no_order(told, penalised, chance, zeros):
    config = job(replicas=5, min_replicas=2, catch_up={"window": 4, "mode": "zeros" if zeros else "tap"})
    penalties = tuple(Penalty(life(r), 99, 1) for r in sorted(penalised))
    head = head_of(config, train_plan(config, STEP, lives(0, 1)), penalties=penalties)
    records = [
        word(config, life(r), step, 8, stance=stance, ready=ready, fetching=fetching)
        for r, (step, stance, ready, fetching, _) in enumerate(told)
    ]
    leased = [life(r) for r, (*_, leased) in enumerate(told) if leased]
    holders = [r.member for r in records if r.held.step == STEP and r.member in leased]

    def plan():
        for shuffled in (records, leased, holders):
            chance.shuffle(shuffled)
        members = Members(tuple(records), frozenset(leased))
        return make_plan(config, head, base(config, STEP), holders, members)

    first = plan()
    assert plan() == first == plan()
    assert list(first.contributors) == sorted(first.contributors)
    assert set(first.contributors) <= set(holders)
    assert not set(first.contributors) & {c.member for c in first.catchers}
    assert {c.member for c in first.catchers} <= set(leased)
    for catcher in first.catchers:
        assert catcher.member not in catcher.donors and set(catcher.donors) <= set(holders)


# -- what the store says of the members --------------------------------------------------------


def test_members_are_live_while_leased_and_not_succeeded():
    head = succeeded(head_at(CONFIG, 1), 2)
    members = said(behind(1), no(CONFIG, life(2, 2), 1, 3), behind(0), leased=(*lives(0, 2), life(2, 2)))
    assert [members.live(head, m) for m in (life(0), life(1), life(2), life(2, 2))] == [1, 0, 0, 1]
    assert [r.member for r in members.live_records(head)] == [life(0), life(2, 2)]
    assert members.record(life(1)) == behind(1) and members.record(life(4)) is None
    assert members.said_no(life(2, 2), 3)
    assert not members.said_no(life(2, 2), 4) and not members.said_no(life(0), 8)


def test_the_last_word_counts():
    told = no(CONFIG, life(1), 1, 3)
    assert not said(msgspec.structs.replace(told, stance=Stance.YES)).said_no(life(1), 3)
