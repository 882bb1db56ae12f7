"""One process: a member, and at position 0 the leader beside it, behind one function."""

from __future__ import annotations

import pytest

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol import store
from ftruntime.protocol.effects import (
    Apply,
    Connect,
    Exit,
    Launch,
    Measure,
    Send,
    SetTimer,
    StoreCall,
    WarmUp,
)
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.events import Event
from ftruntime.protocol.rank import _EVENTS, LEADER_TIMERS, Rank

from .builders import closed, committed, everyone, head_of, job, life, lives, nonce, train_plan, word

CONFIG = job(ranks_per_replica=1)
HEAD = head_of(CONFIG, train_plan(CONFIG, 0, lives(0)))
ROUND = HEAD.round


def of(kind, effects):
    return [x for x in effects if isinstance(x, kind)]


def leading(config=CONFIG, head=HEAD):
    """A rank of position 0 that has read ``head``, and what it did then."""
    rank = Rank(config, 0, 0, nonce(0), 0)
    (call,) = of(StoreCall, rank.step(e.Started(), 0.0))
    out = rank.step(e.StoreAnswer(call.call, store.View(head, (), everyone(config))), 0.0)
    return rank, out


def test_position_0_leads_and_the_others_do_not():
    assert Rank(CONFIG, 1, 0).leader is not None
    assert Rank(job(), 1, 1).leader is None
    assert Rank(job(), 1, 1).step(e.Started(), 0.0) == []


def test_what_the_leader_orders_its_own_member_does_in_the_same_step():
    _, out = leading()
    kinds = [type(x) for x in out if isinstance(x, Connect | WarmUp | Launch)]
    assert kinds == [Connect, WarmUp, Launch]


def test_orders_go_on_to_the_other_ranks_before_the_own_work():
    config = job(ranks_per_replica=3)
    _, out = leading(config, head_of(config, train_plan(config, 0, lives(0))))
    begins = [i for i, x in enumerate(out) if isinstance(x, Send) and isinstance(x.message, m.Begin)]
    (launch,) = [i for i, x in enumerate(out) if isinstance(x, Launch)]
    assert len(begins) == 2 and max(begins) < launch


def test_a_whole_round_by_events_alone():
    rank, _ = leading()
    out = rank.step(e.BucketReady(ROUND, 0), 1.0)
    assert of(Measure, out) == [Measure(ROUND)]
    out = rank.step(e.Measured(ROUND, (2.0,)), 2.0)
    (cas,) = [c for c in of(StoreCall, out) if isinstance(c.request, store.Cas)]
    assert cas.request.head.by == life(0)
    after = committed(CONFIG, HEAD, train_plan(CONFIG, 1, lives(0), ranges=HEAD.plan.ranges))
    out = rank.step(e.StoreAnswer(cas.call, store.CasDone(True, after)), 3.0)
    assert of(Apply, out) == [Apply(HEAD.plan, (2.0,), False)]
    assert of(Launch, out) == []
    out = rank.step(e.Applied(ROUND), 4.0)
    assert rank.leader.held.step == rank.member.step == 1
    assert [x.plan.round for x in of(Launch, out)] == [ROUND + 1]


def test_every_event_has_its_place():
    kinds = {kind for kind in vars(e).values() if isinstance(kind, type) and issubclass(kind, Event)}
    assert set(_EVENTS) | {e.Received, Event} == kinds


@pytest.mark.parametrize(
    "event",
    [
        e.TimerFired("chunk", 99),
        e.TimerFired("range", 99),
        e.TimerFired("store", 99),
        e.TimerFired("round", 99),
        e.TimerFired("order", 99),
        e.BucketReady(99, 0),
        e.Sent(99, 1),
        e.Transient(99, 1, "flap"),
        e.Reconnected(1),
        e.PeerLost(1, 1, "reset"),
        e.Measured(99, (1.0,)),
        e.Restored("L9", True),
        e.Saved("step-9", True),
        e.Watched(store.RecordChanged(word(CONFIG, life(1), 0, 1))),
        e.StoreAnswer(99, store.PutDone(False)),
    ],
)
def test_what_concerns_nothing_that_is_under_way_does_nothing(event):
    rank, _ = leading()
    assert rank.step(event, 1.0) == []


@pytest.mark.parametrize(
    "name",
    "store renew poll close grace rest round late silent order roll chunk range".split(),
)
def test_every_timer_has_its_place(name):
    rank, _ = leading()
    assert not rank.awaits(name, 99) or name in ("renew", "poll")
    rank.step(e.TimerFired(name, 99), 1.0)
    assert (name in LEADER_TIMERS) is (name not in ("chunk", "range"))


def unnumbered(effects):
    """Effects, with store calls by what they ask."""
    named = [x.request if isinstance(x, StoreCall) else x for x in effects]
    return [x for x in named if not (isinstance(x, SetTimer) and x.name == "store")]


