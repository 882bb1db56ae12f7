"""What a leader wants of the head, evaluated against the newest that it has seen."""

from __future__ import annotations

import pytest

from ftruntime.protocol import store
from ftruntime.protocol.advance import Next, NotYet, Settled
from ftruntime.protocol.client import StoreClient
from ftruntime.protocol.head import Fate, Status
from ftruntime.protocol.intent import Intent, Want, evaluate

from .builders import committed, everyone, head_at, job, life, recovering, stored, word

CONFIG = job()
HEAD = head_at(CONFIG, 2)
ASKS = recovering(HEAD)


def seen(*heads):
    client = StoreClient(2.0)
    for head in heads:
        client.watched(store.HeadChanged(head), [])
    for member in everyone(CONFIG):
        client.watched(store.RecordChanged(word(CONFIG, member, 2, ASKS.round)), [])
        client.watched(store.LeaseChanged(member, True), [])
    return client


@pytest.mark.parametrize("want", list(Want))
def test_nothing_can_be_wanted_of_a_head_that_was_never_seen(want):
    intent = Intent(want, 4, checkpoint=stored(CONFIG, 2))
    assert evaluate(CONFIG, seen(), intent, life(1)) == NotYet("no head has been seen")


@pytest.mark.parametrize(
    ("head", "intent", "round", "status", "fate"),
    [
        (HEAD, Intent(Want.COMMIT, 4), 5, Status.RUNNING, Fate.COMMITTED),
        (HEAD, Intent(Want.CLOSE, 4), 5, Status.RUNNING, Fate.CLOSED),
        (ASKS, Intent(Want.RECOVER, 5), 6, Status.RUNNING, Fate.CLOSED),
        (HEAD, Intent(Want.CHECKPOINT, 4, checkpoint=stored(CONFIG, 2)), 4, Status.RUNNING, Fate.OPEN),
    ],
)
def test_each_intent_has_the_head_that_grants_it(head, intent, round, status, fate):
    result = evaluate(CONFIG, seen(head), intent, life(1))
    assert isinstance(result, Next) and result.head.by == life(1)
    assert (result.head.round, result.head.status, result.head.fate(4)) == (round, status, fate)
    assert (stored(CONFIG, 2) in result.head.checkpoints) is (intent.want is Want.CHECKPOINT)


@pytest.mark.parametrize("want", [Want.COMMIT, Want.CLOSE])
def test_an_intent_keeps_its_round_whatever_head_it_meets(want):
    """Schedule 16."""
    result = evaluate(CONFIG, seen(HEAD, committed(CONFIG, HEAD)), Intent(want, 4), life(1))
    assert result == Settled(Fate.COMMITTED)


def test_the_end_of_the_grace_is_part_of_the_intent():
    client = seen(ASKS)
    client.watched(store.LeaseChanged(life(0), False), [])
    assert isinstance(evaluate(CONFIG, client, Intent(Want.RECOVER, 5), life(1)), NotYet)
    assert isinstance(evaluate(CONFIG, client, Intent(Want.RECOVER, 5, grace_over=True), life(1)), Next)


def test_a_commit_alone_needs_no_fresh_read():
    assert {w for w in Want if Intent(w, 4).fresh} == {Want.CLOSE, Want.RECOVER}
