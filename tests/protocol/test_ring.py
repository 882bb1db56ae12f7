"""Each transition of the ring's tables, and each rule, at one rank."""

from __future__ import annotations

import copy

import pytest

from ftruntime.protocol.congestion import Tier, Window, fresh_window
from ftruntime.protocol.effects import Post, Reconnect, Send, SetTimer
from ftruntime.protocol.errors import ErrorClass, ProtocolError
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import Ack, Chunk, Join, Probe, Waiting
from ftruntime.protocol.ring import TRANSITIONS, Cause, Ring, State
from ftruntime.protocol.ring_patience import MOODS, Mood, Sign

LEFT, ME, RIGHT = MemberId(1, 11), MemberId(2, 22), MemberId(3, 33)
TO_LEFT, TO_RIGHT = (1, 5), (3, 5)
JOIN = Join(7, 3, 33)


class Rank:
    """Member 1 of 3: 4 chunks a round on each link, p = 1. Each call returns the effects."""

    def __init__(self, *, members=3, buckets=(3,), slots=4, contributing=True, window=None, retries=2):
        self.ring = Ring(
            geometry(buckets, members, 1, slots),
            ME,
            LEFT,
            RIGHT if members > 2 else LEFT,
            position=5,
            round=7,
            window=window or fresh_window(Tier.RACK, slots),
            contributing=contributing,
            chunk_timeout=60.0,
            max_retries=retries,
        )

    def do(self, name, *arguments, now=0.0):
        out = []
        self.answer = getattr(self.ring, name)(*arguments, now, out)
        return out

    def running(self):
        self.do("start")
        self.do("join", JOIN)
        self.do("bucket_ready", 0)
        return self

    def complete(self):
        self.running()
        for seq in range(4):
            self.do("chunk", seq, False)
        return self


def post(take, give, send=True, push=False, filled=False):
    return Post(7, take, give, send, push, filled)


def ack(count):
    return Send(TO_LEFT, Ack(7, 22, count))


# -- the tables ------------------------------------------------------------------------------------

SITUATIONS = {
    State.IDLE: lambda: Rank(),
    State.JOINING: lambda: with_calls(Rank(), ("start",)),
    State.RUNNING: lambda: Rank().running(),
    State.COMPLETE: lambda: Rank().complete(),
    State.FINISHED: lambda: with_calls(Rank().complete(), ("ack", 4)),
}
CAUSES = {
    (State.IDLE, Cause.START): lambda r: r.do("start"),
    (State.JOINING, Cause.JOINED): lambda r: r.do("join", JOIN),
    (State.JOINING, Cause.SEAL): lambda r: r.ring.seal(),
    (State.RUNNING, Cause.SEAL): lambda r: r.ring.seal(),
    (State.RUNNING, Cause.ALL_TAKEN): lambda r: [r.do("chunk", seq, False) for seq in range(4)],
    (State.COMPLETE, Cause.ALL_ACKED): lambda r: r.do("ack", 4),
}


def with_calls(rank, *calls):
    for call in calls:
        rank.do(*call)
    return rank


def test_every_transition_has_a_case():
    assert set(CAUSES) | {(State.IDLE, Cause.START_ALONE)} == set(TRANSITIONS)


@pytest.mark.parametrize(("state", "cause"), CAUSES)
def test_transition(state, cause):
    rank = SITUATIONS[state]()
    assert rank.ring.state is state
    CAUSES[state, cause](rank)
    assert rank.ring.state is TRANSITIONS[state, cause]


@pytest.mark.parametrize("state", [s for s in SITUATIONS if s is not State.IDLE])
def test_a_ring_starts_once(state):
    with pytest.raises(AssertionError, match=f"START while {state.name}"):
        SITUATIONS[state]().do("start")


@pytest.mark.parametrize(("state", "answer"), [(State.COMPLETE, True), (State.FINISHED, True)])
def test_sealing_a_complete_ring_leaves_it_what_it_is(state, answer):
    rank = SITUATIONS[state]()
    assert rank.ring.seal() is answer and rank.ring.state is state