def test_a_simplified_rank_goes_on_as_the_rank_that_it_was():
    rank, out = leading()
    asked = {c.call: c.request for c in of(StoreCall, out + rank.step(e.TimerFired("close", ROUND), 1.0))}
    plain = rank.clone()
    waits = rank.simplify({"put", "renew"})
    assert waits and {type(asked[call]) for call in waits} == {store.Read}
    assert all(rank.awaits("store", call) is (call in waits) for call in asked)
    for event in (e.Watched(store.HeadChanged(closed(HEAD))), e.TimerFired("poll", 0)):
        assert unnumbered(rank.step(event, 2.0)) == unnumbered(plain.step(event, 2.0))


def test_notices_of_rounds_that_are_over_and_the_count_of_orders_are_forgotten():
    rank, _ = leading()
    rank.step(e.TimerFired("rest", ROUND), 1.0)
    rank.simplify(())
    assert rank.leader._rested == ROUND, "that round is still open"
    rank.step(e.Watched(store.HeadChanged(closed(HEAD))), 2.0)
    rank.simplify(())
    assert rank.leader._rested == 0 and rank.leader._next_order == 0
    assert Rank(job(), 0, 1).simplify(()) == ()


def test_orders_are_counted_on_while_a_roll_call_is_out():
    rank, _ = leading(head=head_of(CONFIG, train_plan(CONFIG, 0, lives(1, 2))))
    rank.leader._call_roll([])
    (number,) = {rank.leader._roll, rank.leader._next_order}
    rank.simplify(())
    assert number > 0 and rank.leader._next_order == number


def test_timers_go_to_the_leader_or_to_the_member():
    rank, _ = leading()
    assert rank.awaits("round", ROUND) and not rank.awaits("round", ROUND + 1)
    assert rank.awaits("chunk", ROUND) and not rank.awaits("chunk", ROUND + 1)
    out = rank.step(e.TimerFired("renew", 0), 1.0)
    assert SetTimer("renew", 0, CONFIG.timeouts.lease / 3) in out
    follower = Rank(job(), 0, 1)
    assert not any(follower.awaits(name, 0) for name in LEADER_TIMERS)
    with pytest.raises(AssertionError, match="belongs to a leader"):
        follower.step(e.TimerFired("poll", 0), 1.0)


@pytest.mark.parametrize(
    "event",
    [e.StoreAnswer(1, store.PutDone(False)), e.Watched(store.HeadChanged(HEAD)), e.Confirmed()],
)
def test_only_leaders_talk_to_the_store(event):
    with pytest.raises(AssertionError, match="leaders"):
        Rank(job(), 0, 1).step(event, 0.0)


def test_warm_ranks_make_a_ready_replica():
    rank, _ = leading()
    rank.step(e.Warm(), 1.0)
    assert rank.leader._prepared


def test_an_error_of_its_own_ends_the_process():
    rank, _ = leading()
    report = ErrorReport(ErrorClass.LOCAL_FATAL, "uncorrectable ECC error")
    assert rank.step(e.LocalError(report), 1.0) == [Exit("uncorrectable ECC error", True)]


def test_the_operators_word_reaches_the_session():
    rank, _ = leading()
    assert rank.step(e.Confirmed(), 1.0) == []
    assert rank.leader.session._confirmed


def test_a_lost_peer_becomes_a_no_and_the_no_a_seal():
    config = job(ranks_per_replica=1, replicas=2)
    rank, _ = leading(config, head_of(config, train_plan(config, 0)))
    rank.step(e.PeerLost(1, 1, "reset"), 1.0)
    assert rank.leader.run.state.name == "DROPPED", "sealed and answered within the step: it has no bucket"
    assert rank.leader.session.said.accuses == (1,)


def test_chunks_without_an_envelope_do_what_chunks_with_one_do():
    config = job(ranks_per_replica=1, replicas=2)
    plan = train_plan(config, 0)
    one, _ = leading(config, head_of(config, plan))
    one.step(e.Received((1, 0), m.Join(ROUND, 1, 1)), 1.0)
    one.step(e.BucketReady(ROUND, 0), 1.0)
    two = one.clone()
    for seq in range(one.member.shares[ROUND].ring.total):
        chunk = m.Chunk(ROUND, 1, seq, False)
        assert one.step(e.Received((1, 0), chunk), 2.0) == two.chunk(1, chunk, 2.0)
    assert one.member.shares[ROUND].state is two.member.shares[ROUND].state


def test_a_copy_is_independent():
    rank, _ = leading()
    copy = rank.clone()
    rank.step(e.BucketReady(ROUND, 0), 1.0)
    rank.step(e.Measured(ROUND, (2.0,)), 2.0)
    assert rank.leader.run.state.name == "COMPLETE" and copy.leader.run.state.name == "RUNNING"
    assert of(Measure, copy.step(e.BucketReady(ROUND, 0), 1.0)) == [Measure(ROUND)]
