"""A rank in its rounds: each row of the table of ``share.py``, driven through a whole ``Member``."""

from __future__ import annotations

import itertools

import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol.effects import Abort, Apply, Drop, Exit, Freeze, Hold, Launch, Measure, PostTap, Send
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.member import MAX_EARLY
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.share import MOVES, Share, State
from ftruntime.protocol.task import task_of

from .builders import closed, head_of, job, life, lives, target, train_plan
from .floor import Floor

ALONE = job(ranks_per_replica=3)  # one contributor: its own gradient is the sum, and no chunk is sent
PAIR = job(ranks_per_replica=1)
A, B, C = (0, 0), (1, 0), (2, 0)
APPLY, DROP = m.Verdict.APPLY, m.Verdict.DROP


def alone(step=0, floor=None, **changes):
    """Replica 0 with three ranks, the only contributor of the round on ``step``."""
    floor = floor or Floor(ALONE)
    floor.begin(train_plan(ALONE, step, lives(0), **changes))
    floor.run()
    return floor


def pair(config=PAIR, catchers=(), replicas=(0, 1)):
    """Replicas 0 and 1 with one rank each, both contributors."""
    floor = Floor(config, replicas)
    plan = train_plan(config, 0, lives(0, 1), catchers)
    for replica in replicas:
        floor.begin(plan, replica)
    floor.run()
    return floor


def state(floor, at=A, round=2):
    share = floor.ranks[at].shares.get(round)
    return None if share is None else share.state


def outcome(floor, verdict, round=2, order=1, replica=0):
    floor.order(m.Outcome(order, round, verdict, (3.0,)), replica)
    floor.run()


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


def lose(floor, at=A, peer=1, incarnation=1):
    floor.act(at, lambda member, out: member.peer_lost(peer, incarnation, "reset", 0.0, out))
    floor.run()


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


def ready_to_apply():
    floor = alone()
    floor.buckets(2)
    floor.measure(2)
    floor.told()
    outcome(floor, APPLY, order=5)
    return floor


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


def test_a_round_is_served_for_a_whole_round_and_no_longer():
    floor = serving()
    floor.applied(2, A)
    floor.begin(train_plan(PAIR, 1, lives(0)))
    assert state(floor) is State.APPLIED
    outcome(floor, DROP, round=3, order=2)
    floor.begin(train_plan(PAIR, 1, lives(0), round=4))
    assert state(floor) is None and Drop(2) in floor.log[A]


def test_a_loss_after_applying_says_no_no_more():
    floor = serving()
    floor.applied(2, A)
    floor.told()
    lose(floor)
    assert floor.told() == []


# -- messages that are early or stale ----------------------------------------------------------


def test_a_join_that_is_early_is_kept_for_its_plan():
    """A neighbour may hear of a plan sooner than we do."""
    floor = Floor(PAIR, (0, 1))
    plan = train_plan(PAIR, 0, lives(0, 1))
    floor.begin(plan, 1)
    floor.run()
    assert floor.ranks[A].stale == 0
    floor.begin(plan, 0)
    floor.buckets(2)
    floor.measure(2)
    assert floor.told() == [m.Vote(2, True, (1.0,))]


def test_no_more_than_so_many_early_messages_are_kept():
    floor = Floor(PAIR)
    for _ in range(MAX_EARLY + 5):
        floor.send(A, m.Join(2, 1, 1), source=B)
    assert len(floor.ranks[A]._early) == MAX_EARLY and floor.ranks[A].stale == 5


STALE = [
    (m.Join(1, 1, 1), B),
    (m.Join(2, 1, 9), B),  # of a life that the plan does not name
    (m.Probe(1, 1), B),
    (m.Probe(2, 9), B),
    (m.Waiting(2, 9, 1), B),
    (m.Chunk(1, 1, 0, False), B),
    (m.Chunk(3, 1, 0, False), B),
    (m.Chunk(2, 9, 0, False), B),
    (m.Chunk(2, 1, 0, False), C),
    (m.Ack(1, 1, 1), B),
    (m.Ack(2, 9, 1), B),
    (m.Ack(2, 1, 1), C),
    (m.Tap(2, 1, 0), B),  # this rank is no learner
]


@pytest.mark.parametrize(("message", "source"), STALE)
def test_nothing_stale_has_an_effect(message, source):
    floor = pair()
    before = len(floor.log[A])
    floor.send(A, message, source=source)
    assert floor.ranks[A].stale == 1 and len(floor.log[A]) == before
    floor.buckets(2)
    floor.measure(2)
    assert floor.told() == [m.Vote(2, True, (1.0,))], "and harms nobody"


def test_a_bucket_of_a_round_that_is_over_means_nothing():
    floor = alone()
    outcome(floor, DROP)
    floor.clear()
    floor.buckets(2)
    assert all(effects == [] for effects in floor.log.values())


# -- gradients that are retained ---------------------------------------------------------------