def test_alone_no_message_is_sent():
    rank = Rank(members=1, buckets=(3, 0))
    assert rank.do("start") == [] and rank.ring.state is State.RUNNING
    assert rank.do("bucket_ready", 0) == []
    assert (rank.ring.finished_count, rank.ring.buckets_complete, rank.ring.complete) == (3, 1, False)
    rank.do("bucket_ready", 1)
    assert rank.ring.finished and rank.ring.finished_count == 4
    assert rank.do("timer", now=999.0) == []


def test_without_buckets_it_is_finished_at_once():
    rank = Rank(buckets=())
    assert rank.do("start") == [] and rank.ring.finished


# -- credits, slots, order -------------------------------------------------------------------------


def test_start_joins_to_the_left_and_sets_the_clock():
    assert Rank().do("start") == [Send(TO_LEFT, Join(7, 2, 22)), SetTimer("chunk", 7, 60.0)]


def test_nothing_is_sent_before_the_join():
    rank = Rank()
    rank.do("start")
    assert rank.do("bucket_ready", 0) == [post(-1, 0, send=False)]
    assert rank.do("chunk", 0, False) == [post(0, 1, send=False)]
    assert rank.do("join", JOIN) == [post(-1, 0, filled=True), post(-1, 1, filled=True)]


@pytest.mark.parametrize("stale", [Join(6, 3, 33), Join(7, 3, 32), Join(7, 1, 33), Join(8, 3, 33)])
def test_a_join_of_another_round_or_life_is_ignored(stale):
    rank = Rank()
    rank.do("start")
    rank.do("bucket_ready", 0)
    assert rank.do("join", stale) == [] and rank.answer is False and rank.ring.state is State.JOINING


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (1, Chunk(6, 11, 0, False)),
        (1, Chunk(7, 10, 0, False)),
        (3, Chunk(7, 33, 0, False)),
        (3, Ack(7, 32, 1)),
        (3, Ack(6, 33, 1)),
        (1, Ack(7, 11, 1)),
        (1, Probe(7, 10)),
        (9, Probe(7, 11)),
        (1, Waiting(6, 11, 3)),
        (3, Waiting(7, 34, 3)),
    ],
)
def test_stale_messages_change_nothing(source, message):
    rank = Rank().running()
    assert rank.do("handle", source, message) == [] and rank.answer is False
    assert (rank.ring.received, rank.ring.acked) == (0, 0)


def test_a_clean_round():
    rank = Rank()
    rank.do("start")
    rank.do("join", JOIN)
    assert rank.do("bucket_ready", 0) == [post(-1, 0)]
    assert rank.do("handle", 1, Chunk(7, 11, 0, False)) == [post(0, 1)]
    assert rank.do("handle", 1, Chunk(7, 11, 1, False)) == [post(1, 2), ack(2)]
    assert rank.ring.finished_count == 1 and rank.ring.buckets_complete == 0
    assert rank.do("chunk", 2, True) == [post(2, 3, push=True), ack(3)]
    assert rank.do("chunk", 3, False) == [post(3, -1, send=False), ack(4)]
    assert rank.ring.complete and not rank.ring.finished and rank.ring.in_flight == 4
    assert rank.do("handle", 3, Ack(7, 33, 4)) == [] and rank.ring.finished


def test_chunks_wait_for_the_own_bucket():
    rank = Rank()
    rank.do("start")
    rank.do("join", JOIN)
    assert rank.do("chunk", 0, True) == []
    assert rank.do("bucket_ready", 0) == [post(-1, 0), post(0, 1), ack(1)]


def test_the_window_limits_what_is_in_flight_and_its_last_chunk_pushes():
    rank = Rank(window=Window(Tier.REGION, 4, 1)).running()
    assert rank.do("chunk", 0, False) == [post(0, 1, send=False)]
    assert rank.do("ack", 1) == [post(-1, 1, push=False, filled=True)]  # one window of acks: it has widened
    assert rank.ring.window.size == 2


def test_a_full_window_of_one_pushes():
    rank = Rank(window=Window(Tier.REGION, 4, 1))
    rank.do("start")
    rank.do("join", JOIN)
    assert rank.do("bucket_ready", 0) == [post(-1, 0, push=True)]


