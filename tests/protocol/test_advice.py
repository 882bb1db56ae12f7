"""When to close an unfinished round. Whoever follows no advice breaks nothing, so this is about waiting."""

from __future__ import annotations

import itertools

import pytest

from ftruntime.protocol.advice import FREE_RETRIES, RESTS, rest, should_close
from ftruntime.protocol.head import Status
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.record import Stance
from ftruntime.protocol.registry import genesis

from .builders import (
    after,
    catch_up_plan,
    chain,
    everyone,
    head_at,
    head_of,
    job,
    life,
    lives,
    nonce,
    said,
    succeeded,
    target,
    train_plan,
    word,
)

CONFIG = job()
ALL = everyone(CONFIG)
HEAD = head_at(CONFIG, 2)

# What the store says of a contributor, and whether that is trouble, settled, or neither.
WORDS = {
    "silent": (None, True),
    "running": (Stance.RUNNING, True),
    "yes": (Stance.YES, True),
    "no": (Stance.NO, True),
    "gone": (None, False),
    "gone after yes": (Stance.YES, False),
}
TROUBLE = {"no", "gone", "gone after yes"}
SETTLED = TROUBLE | {"yes"}


def tell(words, round=HEAD.round):
    records, leased = [], []
    for member, key in zip(ALL, words, strict=True):
        stance, is_leased = WORDS[key]
        if stance is not None:
            records.append(word(CONFIG, member, 2, round, stance=stance))
        leased += [member] * is_leased
    return said(*records, leased=tuple(leased))


@pytest.mark.parametrize("words", list(itertools.product(WORDS, repeat=3)))
def test_a_round_closes_early_when_someone_failed_and_nobody_is_still_at_it(words):
    expected = bool(TROUBLE & set(words)) and set(words) <= SETTLED
    assert should_close(CONFIG, HEAD, life(0), tell(words), waited=False) is expected


def _accusing(*accused_by_each):
    """Each member's word: no, accusing these; None: silent, with a lease that lasts."""
    records = [
        word(CONFIG, member, 2, HEAD.round, stance=Stance.NO, accuses=accuses)
        for member, accuses in zip(ALL, accused_by_each, strict=True)
        if accuses is not None
    ]
    return said(*records, leased=tuple(ALL))


@pytest.mark.parametrize(
    ("accusations", "expected"),
    [
        (((2,), (2,), None), True),
        (((2,), (), None), True),
        (((), (), None), False),  # they failed, and the third may still be at it
        (((2,), None, None), False),  # the second may still be at it
        (((1,), (2,), None), True),  # the second passes on a stall that it suffers
    ],
)
def test_who_hangs_leader_and_all_keeps_no_round_open(accusations, expected):
    assert should_close(CONFIG, HEAD, life(0), _accusing(*accusations), waited=False) is expected


@pytest.mark.parametrize("words", [("no", "yes", "yes"), ("no", "gone", "yes")])
def test_words_about_another_round_are_no_words_about_this_one(words):
    assert not should_close(CONFIG, HEAD, life(0), tell(words, HEAD.round - 1), waited=False)


def test_a_contributor_that_was_succeeded_is_gone():
    members = tell(("yes", "yes", "silent"))
    assert not should_close(CONFIG, HEAD, life(0), members, waited=False)
    assert should_close(CONFIG, succeeded(HEAD, 2), life(0), members, waited=False)


def test_what_catchers_say_keeps_no_round_open():
    head = head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 1), (Catcher(life(2)),)))
    assert should_close(CONFIG, head, life(0), tell(("no", "yes", "running")), waited=False)


@pytest.mark.parametrize("words", list(itertools.product(["silent", "yes", "no"], repeat=3)))
def test_after_its_time_a_running_round_closes_whatever_was_said(words):
    assert should_close(CONFIG, HEAD, life(0), tell(words), waited=True)
    for status in (Status.RECOVERING, Status.LOST):
        assert not should_close(CONFIG, after(HEAD, status=status), life(0), tell(words), waited=True)