def again(floor, config=ALONE, **changes):
    """The round was closed; the next has the same base. Whether its gradients are used again."""
    outcome(floor, DROP)
    floor.clear()
    plan = closed(head_of(config, train_plan(config, 0, lives(0))), **changes).plan
    floor.begin(plan)
    floor.run()
    return [launch.reuse for at in floor.ranks for launch in floor.done(Launch, at)]


def test_equal_base_and_ranges_mean_no_second_forward_and_backward():
    floor = alone()
    floor.buckets(2)
    assert again(floor) == [True, True, True]


def test_they_serve_for_as_many_rounds_as_it_takes():
    floor = alone()
    floor.buckets(2)
    assert again(floor) == [True] * 3
    floor.buckets(3)
    outcome(floor, DROP, round=3, order=2)
    floor.clear()
    floor.begin(train_plan(ALONE, 0, lives(0), round=4))
    assert [launch.reuse for launch in floor.done(Launch)] == [True]


def test_a_backward_pass_that_was_cut_short_is_of_no_use():
    floor = alone()
    floor.buckets(2, (0, 1))
    assert again(floor) == [False, True, False]


def test_one_bucket_of_two_is_no_gradient():
    config = job(ranks_per_replica=1, ftar={"buckets": [64, 32], "chunk_bytes": 16, "slots": 4})
    floor = Floor(config)
    floor.begin(train_plan(config, 0, lives(0)))
    floor.act(A, lambda member, out: member.bucket_ready(2, 0, 0.0, out))
    assert again(floor, config) == [False]


def test_other_samples_are_other_gradients():
    floor = alone()
    floor.buckets(2)
    other = train_plan(ALONE, 0, lives(1)).ranges
    assert again(floor, ranges=other) == [False] * 3


def test_after_an_update_they_are_gone():
    floor = ready_to_apply()
    floor.applied(2)
    floor.clear()
    floor.begin(train_plan(ALONE, 1, lives(0), ranges=train_plan(ALONE, 0, lives(0)).ranges))
    assert [launch.reuse for launch in floor.done(Launch)] == [False]


def test_a_backward_pass_for_other_samples_overwrites_what_was_retained():
    floor = alone()
    floor.buckets(2)
    other = train_plan(ALONE, 0, lives(1)).ranges
    again(floor, ranges=other)
    outcome(floor, DROP, round=3, order=2)
    floor.clear()
    floor.begin(train_plan(ALONE, 0, lives(0), round=4))
    assert [launch.reuse for launch in floor.done(Launch)] == [False]


def test_after_a_rollback_to_their_base_they_are_gone_too():
    """The device had to forget them when it applied."""
    floor = ready_to_apply()
    floor.applied(2)
    root = target(ALONE, 0)
    floor.order(m.StartFetch(1, 0, root.lineage, (), "initial"))
    floor.run()
    for at in floor.ranks:
        floor.act(at, lambda member, out: member.restored(root.lineage, True, "", out))
    floor.run()
    floor.order(m.Install(9, 0, root.lineage))
    floor.run()
    floor.applied(-1)
    floor.clear()
    floor.begin(train_plan(ALONE, 0, lives(0), round=4))
    assert [launch.reuse for launch in floor.done(Launch)] == [False]


def test_none_recomputes_as_the_paper_does():
    config = job(ranks_per_replica=3, gradient_retention="none")
    floor = Floor(config)
    floor.begin(train_plan(config, 0, lives(0)))
    floor.run()
    floor.buckets(2)
    assert again(floor, config) == [False] * 3


# -- learners ----------------------------------------------------------------------------------

LEARNER = (Catcher(life(2), None, (), life(0)),)


def tapped():
    return pair(catchers=LEARNER, replicas=(0, 1, 2))


def test_a_learner_holds_what_the_ring_reduces_and_votes():
    floor = tapped()
    (hold,) = floor.done(Hold, C)
    assert hold.plan.round == 2 and floor.done(Launch, C) == []
    floor.buckets(2, A, B)
    assert state(floor, C) is State.WHOLE
    floor.measure(2, C)
    assert state(floor, C) is State.VOTED and floor.told(2) == [m.Vote(2, True, (1.0,))]


def test_a_learner_applies_what_it_held():
    floor = tapped()
    floor.buckets(2, A, B)
    floor.measure(2)
    outcome(floor, APPLY, replica=2)
    assert [e.keep for e in floor.done(Apply, C)] == [False]
    floor.applied(2, C)
    assert (floor.ranks[C].step, floor.ranks[C].shares) == (1, {})


@pytest.mark.parametrize("how", ["lost", "ended"])
def test_a_learner_whose_tap_breaks_says_no(how):
    """Schedule 8."""
    floor = tapped()
    if how == "lost":
        lose(floor, C, 0)
    else:
        outcome(floor, DROP, replica=0)
    (vote,) = floor.told(2)
    assert not vote.yes and vote.report.accused == ()
    assert how == "lost" or "ended the tap" in vote.report.reason


