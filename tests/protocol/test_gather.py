"""What a rank hears from its subtree."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.gather import Ballot, RollCall, fold

REPORT = ErrorReport(ErrorClass.PEER_LOST, "reset", (2,))
OTHER = ErrorReport(ErrorClass.TRANSIENT, "flap")


def test_scalars_are_folded_in_order_so_all_replicas_get_the_same_bits():
    values = [(0.1,), (0.2,), (0.3,)]
    assert fold(values) == ((0.1 + 0.2) + 0.3,)
    assert fold(values) != fold(values[::-1]), "another order gives other bits"
    assert fold([(1.0, 2.0), (3.0, 4.0)]) == (4.0, 6.0)
    assert fold([()]) == fold([(), ()]) == ()


def test_scalars_of_different_length_are_a_fault_of_the_code():
    with pytest.raises(ValueError):
        fold([(1.0,), (1.0, 2.0)])


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2])))
def test_yes_when_all_say_yes_whatever_the_order(order):
    ballot = Ballot((0, 1, 2))
    said = [ballot.cast(voter, True, (0.1 * (voter + 1),), None) for voter in order]
    assert said == [None, None, True]
    assert ballot.scalars() == ((0.1 + 0.2) + 0.1 * 3,)


def test_the_first_no_is_passed_on_at_once_and_no_other():
    ballot = Ballot((0, 1, 2))
    assert ballot.cast(1, False, (), REPORT) is False
    assert ballot.cast(2, False, (), OTHER) is None
    assert ballot.report == REPORT


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2])))
def test_a_later_yes_overwrites_a_no(order):
    ballot = Ballot((0, 1, 2))
    for voter in (0, 1, 2):
        ballot.cast(voter, False, (), REPORT)
    assert [ballot.cast(voter, True, (1.0,), None) for voter in order] == [None, None, True]


def test_a_no_takes_a_yes_back():
    ballot = Ballot((0, 1))
    assert ballot.cast(0, True, (), None) is None
    assert ballot.cast(0, False, (), REPORT) is False
    assert ballot.cast(1, True, (), None) is None
    assert ballot.cast(0, True, (), None) is True


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))
def test_what_is_passed_on_is_what_all_say_now(votes):
    ballot, latest, noes = Ballot((0, 1, 2)), {}, 0
    for voter, yes in votes:
        latest[voter] = yes
        news = ballot.cast(voter, yes, (1.0,), None)
        if yes:
            assert news is (True if list(latest.values()).count(True) == 3 else None)
        else:
            noes += 1
            assert news is (False if noes == 1 else None)


def test_a_ballot_is_copied_whole():
    ballot = Ballot((0, 1))
    ballot.cast(0, True, (1.0,), None)
    copy = ballot.clone()
    assert ballot.cast(1, True, (2.0,), None) is True
    assert copy.cast(0, False, (), REPORT) is False and ballot.report is None


def test_a_roll_call_ends_with_the_last_answer_and_counts_each_once():
    call = RollCall((0, 3, 4))
    assert [call.answer(v) for v in (3, 3, 0, 7)] == [False] * 4
    assert call.missing == {4}
    copy = call.clone()
    assert call.answer(4) and not call.answer(4)
    assert call.missing == set() and copy.missing == {4}