def test_slots_limit_what_is_filled():
    rank = Rank(slots=2).running()
    assert rank.do("chunk", 0, False) == [post(0, 1, push=True), ack(1)]
    assert rank.do("chunk", 1, False) == []
    assert rank.do("ack", 1) == [post(1, 2, push=True), ack(2)]


def test_a_single_slot_is_freed_by_the_end_of_its_transfer():
    rank = Rank(slots=1).running()
    assert rank.do("chunk", 0, True) == []
    assert rank.do("sent", 1) == [post(0, 1, send=False), ack(1)]
    assert rank.do("ack", 1) == [post(-1, 1, push=True, filled=True)]


def test_duplicates_are_acknowledged_again():
    rank = Rank().running()
    rank.do("chunk", 0, False)
    assert rank.do("chunk", 0, False) == [ack(1)] and rank.answer is False
    assert rank.do("ack", 0) == [] and rank.answer is False


def test_what_no_peer_sends_is_refused():
    rank = Rank().complete()
    with pytest.raises(ProtocolError, match="chunk 4 of a round that has 4"):
        rank.do("chunk", 4, False)
    with pytest.raises(ProtocolError, match="5 chunks are acknowledged"):
        rank.do("ack", 5)
    with pytest.raises(ProtocolError, match="bucket 1 is ready out of order, after 1 of 1"):
        rank.do("bucket_ready", 1)
    with pytest.raises(ProtocolError, match="9 chunks are sent"):
        Rank(slots=1).running().do("sent", 9)


def test_a_catcher_withholds_its_last_ack():
    rank = Rank(contributing=False).running()
    effects = [effect for seq in range(4) for effect in rank.do("chunk", seq, False)]
    assert rank.ring.complete and ack(2) in effects and ack(4) not in effects
    assert rank.do("chunk", 3, False) == []
    assert rank.do("ack", 3) == []
    assert rank.do("ack", 4) == [ack(4)] and rank.ring.finished


def test_a_sealed_rank_takes_and_acknowledges_nothing():
    rank = Rank().running()
    rank.do("chunk", 0, False)
    assert rank.ring.seal() is False
    assert rank.do("chunk", 1, True) == [] and rank.answer is False
    assert rank.do("chunk", 0, False) == [] and rank.do("timer", now=999.0) == []
    assert rank.do("ack", 2) == [] and rank.ring.acked == 2


def test_a_rank_sealed_before_its_bucket_stays_incomplete():
    rank = Rank(members=1)
    rank.do("start")
    assert rank.ring.seal() is False
    assert rank.do("bucket_ready", 0) == [] and not rank.ring.complete


def test_a_copy_is_independent():
    rank = Rank().running()
    twin = copy.copy(rank.ring)
    rank.do("chunk", 0, False)
    assert (twin.received, twin.filled, rank.ring.received, rank.ring.filled) == (0, 1, 1, 2)


# -- links -----------------------------------------------------------------------------------------


def test_a_transient_error_halves_the_window_and_sends_again():
    rank = Rank().running()
    rank.do("chunk", 0, False)
    assert rank.do("transient", 3, "flap") == [Reconnect(3)] and rank.answer is True
    assert rank.do("transient", 3, "flap") == [] and rank.answer is False
    assert rank.ring.window.size == 2
    assert rank.do("chunk", 1, False) == [post(1, 2, send=False), ack(2)]
    again = [post(-1, 0, filled=True), post(-1, 1, push=True, filled=True)]
    assert rank.do("reconnected", 3) == again


def test_an_ack_from_before_the_reconnect_counts():
    rank = Rank().running()
    rank.do("chunk", 0, False)
    rank.do("transient", 3, "flap")
    rank.do("reconnected", 3)
    rank.do("transient", 3, "flap")
    assert rank.do("ack", 2) == [] and rank.ring.in_flight == 0


def test_a_gap_breaks_the_link_and_the_fresh_one_starts_from_the_ack():
    rank = Rank().running()
    rank.do("chunk", 0, False)
    assert rank.do("chunk", 2, False) == [Reconnect(1)] and rank.answer is False
    assert rank.do("chunk", 3, False) == []
    assert rank.do("reconnected", 1) == [ack(1), Send(TO_LEFT, Join(7, 2, 22))]


