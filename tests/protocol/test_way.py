"""A catcher's way to the end of the chain: each rule by itself."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ftruntime.protocol.head import Status
from ftruntime.protocol.way import Holding, Way

from .builders import (
    after,
    base,
    chain,
    closed,
    committed,
    head_at,
    head_of,
    job,
    name,
    recovering,
    target,
    train_plan,
)

CONFIG = job()
HEAD = head_at(CONFIG, 4)  # commits 1..4 in rounds 2..5; round 6 is open on step 4
RECEIVING, COMPLETE, BROKEN = Holding


def way(*rounds, fetching=None, staged=False):
    """A way that holds rounds, each on the state that a chain of commits gives it: (round, holding)."""
    made = Way()
    for round, holding in rounds:
        made.begin(train_plan(CONFIG, round - 2))
        if holding is not RECEIVING:
            made.vote(round, holding is COMPLETE, (float(round),))
    if fetching is not None:
        made.fetch(base(CONFIG, fetching))
        made.staged = staged
    return made


def L(step):
    return name(CONFIG, step)


# -- the word of the ranks ---------------------------------------------------------------------


@pytest.mark.parametrize("votes", list(itertools.product([True, False], repeat=3)))
def test_the_first_word_is_final(votes):
    made = way((3, RECEIVING))
    for i, yes in enumerate(votes):
        made.vote(3, yes, (float(i),))
    entry = made.rounds[3]
    assert entry.holding is (COMPLETE if votes[0] else BROKEN) and entry.scalars == (0.0,)


def test_a_word_on_a_round_that_is_not_held_means_nothing():
    made = way((3, RECEIVING))
    made.vote(4, True, ())
    assert set(made.rounds) == {3} and made.rounds[3].holding is RECEIVING


# -- gap ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("holding", [RECEIVING, COMPLETE])
def test_no_gap_while_every_round_since_is_held_or_still_comes(holding):
    made = way((3, COMPLETE), (4, COMPLETE), (5, holding), (6, RECEIVING))
    assert made.gap(HEAD, L(1)) == ""


def test_level_means_no_gap():
    assert Way().gap(HEAD, L(4)) == ""


@pytest.mark.parametrize("missing", [3, 4, 5])
def test_a_round_that_was_missed_is_a_gap(missing):
    """Schedule 9."""
    made = way(*((r, COMPLETE) for r in (3, 4, 5) if r != missing))
    assert made.gap(HEAD, L(1)) == f"round {missing} was missed"


@pytest.mark.parametrize("partial", [3, 4, 5])
def test_a_partial_round_is_a_gap(partial):
    """Schedule 8."""
    made = way(*((r, BROKEN if r == partial else COMPLETE) for r in (3, 4, 5)))
    assert made.gap(HEAD, L(1)) == f"round {partial} is not complete at every rank"


def test_a_broken_round_that_did_not_commit_is_no_gap():
    assert way((6, BROKEN)).gap(HEAD, L(4)) == ""
    assert way((5, COMPLETE), (6, BROKEN)).gap(closed(HEAD), L(3)) == ""


def test_a_state_that_was_cut_off_the_chain_leads_nowhere():
    """Schedule 11."""
    assert way((6, COMPLETE)).gap(HEAD, "cut off branch") == "cut off  is not on the chain"
    gone = after(HEAD, chain=chain(CONFIG, 2))
    assert way((4, COMPLETE)).gap(gone, L(3)) == "L3 is not on the chain"


def test_a_round_on_another_base_is_a_gap():
    """The chain was cut and grew again: the round of that number was planned on another state."""
    made = way((3, COMPLETE), (4, COMPLETE))
    other = msgspec.structs.replace(train_plan(CONFIG, 3), base=base(CONFIG, 9))
    made.begin(other)
    made.vote(5, True, ())
    assert made.gap(HEAD, L(1)) == "the chain between L3 and round 5 is forgotten"


def test_commits_that_the_chain_has_forgotten_are_a_gap():
    """Only the genesis and the last commits are left: what lies between is not known to be held."""
    links = chain(CONFIG, 4)
    made = way((2, COMPLETE), (3, COMPLETE), (4, COMPLETE), (5, COMPLETE))
    forgotten = after(HEAD, chain=(links[0], *links[3:]))
    assert "is forgotten" in made.gap(forgotten, L(0))


@pytest.mark.parametrize(("fetching", "gap"), [(3, ""), (2, "round 4 was missed")])
def test_a_fetch_is_where_the_way_starts(fetching, gap):
    made = way((5, COMPLETE), fetching=fetching)
    assert made.start(L(0)) == L(fetching)
    assert made.gap(HEAD, L(0)) == gap
    made.stop_fetch()
    assert made.start(L(0)) == L(0) and not made.staged and made.target is None


def test_a_new_fetch_is_not_staged():
    made = way(fetching=3, staged=True)
    made.fetch(base(CONFIG, 4))
    assert made.target == base(CONFIG, 4) and not made.staged


# -- apply -------------------------------------------------------------------------------------


@pytest.mark.parametrize("holding", list(Holding))
@pytest.mark.parametrize("held", [0, 1, 2, 3])
@pytest.mark.parametrize("fate", ["committed", "closed", "open"])
def test_a_held_round_is_applied_complete_on_its_own_base_and_on_the_chain(fate, held, holding):
    made = way((3, holding))
    head = head_at(CONFIG, 2)  # round 3 is committed
    if fate != "committed":
        head = head_of(CONFIG, train_plan(CONFIG, 1))
        head = closed(head) if fate == "closed" else head
    entry = made.applicable(head, L(held))
    assert (entry is not None) is (fate == "committed" and held == 1 and holding is COMPLETE)
    if entry is not None:
        assert (entry.plan.round, entry.scalars) == (3, (3.0,))


def test_rounds_are_applied_in_the_order_of_the_chain():
    made = way((4, COMPLETE), (3, COMPLETE), (5, COMPLETE))
    for held, round in ((1, 3), (2, 4), (3, 5)):
        assert made.applicable(HEAD, L(held)).plan.round == round
        made.done(round)
    assert made.applicable(HEAD, L(4)) is None and made.rounds == {}


@pytest.mark.parametrize(
    ("rounds", "held", "pending"),
    [
        (((5, RECEIVING),), 3, True),
        (((5, COMPLETE),), 3, False),
        (((5, BROKEN),), 3, False),
        (((5, RECEIVING),), 2, False),
        (((6, RECEIVING),), 4, False),  # it is open: nobody knows yet whether it will be
        ((), 3, False),
    ],
)
def test_a_committed_round_may_still_be_arriving(rounds, held, pending):
    assert (way(*rounds).pending(HEAD, L(held)) is not None) is pending


# -- drop --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holding", "fate", "held_step", "useless"),
    [
        (COMPLETE, "closed", 4, True),
        (RECEIVING, "closed", 4, True),
        (COMPLETE, "committed", 4, False),
        (RECEIVING, "committed", 4, False),
        (BROKEN, "committed", 4, True),
        (COMPLETE, "committed", 5, True),  # an installed snapshot contains it already
        (COMPLETE, "open", 4, False),
        (BROKEN, "open", 4, False),  # its ranks still have it: it is dropped when its fate is known
        (COMPLETE, "open", 5, False),
    ],
)
def test_what_will_never_be_applied_is_dropped(holding, fate, held_step, useless):
    head = {"open": HEAD, "closed": closed(HEAD), "committed": committed(CONFIG, HEAD)}[fate]
    assert way((6, holding)).useless(head, held_step) == (6 if useless else None)


def test_rounds_of_a_chain_that_was_cut_are_of_no_use():
    cut = after(recovering(HEAD), status=Status.RUNNING, round=8, chain=chain(CONFIG, 3))
    assert way((5, COMPLETE)).useless(cut, 3) == 5


@pytest.mark.parametrize(
    ("rounds", "oldest"),
    [((), None), ((6,), None), ((5, 6), 5), ((5, 3, 6), 3)],
)
def test_the_oldest_round_that_is_settled_and_not_carried_out(rounds, oldest):
    assert way(*((r, RECEIVING) for r in rounds)).oldest_settled(HEAD) == oldest


def test_a_copy_is_independent():
    made = way((3, RECEIVING), fetching=2)
    copy = made.clone()
    made.vote(3, True, ())
    made.done(3)
    made.stop_fetch()
    assert copy.rounds[3].holding is RECEIVING and copy.target == base(CONFIG, 2)
    assert target(CONFIG, 2).lineage == copy.start("")
