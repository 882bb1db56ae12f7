"""A rank in its rounds: each row of the table of ``share.py``, driven through a whole ``Member``."""

from __future__ import annotations

import itertools

import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol.effects import Abort, Apply, Drop, Hold, Launch, Measure
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.share import MOVES, Share, State
from ftruntime.protocol.task import task_of

from .builders import job, life, lives, train_plan
from .floor import (
    ALONE,
    APPLY,
    DROP,
    LEARNER,
    PAIR,
    A,
    B,
    C,
    Floor,
    alone,
    lose,
    outcome,
    pair,
    ready_to_apply,
    state,
    tapped,
)

# -- the table ---------------------------------------------------------------------------------

TABLE = {
    (State.WORKING, State.WHOLE),
    (State.WORKING, State.SEALED),
    (State.WHOLE, State.VOTED),
    (State.WHOLE, State.APPLIED),  # kept after a seal, and committed by another
    (State.VOTED, State.APPLIED),
}


@pytest.mark.parametrize(("here", "there"), list(itertools.product(State, repeat=2)))
def test_a_share_moves_as_the_table_says(here, there):
    plan = train_plan(PAIR, 0)
    share = Share(plan, task_of(plan, life(0)), None, None, None)
    share.state = here
    if (here, there) in TABLE:
        share.move(there)
        assert share.state is there
    else:
        with pytest.raises(AssertionError, match=f"round 2: {here.name} to {there.name}"):
            share.move(there)
    assert {(a, b) for a, after in MOVES.items() for b in after} == TABLE


# -- compute, reduce, measure, vote ------------------------------------------------------------


def test_a_round_without_neighbours_from_the_plan_to_the_yes():
    floor = alone()
    for at in floor.ranks:
        (launch,) = floor.done(Launch, at)
        assert (launch.reuse, launch.task.ranges[0].stream) == (False, 0)
        assert state(floor, at) is State.WORKING
    floor.buckets(2)
    assert [len(floor.done(Measure, at)) for at in floor.ranks] == [1, 1, 1]
    assert {state(floor, at) for at in floor.ranks} == {State.WHOLE} and floor.told() == []
    floor.measure(2, (0, 0), (0, 1))
    assert floor.told() == [], "all of the subtree, or nothing"
    floor.measure(2, (0, 2), scalars=(0.5,))
    assert floor.told() == [m.Vote(2, True, (2.5,))]
    assert {state(floor, at) for at in floor.ranks} == {State.VOTED}


def test_every_bucket_counts():
    config = job(ranks_per_replica=1, ftar={"buckets": [64, 32], "chunk_bytes": 16, "slots": 4})
    floor = Floor(config)
    floor.begin(train_plan(config, 0, lives(0)))
    floor.act(A, lambda member, out: member.bucket_ready(2, 0, 0.0, out))
    assert state(floor) is State.WORKING and floor.done(Measure) == []
    floor.act(A, lambda member, out: member.bucket_ready(2, 1, 0.0, out))
    assert state(floor) is State.WHOLE


def test_without_scalars_nothing_is_measured():
    config = job(ranks_per_replica=1, scalars=0)
    floor = Floor(config)
    floor.begin(train_plan(config, 0, lives(0)))
    floor.buckets(2)
    assert floor.done(Measure) == [] and floor.told() == [m.Vote(2, True, ())]


def test_it_is_measured_once():
    floor = alone()
    floor.buckets(2)
    floor.measure(2)
    floor.told()
    floor.measure(2, scalars=(9.0,))
    floor.measure(7)
    assert floor.told() == [] and floor.ranks[A].shares[2].scalars == (1.0,)


def test_a_yes_needs_the_acknowledgement_of_the_right_neighbour():
    """Schedule 6: one crash after a commit never loses it."""
    floor, acks = pair(), []
    total = floor.ranks[A].shares[2].ring.total

    def lose(source, to, message):
        last = isinstance(message, m.Ack) and to == A and message.count == total
        acks.extend([message] * last)
        return last

    for at in (A, B):
        floor.act(at, lambda member, out: member.bucket_ready(2, 0, 0.0, out))
    floor.run(lose)
    floor.measure(2)
    assert state(floor, A) is State.WHOLE, "reduced and measured, and not acknowledged"
    assert floor.told(0) == [] and floor.told(1) == [m.Vote(2, True, (1.0,))]
    for ack in acks:
        floor.send(A, ack, source=B)
    assert state(floor, A) is State.VOTED and floor.told(0) == [m.Vote(2, True, (1.0,))]


def test_two_replicas_reduce_and_vote():
    floor = pair()
    floor.buckets(2, A)
    assert state(floor, A) is State.WORKING and floor.told() == []
    floor.buckets(2, B)
    floor.measure(2)
    assert [floor.told(r) for r in (0, 1)] == [[m.Vote(2, True, (1.0,))]] * 2
    assert [floor.ranks[at].stale for at in (A, B)] == [0, 0]