def test_a_repeated_join_wants_again_what_is_not_acknowledged():
    rank = Rank().running()
    assert rank.do("join", JOIN) == [post(-1, 0, filled=True)]


@pytest.mark.parametrize("peer", [1, 3])
def test_retries_are_bounded(peer):
    rank = Rank(retries=1).running()
    rank.do("transient", peer, "flap")
    rank.do("reconnected", peer)
    assert rank.do("transient", peer, "flap") == []
    assert rank.ring.failure.error_class is ErrorClass.PEER_LOST
    assert rank.ring.failure.accused == (peer,) and rank.ring.mood is Mood.FAILED
    assert rank.ring.failure.reason == f"replica {peer} failed after 1 retries: flap"


def test_others_are_no_business_of_the_ring():
    rank = Rank().running()
    for call in (("transient", 9, "x"), ("reconnected", 9), ("reconnected", 3), ("peer_lost", 9, 1, "x")):
        assert rank.do(*call) == [] and rank.answer is False
    assert rank.do("peer_lost", 3, 32, "an earlier life") == [] and rank.answer is False
    assert rank.ring.failure is None


@pytest.mark.parametrize(("peer", "incarnation"), [(1, 11), (3, 33)])
def test_a_lost_neighbour_fails_a_running_ring(peer, incarnation):
    rank = Rank().running()
    rank.do("peer_lost", peer, incarnation, "reset")
    assert rank.ring.failure.accused == (peer,)
    assert rank.ring.failure.reason == f"replica {peer} is lost: reset"


def test_a_lost_neighbour_that_is_not_needed_may_go():
    rank = Rank().complete()
    rank.do("peer_lost", 1, 11, "reset")
    assert rank.ring.failure is None
    with_calls(rank, ("ack", 4), ("peer_lost", 3, 33, "reset"))
    assert rank.ring.failure is None and rank.ring.finished


def test_only_the_first_failure_is_reported():
    rank = Rank().running()
    with_calls(rank, ("peer_lost", 1, 11, "reset"), ("peer_lost", 3, 33, "reset"))
    assert rank.ring.failure.accused == (1,)


# -- patience --------------------------------------------------------------------------------------


def test_every_mood_change_is_meant():
    assert {(m, s) for m in (Mood.ON_TIME, Mood.LATE) for s in Sign} - {(Mood.ON_TIME, Sign.PROGRESS)} == set(
        MOODS
    )


def test_the_clock_starts_anew_with_progress():
    rank = Rank().running()
    rank.do("chunk", 0, False, now=40.0)
    assert rank.do("timer", now=60.0) == [SetTimer("chunk", 7, 40.0)] and rank.ring.mood is Mood.ON_TIME
    assert rank.do("timer", now=100.0) == [Send(TO_LEFT, Probe(7, 22)), SetTimer("chunk", 7, 60.0)]
    assert rank.ring.mood is Mood.LATE
    rank.do("chunk", 1, False, now=110.0)
    assert rank.ring.mood is Mood.ON_TIME and rank.do("timer", now=160.0) == [SetTimer("chunk", 7, 10.0)]


def test_a_rank_that_is_not_ready_accuses_no_one():
    rank = Rank()
    rank.do("start")
    for now in (60.0, 120.0, 180.0):
        assert rank.do("timer", now=now) == [SetTimer("chunk", 7, 60.0)]
    rank.do("bucket_ready", 0, now=190.0)
    assert rank.do("timer", now=240.0) == [SetTimer("chunk", 7, 10.0)]


def accusation(rank, *between):
    rank.do("timer", now=60.0)
    with_calls(rank, *between)
    assert rank.do("timer", now=120.0) == [] and rank.do("timer", now=180.0) == []
    return rank.ring.failure.accused, rank.ring.failure.reason


def test_right_never_joined():
    rank = with_calls(Rank(), ("start",), ("bucket_ready", 0))
    assert accusation(rank) == ((3,), "replica 3 never joined round 7")


