"""Who trains what: sticky, lag-bounded, a pure function of (ledger, contributors) (design 3.1)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftruntime.protocol.ledger import Ledger, SampleRange, advance, assign

SAMPLES = 4
LAG = 16


@st.composite
def situations(draw):
    """(replicas, ledger, contributors): any cursors, any non-empty set of replicas that is there."""
    replicas = draw(st.integers(1, 12))
    streams = draw(st.integers(replicas, 8 * replicas))
    cursors = st.integers(0, 60).map(lambda n: n * SAMPLES)
    ledger = tuple(draw(st.lists(cursors, min_size=streams, max_size=streams)))
    contributors = draw(st.sets(st.integers(0, replicas - 1), min_size=1))
    return replicas, ledger, sorted(contributors)


def steps(ledger: Ledger, contributors: list[int], replicas: int, count: int, lag: int = LAG) -> Ledger:
    for _ in range(count):
        ledger = advance(ledger, assign(ledger, contributors, replicas, SAMPLES, lag))
    return ledger


@settings(deadline=None)
@given(situations())
def test_each_contributor_gets_one_range_at_a_cursor_and_no_stream_is_shared(situation):
    replicas, ledger, contributors = situation
    given_out = assign(ledger, contributors, replicas, SAMPLES, LAG)
    assert list(given_out) == contributors
    ranges = [r for owned in given_out.values() for r in owned]
    assert len({r.stream for r in ranges}) == len(ranges) == len(contributors)
    assert all(r.start == ledger[r.stream] and r.count == SAMPLES for r in ranges)


@settings(deadline=None)
@given(situations(), st.randoms(use_true_random=False))
def test_the_order_in_which_contributors_are_named_does_not_matter(situation, chance):
    replicas, ledger, contributors = situation
    shuffled = contributors[:]
    chance.shuffle(shuffled)
    expected = assign(ledger, contributors, replicas, SAMPLES, LAG)
    assert assign(ledger, shuffled, replicas, SAMPLES, LAG) == expected


@settings(deadline=None)
@given(situations())
def test_nobody_trains_an_absent_replicas_stream_that_does_not_lag(situation):
    replicas, ledger, contributors = situation
    for owned in assign(ledger, contributors, replicas, SAMPLES, LAG).values():
        for r in owned:
            present = r.stream % replicas in contributors
            assert present or max(ledger) - ledger[r.stream] > LAG


@settings(deadline=None)
@given(situations())
def test_the_leading_cursor_moves_only_when_every_lagging_stream_is_served(situation):
    replicas, ledger, contributors = situation
    given_out = assign(ledger, contributors, replicas, SAMPLES, LAG)
    lagging = {s for s, cursor in enumerate(ledger) if max(ledger) - cursor > LAG}
    if max(advance(ledger, given_out)) > max(ledger):
        assert lagging <= {r.stream for owned in given_out.values() for r in owned}


@settings(deadline=None)
@given(situations())
def test_the_streams_that_lag_most_are_trained_next(situation):
    replicas, ledger, contributors = situation
    lagging = sorted(cursor for cursor in ledger if max(ledger) - cursor > LAG)[: len(contributors)]
    owned = assign(ledger, contributors, replicas, SAMPLES, LAG).values()
    trained = sorted(ledger[r.stream] for rs in owned for r in rs)
    assert trained[: len(lagging)] == lagging or set(lagging) <= set(trained)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 5).map(lambda n: n * SAMPLES))
def test_no_stream_lags_beyond_the_bound_whoever_comes_and_goes(seed, lag):
    chance = random.Random(seed)
    ledger, contributors = (0,) * 48, list(range(6))
    for _ in range(300):
        if chance.random() < 0.1:
            contributors = sorted(chance.sample(range(6), chance.randint(1, 6)))
        ledger = advance(ledger, assign(ledger, contributors, 6, SAMPLES, lag))
        assert max(ledger) - min(ledger) <= lag + SAMPLES


@settings(deadline=None)
@given(situations())
def test_while_nothing_lags_the_assignment_is_sticky(situation):
    replicas, ledger, contributors = situation
    for replica, owned in assign(ledger, contributors, replicas, SAMPLES, max(ledger)).items():
        assert [r.stream % replicas for r in owned] == [replica]


def test_a_replica_goes_through_its_streams_in_turn():
    ledger, seen = (0,) * 6, []
    for _ in range(6):
        given_out = assign(ledger, [0, 1], 2, SAMPLES, LAG)
        seen.append([given_out[0][0].stream, given_out[1][0].stream])
        ledger = advance(ledger, given_out)
    assert seen == [[0, 1], [2, 3], [4, 5]] * 2


@pytest.mark.parametrize(("lag", "stream"), [(LAG - 1, 0), (LAG, 0), (LAG + 1, 1)])
def test_an_orphan_waits_until_it_lags_by_more_than_the_bound(lag, stream):
    assert assign((lag, 0), [0], 2, SAMPLES, LAG) == {0: (SampleRange(stream, (lag, 0)[stream], SAMPLES),)}


def test_nobody_who_is_there_means_that_nothing_is_trained():
    assert assign((LAG + 1, 0), [], 2, SAMPLES, LAG) == {}


def test_without_a_lag_nobody_takes_what_a_lost_replica_left_for_a_while():
    ledger = steps((0,) * 16, [0, 1, 3], 4, 4)
    assert {ledger[s] for s in range(16) if s % 4 == 2} == {0}
    assert all(ledger[s] > 0 for s in range(16) if s % 4 != 2)


@settings(deadline=None, max_examples=40)
@given(situations())
def test_every_stream_is_trained_on_when_replicas_are_lost_for_ever(situation):
    replicas, ledger, contributors = situation
    # Each contributor takes its most lagging stream first, so this many steps pass each one by.
    enough = len(ledger) * (max(ledger) // SAMPLES + LAG // SAMPLES + 2)
    later = steps(ledger, contributors, replicas, enough)
    assert all(after > before for before, after in zip(ledger, later, strict=True))


def test_a_replica_that_returns_gets_its_own_streams_back():
    alone = steps((0,) * 16, [0, 1, 3], 4, 200)
    streams = assign(alone, [0, 1, 2, 3], 4, SAMPLES, LAG)
    assert {replica: owned[0].stream % 4 for replica, owned in streams.items()} == {0: 0, 1: 1, 2: 2, 3: 3}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32))
def test_with_contributors_coming_and_going_each_cursor_counts_each_sample_once(seed):
    chance = random.Random(seed)
    ledger, trained = (0,) * 24, set()
    for _ in range(120):
        contributors = sorted(chance.sample(range(6), chance.randint(1, 6)))
        given_out = assign(ledger, contributors, 6, SAMPLES, LAG)
        for r in (r for owned in given_out.values() for r in owned):
            fresh = {(r.stream, i) for i in range(r.start, r.start + r.count)}
            assert not fresh & trained
            trained |= fresh
        ledger = advance(ledger, given_out)
    assert trained == {(s, i) for s, cursor in enumerate(ledger) for i in range(cursor)}


def test_advance_moves_only_what_was_trained():
    ranges = {0: (SampleRange(0, 8, 4),), 2: (SampleRange(2, 0, 4), SampleRange(1, 3, 2))}
    assert advance((8, 3, 0, 9), ranges) == (12, 5, 4, 9)


@pytest.mark.parametrize("start", [7, 9])
def test_advance_refuses_a_range_that_would_skip_or_repeat(start):
    with pytest.raises(AssertionError):
        advance((8, 3), {0: (SampleRange(0, start, 4),)})


def test_more_replicas_than_streams_is_refused():
    with pytest.raises(AssertionError, match="more replicas than streams"):
        assign((0, 0), [0, 1, 2], 3, SAMPLES, LAG)