# -- no ----------------------------------------------------------------------------------------


def test_a_lost_neighbour_is_a_no_that_names_it_once():
    floor = pair()
    lose(floor)
    (vote,) = floor.told()
    assert (vote.round, vote.yes) == (2, False)
    assert (vote.report.error_class, vote.report.accused) == (ErrorClass.PEER_LOST, (1,))
    lose(floor)
    floor.buckets(2, A)
    assert floor.told() == [] and state(floor) is State.WORKING


def test_the_loss_of_another_life_or_of_no_neighbour_means_nothing():
    floor = pair()
    lose(floor, incarnation=2)
    lose(floor, peer=2)
    assert floor.told() == []


def test_after_a_no_what_arrives_counts_and_a_later_yes_overwrites_it():
    floor = pair()
    timer = floor.ranks[A].timer
    out = []
    for now in (10.0, 20.0, 30.0):  # A's own bucket is there, B's first chunk is not
        if now == 10.0:
            floor.buckets(2, A)
        timer("chunk", 2, now, out)
    (vote,) = floor.told()
    assert not vote.yes and vote.report.accused == (1,)
    floor.buckets(2, B)
    floor.measure(2)
    assert floor.told() == [m.Vote(2, True, (1.0,))]


def test_of_a_subtree_the_first_no_is_passed_on_and_then_the_yes_of_all():
    floor = alone()
    report = ErrorReport(ErrorClass.PEER_LOST, "reset", (1,))
    floor.send(A, m.Vote(2, False, (), report), source=(0, 1))
    floor.send(A, m.Vote(2, False, (), report), source=(0, 2))
    assert floor.told() == [m.Vote(2, False, (), report)]
    floor.buckets(2)
    floor.measure(2)
    assert floor.told() == [m.Vote(2, True, (3.0,))]


def test_the_word_of_a_child_on_a_round_that_is_over_means_nothing():
    floor = alone()
    outcome(floor, DROP)
    floor.told()
    floor.send(A, m.Vote(2, True, (1.0,)), source=(0, 1))
    floor.send(A, m.Sealed(2, True, (1.0,)), source=(0, 1))
    assert floor.told() == [] and floor.ranks[A]._ballots == {}


# -- seal --------------------------------------------------------------------------------------


def test_a_seal_while_a_bucket_is_missing_is_final():
    """Schedule 17: a sealed rank takes and acknowledges nothing."""
    floor = pair()
    floor.order(m.Seal(2))
    assert state(floor) is State.SEALED and floor.told() == [m.Sealed(2, False)]
    floor.buckets(2)
    assert state(floor) is State.SEALED and floor.told() == [] and floor.done(Measure) == []
    assert state(floor, B) is State.WORKING, "it never got an acknowledgement, so it never votes yes"
    assert floor.told(1) == []


@pytest.mark.parametrize("voted", [False, True])
def test_a_seal_of_what_is_whole_answers_so(voted):
    floor = pair()
    floor.buckets(2)
    floor.measure(2, A)
    assert floor.told() == [m.Vote(2, True, (1.0,))]
    floor.order(m.Seal(2))
    assert floor.told() == [m.Sealed(2, True, (1.0,))]
    assert state(floor) is State.VOTED


def test_the_answer_waits_for_the_scalars():
    floor = pair()
    floor.buckets(2)
    floor.order(m.Seal(2))
    assert floor.told() == []
    floor.measure(2, A)
    assert floor.told() == [m.Sealed(2, True, (1.0,)), m.Vote(2, True, (1.0,))]


def test_of_a_subtree_one_rank_without_a_bucket_is_enough():
    floor = alone()
    floor.buckets(2, (0, 0), (0, 1))
    floor.measure(2, (0, 0), (0, 1))
    floor.order(m.Seal(2))
    floor.run()
    assert floor.told() == [m.Sealed(2, False)]
    assert [state(floor, at) for at in floor.ranks] == [State.VOTED, State.VOTED, State.SEALED]


def test_of_a_subtree_all_must_be_whole():
    floor = alone()
    floor.buckets(2)
    floor.measure(2)
    floor.told()
    floor.held.add((A, (0, 2)))
    floor.order(m.Seal(2))
    floor.run()
    assert floor.told() == []
    floor.held.clear()
    floor.run()
    assert floor.told() == [m.Sealed(2, True, (3.0,))]


# -- outcomes ----------------------------------------------------------------------------------


def test_apply_moves_the_state_when_the_device_is_done_everywhere():
    floor = ready_to_apply()
    for at, member in floor.ranks.items():
        assert floor.done(Apply, at) == [Apply(train_plan(ALONE, 0, lives(0)), (3.0,), False)]
        assert member.step == 0
    floor.applied(2, (0, 0), (0, 2))
    assert floor.told() == []
    floor.applied(2, (0, 1))
    assert floor.told() == [m.Done(5)]
    for at, member in floor.ranks.items():
        assert (member.step, member.lineage, member.shares) == (1, "L1", {})
        assert member._calls == member._ballots == {}, "nothing is kept of it"
        assert floor.done(Drop, at) == [], "the buffers are free with the update"