def test_left_never_joined():
    assert accusation(Rank().running()) == ((1,), "replica 1 never joined round 7")


def test_left_joined_and_stalled():
    rank = with_calls(Rank().running(), ("chunk", 0, False))
    assert accusation(rank) == ((1,), "replica 1 joined and stalled at chunk 1 of 4")


def test_left_is_alive_and_names_itself():
    named = accusation(Rank().running(), ("waiting", 1, Waiting(7, 11, 1)))
    assert named == ((1,), "replica 1 joined and stalled at chunk 0 of 4")


def test_right_joined_and_stalled():
    assert accusation(Rank().complete()) == ((3,), "replica 3 joined and stalled at chunk 0 of 4")


def test_the_culprit_that_a_neighbour_names():
    named = accusation(Rank().running(), ("waiting", 1, Waiting(7, 11, 9)))
    assert named == ((9,), "replica 9 stalled at chunk 0 of 4, says replica 1")


def test_a_neighbour_that_names_this_rank_is_told_again_and_then_accused():
    rank = Rank().running()
    rank.do("timer", now=60.0)
    assert rank.do("waiting", 1, Waiting(7, 11, 2)) == [Send(TO_LEFT, Join(7, 2, 22))]
    rank.do("timer", now=120.0)
    assert rank.ring.failure.accused == (1,)


def test_acks_are_missed_from_the_right():
    rank = Rank(slots=2).running()
    with_calls(rank, ("chunk", 0, False), ("chunk", 1, False))
    assert rank.do("timer", now=60.0)[0] == Send(TO_RIGHT, Probe(7, 22))


def test_a_slow_rank_names_itself():
    rank = Rank()
    rank.do("start")
    slow = Send(TO_RIGHT, Waiting(7, 22, 2))
    assert rank.do("probe", 3, Probe(7, 33)) == [slow]
    assert Send(TO_LEFT, Waiting(7, 22, 2)) in rank.do("probe", 1, Probe(7, 11))


def test_a_waiting_rank_asks_on_and_passes_the_name_back():
    rank = Rank().running()
    asked = [Send(TO_RIGHT, Waiting(7, 22, 1)), Send(TO_LEFT, Probe(7, 22))]
    assert rank.do("probe", 3, Probe(7, 33)) == asked
    assert rank.do("waiting", 1, Waiting(7, 11, 9)) == [Send(TO_RIGHT, Waiting(7, 22, 9))]
    assert rank.do("waiting", 1, Waiting(7, 11, 9)) == []
    assert rank.do("probe", 3, Probe(7, 33)) == [Send(TO_RIGHT, Waiting(7, 22, 9))]


def test_names_are_passed_on_a_bounded_number_of_times():
    rank = Rank().running()
    rank.do("probe", 3, Probe(7, 33))
    relayed = [rank.do("waiting", 1, Waiting(7, 11, culprit)) for culprit in range(10, 20)]
    assert sum(map(len, relayed)) == 3


def test_a_probe_from_the_left_repeats_the_last_ack():
    rank = Rank().running()
    with_calls(rank, ("chunk", 0, False), ("chunk", 1, False))
    assert rank.do("probe", 1, Probe(7, 11))[0] == ack(2)


def test_a_withheld_ack_is_blamed_on_the_right():
    rank = Rank(contributing=False).complete()
    assert rank.do("probe", 1, Probe(7, 11))[1] == Send(TO_LEFT, Waiting(7, 22, 3))


def test_in_a_ring_of_two_the_peer_is_both_neighbours():
    rank = with_calls(
        Rank(members=2, buckets=(2,)), ("start",), ("join", Join(7, 1, 11)), ("bucket_ready", 0)
    )
    assert rank.do("probe", 1, Probe(7, 11)) == [
        Send(TO_LEFT, Join(7, 2, 22)),
        Send(TO_LEFT, Waiting(7, 22, 1)),
    ]
    assert rank.do("transient", 1, "flap") == [Reconnect(1)]
    rank.do("peer_lost", 1, 11, "reset")
    assert rank.ring.failure.accused == (1,)
