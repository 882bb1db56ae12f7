"""What reaches a rank early or late, what it retains, and how it learns, sends zeros, and ends."""

from __future__ import annotations

import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol.effects import Apply, Exit, Freeze, Hold, Launch, Measure, PostTap, Send
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.member import MAX_EARLY
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.share import State

from .builders import closed, head_of, job, life, lives, target, train_plan
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


def test_work_that_was_not_done_yet_goes_on():
    """What is there is used, and what is still computed is waited for: nothing is begun anew."""
    floor = alone()
    floor.buckets(2, (0, 1))
    assert again(floor) == [True, True, True]


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
