"""The store is lost: it came back empty or older, and what was seen of it is said until it is whole again."""

from __future__ import annotations

from ftruntime.protocol import store
from ftruntime.protocol.effects import Exit, Note
from ftruntime.protocol.head import Status
from ftruntime.protocol.recovery import suspend
from ftruntime.protocol.session import Phase

from .builders import (
    after,
    committed,
    everyone,
    head_at,
    life,
    lives,
    nonce,
    recovering,
    succeeded,
    word,
)
from .desk import COMMIT, CONFIG, GONE, HEAD, Desk, active, bereft

# -- the store is lost -------------------------------------------------------------------------


def test_an_empty_store_is_mourned():
    desk = bereft(None)
    assert desk.phase is Phase.BEREFT
    assert "store-lost" in [e.what for e in desk.out if isinstance(e, Note)]
    (put,) = desk.requests()
    assert put == store.Put(word(CONFIG, life(1), 2, 4, seen=HEAD))
    desk.pursue(COMMIT)
    assert desk.requests() == [], "nothing moves until the head is rebuilt"


def tell_all(desk, *seen):
    """Everyone's record reaches the desk: the heads that replicas 0, 1, 2 have seen."""
    for member, head in zip(everyone(CONFIG), seen, strict=True):
        desk.watch(store.RecordChanged(word(CONFIG, member, 2, 4, seen=head)))


def test_the_head_is_rebuilt_when_all_have_said_what_they_have_seen():
    desk = bereft(None)
    newest = committed(CONFIG, HEAD)
    for member, head in zip(lives(0, 1), (newest, HEAD), strict=True):
        desk.watch(store.RecordChanged(word(CONFIG, member, 2, 4, seen=head)))
        assert desk.requests() == []
    desk.watch(store.RecordChanged(word(CONFIG, life(2), 2, 4, seen=HEAD)))
    (request,) = desk.requests()
    assert (request.epoch, request.version) == (0, 0)
    rebuilt = request.head
    assert (rebuilt.epoch, rebuilt.status, rebuilt.end.step) == (2, Status.RECOVERING, 3)
    desk.answer(store.Cas, store.CasDone(True, rebuilt))
    assert desk.phase is Phase.ACTIVE


def test_a_word_that_the_store_has_lost_again_is_said_again():
    desk = bereft(None)
    desk.answer(store.Put, store.PutDone(False))
    said = desk.session.said
    desk.session.poll(desk.out)
    desk.requests()
    desk.read(None)
    assert desk.requests() == [store.Put(said)]
    desk.answer(store.Put, store.PutDone(False))
    desk.session.poll(desk.out)
    desk.requests()
    desk.read(None, said)
    assert desk.requests() == [], "it is there"


def test_whoever_is_behind_learns_of_a_newer_epoch_from_the_words_of_others():
    desk = bereft(None)
    desk.answer(store.Put, store.PutDone(False))
    newer = after(head_at(CONFIG, 4), epoch=2)
    desk.watch(store.RecordChanged(word(CONFIG, life(0), 4, 4, seen=newer)))
    (put,) = desk.requests()
    assert put.record.member == life(1) and put.record.seen == newer


def test_the_operators_word_replaces_the_missing():
    desk = bereft(None)
    desk.watch(store.RecordChanged(word(CONFIG, life(1), 2, 4, seen=HEAD)))
    assert desk.requests() == []
    desk.session.confirm(desk.out)
    assert isinstance(desk.requests()[-1], store.Cas)


def test_the_word_is_remembered_when_it_comes_early():
    desk = active()
    desk.session.confirm(desk.out)
    desk.session.poll(desk.out)
    desk.read(None, word(CONFIG, life(1), 2, 4, seen=HEAD))
    assert isinstance(desk.requests()[-1], store.Cas)


def test_a_store_that_came_back_older_is_suspended_first():
    old = head_at(CONFIG, 1)
    desk = bereft(old)
    put, cas = desk.requests()
    assert put.record.seen == HEAD
    assert cas == store.Cas(*old.order, suspend(old))
    desk.answer(store.Cas, store.CasDone(True, suspend(old)))
    desk.read(suspend(old), *(word(CONFIG, m, 2, 4, seen=HEAD) for m in everyone(CONFIG)))
    (request,) = desk.requests()
    assert (request.epoch, request.version) == suspend(old).order
    assert (request.head.epoch, request.head.chain) == (2, HEAD.chain)


def test_one_that_came_back_one_change_older_takes_no_commit_with_it():
    """Suspended, it has the version of the newest head, and not its commit."""
    newest = committed(CONFIG, HEAD)
    desk = bereft(HEAD, seen=newest)
    stopped = suspend(HEAD)
    assert stopped.order == newest.order
    desk.answer(store.Cas, store.CasDone(True, stopped))
    desk.read(stopped, *(word(CONFIG, m, 2, 4, seen=newest) for m in lives(0, 1)))
    assert desk.session.said.seen == newest
    desk.watch(store.RecordChanged(word(CONFIG, life(2), 2, 4, seen=stopped)))
    (request,) = desk.requests()
    assert request.head.end.step == 3


def test_a_suspended_store_is_news_to_those_who_have_seen_no_more():
    desk = active()
    desk.see(suspend(HEAD))
    assert desk.phase is Phase.BEREFT
    assert desk.session.said.seen == suspend(HEAD)


def test_it_is_rebuilt_by_one_request_at_a_time():
    desk = bereft(None)
    tell_all(desk, HEAD, HEAD, HEAD)
    assert len(desk.asked(store.Cas)) == 1
    desk.watch(store.RecordChanged(word(CONFIG, life(0), 3, 4, seen=HEAD)))
    assert len(desk.asked(store.Cas)) == 1


def test_losing_the_race_to_rebuild_is_as_good_as_winning():
    desk = bereft(None)
    tell_all(desk, HEAD, HEAD, HEAD)
    theirs = recovering(HEAD, epoch=2)
    desk.answer(store.Cas, store.CasDone(False, theirs))
    assert desk.phase is Phase.ACTIVE and desk.session.client.head == theirs


def test_nobody_registers_in_a_suspended_store():
    desk = Desk(attempt=1, incarnation=2).start()
    desk.read(suspend(HEAD))
    (request,) = desk.requests()
    assert isinstance(request, store.Put) and request.record.member == life(1, 0)
    desk.answer(store.Put, store.PutDone(False))
    desk.see(recovering(HEAD, epoch=2))
    (request,) = desk.requests()
    assert request.head.incarnations[1] == (2, nonce(1, 2))


def test_a_successor_that_the_rebuilt_head_knows_ends_the_process():
    desk = bereft(None)
    desk.see(succeeded(recovering(HEAD, epoch=2), 1))
    assert desk.exits() == [Exit(GONE, False)]


def test_a_copy_is_independent():
    desk = active()
    copy = desk.session.clone()
    desk.see(succeeded(HEAD, 1))
    assert desk.phase is Phase.GONE and copy.phase is Phase.ACTIVE and copy.client.head == HEAD
