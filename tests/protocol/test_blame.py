"""Accusations: who goes, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.blame import FORGET, MAX_STRIKES, accusations, blamed, punish
from ftruntime.protocol.head import Penalty
from ftruntime.protocol.record import Stance

from .builders import job, life, no, word

CONFIG = job()


def who(**accused):
    """who(a=[1]) is: replica 0 accuses replica 1."""
    return {ord(key) - ord("a"): frozenset(peers) for key, peers in accused.items()}


@pytest.mark.parametrize(
    ("accused_by", "guilty"),
    [
        ({}, set()),
        (who(a=[1]), {1}),
        (who(a=[1, 2]), {1, 2}),
        (who(a=[1], b=[0]), {1}),  # each other, one accuser each: the higher id
        (who(b=[0], a=[1], c=[0]), {0}),  # each other: the one with more accusers
        (who(b=[0], a=[1], c=[1]), {1}),
        (who(a=[1], b=[2]), {2}),  # 1 is excused: it passes on a stall that it suffers
        (who(a=[1], b=[2], c=[3]), {3}),
        (who(a=[1], b=[2], c=[0]), {2}),  # a ring of accusations: the same rule picks one of all
        (who(a=[1], b=[2], c=[0], d=[0]), {0}),
        (who(a=[1], c=[3]), {1, 3}),
        (who(a=[1], b=[0], c=[3]), {1, 3}),
        (who(a=[1], b=[0, 2]), {1, 2}),
    ],
)
def test_who_goes(accused_by, guilty):
    assert blamed(accused_by) == guilty


ACCUSED = st.dictionaries(
    st.integers(0, 4), st.frozensets(st.integers(0, 4), min_size=1, max_size=3), max_size=5
).map(lambda d: {r: a - {r} for r, a in d.items() if a - {r}})


@given(ACCUSED, st.randoms())
def test_somebody_who_was_accused_goes_and_the_order_means_nothing(accused_by, chance):
    guilty = blamed(accused_by)
    assert bool(guilty) == bool(accused_by)
    assert guilty <= {peer for accused in accused_by.values() for peer in accused}
    shuffled = list(accused_by.items())
    chance.shuffle(shuffled)
    assert blamed(dict(shuffled)) == guilty


@given(st.sets(st.integers(0, 9), min_size=2, max_size=2), st.sets(st.integers(10, 19)))
def test_of_two_that_accuse_each_other_one_goes(pair, others):
    a, b = pair
    accused_by = {a: frozenset({b}), b: frozenset({a})}
    assert blamed(accused_by) == {max(pair)}
    for other in others:
        accused_by[other] = frozenset({min(pair)})
    assert blamed(accused_by) == ({min(pair)} if others else {max(pair)})


def test_only_the_word_of_members_that_said_no_to_this_round_counts():
    records = [
        no(CONFIG, life(0), 1, 3, accuses=(1, 2)),
        no(CONFIG, life(1), 1, 2, accuses=(2,)),  # of another round
        word(CONFIG, life(2), 1, 3, accuses=(0,), stance=Stance.YES),
    ]
    assert accusations(records, 3) == {0: frozenset({1, 2})}


def test_nobody_accuses_itself():
    assert accusations([no(CONFIG, life(0), 1, 3, accuses=(0, 1))], 3) == {0: frozenset({1})}
    assert accusations([no(CONFIG, life(0), 1, 3)], 3) == {}


def test_each_strike_doubles_the_time_up_to_a_limit():
    penalties, waits = (), []
    for round in range(10, 20):
        penalties = punish(penalties, [life(1)], round)
        waits.append(penalties[0].until - round)
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64, 64, 64]
    assert penalties[0].strikes == MAX_STRIKES == 6


def test_a_served_penalty_is_remembered_for_a_while():
    once = punish((), [life(1)], 10)
    assert once == (Penalty(life(1), 12, 1),)
    assert punish(once, [], 12 + FORGET - 1) == once
    assert punish(once, [], 12 + FORGET) == ()
    assert punish(once, [life(1)], 12 + FORGET - 1)[0].strikes == 2
    assert punish(once, [life(1)], 12 + FORGET)[0].strikes == 1


def test_penalties_are_of_one_life_and_in_order():
    found = punish((Penalty(life(2), 20, 3),), [life(1, 2), life(0), life(1)], 10)
    assert found == (
        Penalty(life(0), 12, 1),
        Penalty(life(1), 12, 1),
        Penalty(life(1, 2), 12, 1),
        Penalty(life(2), 20, 3),
    )