def test_the_ring_does_not_notice_a_learner_that_dies():
    floor = tapped()
    lose(floor, A, 2)
    floor.buckets(2, A, B)
    floor.measure(2, A, B)
    assert [floor.told(r) for r in (0, 1)] == [[m.Vote(2, True, (1.0,))]] * 2
    assert floor.done(PostTap, A) == [], "nothing more is sent to it"


def test_a_learner_may_ask_before_the_plan_is_here():
    floor = Floor(PAIR, (0, 1, 2))
    plan = train_plan(PAIR, 0, lives(0, 1), LEARNER)
    floor.begin(plan, 2)
    floor.run()
    floor.begin(plan, 0)
    floor.begin(plan, 1)
    floor.run()
    floor.buckets(2, A, B)
    assert state(floor, C) is State.WHOLE


def test_a_learner_that_asks_too_late_is_told_so():
    floor = tapped()
    outcome(floor, DROP, replica=0)
    out = floor.send(A, m.TapAck(2, 2, 1, 0), source=C)
    assert out == [Send(C, m.TapEnd(2, 1))]
    assert floor.send(A, m.TapAck(2, 2, 1, 3), source=C) == [], "an acknowledgement asks for nothing"


def test_a_slow_learner_holds_up_nobody_and_is_told_when_the_buffer_goes():
    floor = tapped()
    floor.held.add((A, C))
    floor.buckets(2, A, B)
    floor.measure(2, A, B)
    outcome(floor, APPLY, replica=0)
    floor.applied(2, A)
    assert floor.told(0)[-1] == m.Done(1)


# -- zeros -------------------------------------------------------------------------------------


def test_a_catcher_in_the_ring_sends_zeros_and_computes_nothing():
    config = job(ranks_per_replica=1, catch_up={"window": 4, "mode": "zeros"})
    floor = pair(config, (Catcher(life(2), None, (), None),), (0, 1, 2))
    assert floor.done(Launch, C) == [] and len(floor.done(Hold, C)) == 1
    floor.buckets(2, A, B)
    floor.measure(2)
    assert [floor.told(r) for r in range(3)] == [[m.Vote(2, True, (1.0,))]] * 3


def test_its_death_fails_the_round_of_its_neighbours():
    config = job(ranks_per_replica=1, catch_up={"window": 4, "mode": "zeros"})
    floor = pair(config, (Catcher(life(2), None, (), None),), (0, 1, 2))
    lose(floor, A, 2)
    (vote,) = floor.told()
    assert not vote.yes and vote.report.accused == (2,)


# -- donors freeze first -----------------------------------------------------------------------


def test_a_donor_freezes_before_anything_of_the_round_can_change_its_state():
    """Schedule 10."""
    floor = Floor(PAIR)
    catchers = (Catcher(life(2), target(PAIR, 0), lives(0), life(0)),)
    floor.begin(train_plan(PAIR, 0, lives(0), catchers))
    kinds = [type(e) for e in floor.log[A] if isinstance(e, Freeze | Launch)]
    assert kinds == [Freeze, Launch]


# -- odds and ends -----------------------------------------------------------------------------


def test_the_window_to_a_neighbour_goes_on_into_the_next_round():
    floor = pair()
    floor.buckets(2)
    floor.measure(2)
    ended = floor.ranks[A].shares[2].ring.window
    for replica in (0, 1):
        outcome(floor, DROP, replica=replica)
    plan = train_plan(PAIR, 0, lives(0, 1), round=3)
    floor.begin(plan)
    assert floor.ranks[A].shares[3].ring.window == ended
    outcome(floor, DROP, round=3, order=2)
    floor.begin(train_plan(PAIR, 0, (life(0), life(1, 2)), round=4))
    assert floor.ranks[A].shares[4].ring.window != ended or ended.size == 1, "another life, a fresh link"


@pytest.mark.parametrize(
    ("error_class", "restart"),
    [(ErrorClass.LOCAL_FATAL, True), (ErrorClass.TRANSIENT, True), (ErrorClass.JOB_FATAL, False)],
)
def test_an_error_of_its_own_ends_the_rank(error_class, restart):
    floor = pair()
    out = floor.act(A, lambda member, out: member.local_error(ErrorReport(error_class, "ECC"), out))
    assert out == [Exit("ECC", restart)]


def test_timers():
    floor = pair()
    member = floor.ranks[A]
    assert member.awaits("chunk", 2) and not member.awaits("chunk", 3)
    assert not member.awaits("range", 0)
    member.timer("chunk", 99, 10.0, [])
    member.timer("range", 99, 10.0, [])
    with pytest.raises(AssertionError, match="belongs to no rank"):
        member.timer("tea", 0, 10.0, [])
    lose(floor)
    assert not member.awaits("chunk", 2)


def test_a_copy_is_independent():
    floor = alone()
    copy = floor.ranks[A].clone()
    floor.buckets(2)
    floor.measure(2)
    outcome(floor, APPLY)
    floor.applied(2)
    assert copy.shares[2].state is State.WORKING and copy.step == 0 and copy.up == []
    out = []
    copy.bucket_ready(2, 0, 0.0, out)
    assert Measure(2) in out