def test_drop_frees_everything_and_changes_no_state():
    floor = alone()
    floor.buckets(2, (0, 0))
    outcome(floor, DROP, order=5)
    assert floor.told() == [m.Done(5)]
    for at, member in floor.ranks.items():
        assert [e for e in floor.log[at] if isinstance(e, Abort | Drop)] == [Abort(2), Drop(2)]
        assert (member.step, member.shares) == (0, {})
    assert floor.ranks[A]._ballots == {}


def test_the_drop_of_a_round_that_this_rank_never_had():
    floor = Floor(ALONE)
    outcome(floor, DROP, round=7, order=5)
    assert floor.told() == [m.Done(5)] and floor.done(Drop) == []


def test_only_a_whole_round_is_applied():
    """Schedules 6 and 8."""
    floor = alone()
    floor.buckets(2, (0, 1), (0, 2))
    with pytest.raises(AssertionError, match="only a whole round is applied"):
        outcome(floor, APPLY)
    with pytest.raises(AssertionError, match="only a whole round is applied"):
        outcome(Floor(PAIR), APPLY)


def test_an_update_is_applied_onto_its_own_base():
    """Schedule 9."""
    floor = alone()
    floor.buckets(2)
    floor.measure(2)
    floor.ranks[A].lineage = "another"
    with pytest.raises(AssertionError, match="onto its own base"):
        outcome(floor, APPLY)


def test_a_contribution_comes_from_the_base_alone():
    """Schedule 7."""
    floor = Floor(PAIR)
    with pytest.raises(AssertionError, match="from the base alone"):
        floor.begin(train_plan(PAIR, 3, lives(0)))


def test_a_plan_comes_after_the_outcome_before_it():
    floor = ready_to_apply()
    with pytest.raises(AssertionError, match="only holding goes on while the state changes"):
        floor.begin(train_plan(ALONE, 1, lives(0)))
    floor.applied(2)
    with pytest.raises(AssertionError, match="plans come in order"):
        floor.begin(train_plan(ALONE, 1, lives(0), round=2))


def test_holding_goes_on_while_the_state_changes():
    floor = tapped()
    floor.buckets(2, A, B)
    floor.measure(2)
    outcome(floor, APPLY, replica=2)
    floor.begin(train_plan(PAIR, 1, lives(0, 1), LEARNER), 2)
    assert floor.done(Hold, C)[-1].plan.round == 3
    floor.applied(2, C)
    assert floor.ranks[C].step == 1 and list(floor.ranks[C].shares) == [3]


# -- serving after applying --------------------------------------------------------------------


def serving():
    """A is whole, sealed and told to apply while B still lacks what A has sent: round 2 is served on."""
    floor = pair()
    floor.buckets(2, A)
    floor.act(B, lambda member, out: member.bucket_ready(2, 0, 0.0, out))
    floor.held.add((A, B))
    floor.run()
    member = floor.ranks[A]
    while not member.shares[2].has_everything:  # let A's chunks through one by one until A is whole
        link = floor.links[A, B]
        message = link.popleft()
        floor.send(B, message, source=A)
        floor.run()
    floor.measure(2, A)
    assert state(floor) is State.WHOLE
    floor.order(m.Seal(2))
    assert floor.told() == [m.Sealed(2, True, (1.0,))]
    outcome(floor, APPLY)
    return floor


def test_a_rank_serves_its_neighbour_after_applying():
    floor = serving()
    assert floor.done(Apply)[0].keep, "the ring still sends from the buffer"
    floor.applied(2, A)
    assert state(floor) is State.APPLIED and floor.ranks[A].step == 1
    assert floor.told() == [m.Done(1)]
    assert floor.done(Drop) == []
    floor.held.clear()
    floor.run()
    assert state(floor) is None and floor.log[A][-2:] == [Abort(2), Drop(2)]
    floor.measure(2, B)
    assert floor.told(1) == [m.Vote(2, True, (1.0,))], "B has everything now"


def test_a_round_is_served_through_the_rounds_that_follow():
    """However fast they pass: the neighbour may still be receiving."""
    floor = serving()
    floor.applied(2, A)
    for order, round in enumerate((3, 4, 5), 2):
        floor.begin(train_plan(PAIR, 1, lives(0), round=round))
        assert state(floor) is State.APPLIED
        outcome(floor, DROP, round=round, order=order)


def test_a_neighbour_that_is_gone_is_served_no_more():
    floor = serving()
    floor.applied(2, A)
    lose(floor)
    assert state(floor) is None and Drop(2) in floor.log[A]


def test_a_loss_after_applying_says_no_no_more():
    floor = serving()
    floor.applied(2, A)
    floor.told()
    lose(floor)
    assert floor.told() == []