@pytest.mark.parametrize("words", list(itertools.product(WORDS, repeat=3)))
def test_a_round_that_has_not_rested_closes_only_after_its_time(words):
    assert not should_close(CONFIG, HEAD, life(0), tell(words), waited=False, rested=False)
    assert should_close(CONFIG, HEAD, life(0), tell(words), waited=True, rested=False)


def test_tries_rest_longer_and_longer_up_to_a_chunk_time_out():
    rests = [rest(CONFIG, after(HEAD, closes=closes)) for closes in range(FREE_RETRIES + RESTS + 3)]
    assert rests[:FREE_RETRIES] == [0.0] * FREE_RETRIES and rests[FREE_RETRIES] > 0
    growing = rests[FREE_RETRIES : FREE_RETRIES + RESTS + 1]
    assert all(b == 2 * a for a, b in itertools.pairwise(growing))
    assert rests[-3:] == [CONFIG.timeouts.chunk] * 3


# -- rounds without training -------------------------------------------------------------------

PAIR = job(min_replicas=2)
FETCH = Catcher(life(1), target(PAIR, 2), lives(0))


def waiting(*records, catchers=(FETCH,), waited=False, leased=None, **changes):
    """Replica 0 holds step 2, which needs two; 1 fetches it."""
    head = head_of(PAIR, catch_up_plan(PAIR, 2, catchers), chain=chain(PAIR, 2, lives(0)), **changes)
    return should_close(PAIR, head, life(0), said(*records, leased=leased), waited)


HOLDER = word(PAIR, life(0), 2, 4)
FETCHING = word(PAIR, life(1), 0, 4, fetching=target(PAIR, 2))


def test_nothing_would_change():
    assert not waiting(HOLDER, FETCHING)


def test_a_catcher_is_level():
    assert waiting(HOLDER, word(PAIR, life(1), 2, 4))


def test_level_and_not_ready_is_not_enough_to_train_and_yet_ends_its_fetch():
    assert waiting(HOLDER, word(PAIR, life(1), 2, 4, ready=False))


def test_somebody_else_wants_to_catch_up():
    assert waiting(HOLDER, FETCHING, word(PAIR, life(2), 0, 4))


def test_the_catcher_has_gone():
    assert waiting(HOLDER, FETCHING, leased=lives(0))


def test_a_donor_is_lost():
    other = word(PAIR, life(2), 2, 4)
    catchers = (Catcher(life(1), target(PAIR, 2), lives(0, 2)),)
    three = job(min_replicas=3)
    head = head_of(three, catch_up_plan(three, 2, catchers), chain=chain(three, 2, lives(0)))
    there = said(HOLDER, FETCHING, other)
    gone = said(HOLDER, FETCHING, other, leased=lives(0, 1))
    assert not should_close(three, head, life(1), there, waited=False)
    assert should_close(three, head, life(1), gone, waited=False)


def test_every_holder_is_lost_so_a_rollback_begins():
    assert waiting(HOLDER, FETCHING, leased=lives(1))
    undecided = word(PAIR, life(0), 1, 4, as_of=3)
    assert not waiting(undecided, FETCHING), "a live one that may still apply it"


# -- the job begins ----------------------------------------------------------------------------


def beginning(ready, waited=False):
    """The first round: ``ready`` members say so, all of them hold lineage(0)."""
    head = after(genesis(CONFIG), incarnations=tuple((1, nonce(r)) for r in range(3)))
    records = [word(CONFIG, m, 0, 1, ready=m.replica < ready) for m in ALL]
    return should_close(CONFIG, head, life(0), said(*records), waited)


def test_the_first_plan_waits_for_all_replicas_and_then_for_its_grace():
    assert [beginning(ready) for ready in range(4)] == [False, False, False, True]
    assert beginning(1, waited=True)


def test_later_rounds_do_not_wait_for_all():
    head = after(
        head_of(CONFIG, catch_up_plan(CONFIG, 0)),
        round=2,
        incarnations=tuple((1, nonce(r)) for r in range(3)),
    )
    assert should_close(CONFIG, head, life(0), said(word(CONFIG, life(0), 0, 2)), waited=False)
