"""The store is lost: it came back empty or older, and what was seen of it is said until it is whole again."""

from __future__ import annotations

import msgspec

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


# -- processes that are not registered -------------------------------------------------------------


NEWBORN = word(CONFIG, life(1, 0), 0, 0, as_of=0, ready=False)


def unregistered(standing, *records, attempt=1):
    """The second process of replica 1 finds ``standing``, and says what it has to say."""
    desk = Desk(attempt=attempt, incarnation=attempt + 1).start()
    desk.read(standing, *records)
    return desk


def test_nobody_registers_in_a_store_that_fell_behind_what_the_watch_has_shown():
    desk = Desk(attempt=1, incarnation=2).start()
    desk.read(HEAD)
    assert desk.phase is Phase.REGISTERING
    desk.answer(store.Cas, store.CasDone(False, None))
    desk.read(None)
    assert desk.requests() == [store.Put(msgspec.structs.replace(NEWBORN, seen=HEAD))]
    desk.answer(store.Put, store.PutDone(False))
    desk.see(recovering(HEAD, epoch=2))
    assert isinstance(desk.requests()[0], store.Cas), "it has been rebuilt"


def test_the_first_process_founds_nothing_when_a_word_knows_of_a_job():
    desk = unregistered(None, word(CONFIG, life(0), 2, 4, seen=HEAD), attempt=0)
    (put,) = desk.requests()
    assert put == store.Put(msgspec.structs.replace(NEWBORN, seen=HEAD)), "and remembers what it heard of"


def test_the_last_word_of_the_dead_stops_a_store_that_is_older():
    """It was written, and its author died before it could suspend the store."""
    old = head_at(CONFIG, 1)
    desk = unregistered(old, word(CONFIG, life(0), 2, 4, seen=HEAD))
    put, cas = desk.requests()
    assert put.record.seen.order == HEAD.order
    assert cas == store.Cas(*old.order, suspend(old))


def test_the_word_of_another_shows_a_member_that_the_store_is_older():
    desk = active()
    desk.watch(store.RecordChanged(word(CONFIG, life(0), 2, 4, seen=committed(CONFIG, HEAD))))
    assert desk.phase is Phase.BEREFT
    desk.see(recovering(committed(CONFIG, HEAD), epoch=2))
    assert desk.phase is Phase.ACTIVE, "words of an earlier epoch show nothing"


def all_restarted(heard=HEAD):
    """All of them; the last word of an earlier life is there still. Replica 1 has said its own."""
    stopped = suspend(head_at(CONFIG, 1))
    last = word(CONFIG, life(0), 2, 4, seen=heard)
    others = [word(CONFIG, life(r, 0), 0, 0, as_of=0, ready=False) for r in (0, 2)]
    desk = unregistered(stopped, last, *others)
    own = desk.session.said
    desk.answer(store.Put, store.PutDone(False))
    desk.watch(store.RecordChanged(own))
    desk.fresh()
    return desk, (stopped, last, *others, own)


def polls(desk, view, count, leased=()):
    for _ in range(count):
        desk.session.poll(desk.out)
        desk.fresh()
        desk.read(*view, leased=leased)
    return [r for r in desk.requests() if isinstance(r, store.Cas)]


def test_those_who_were_all_restarted_rebuild_the_head_of_which_a_word_is_left():
    desk, view = all_restarted()
    enough = int(CONFIG.timeouts.rollback_grace / CONFIG.timeouts.poll)
    assert polls(desk, view, enough - 1) == []
    (cas,) = polls(desk, view, 1)
    assert (cas.head.epoch, cas.head.chain) == (2, HEAD.chain)


def test_they_leave_it_to_whoever_has_a_lease():
    desk, view = all_restarted()
    assert polls(desk, view, 100, leased=lives(2)) == []
    assert polls(desk, view, 2) == []


def test_they_need_not_wait_when_the_operator_says_so():
    desk, _ = all_restarted()
    desk.session.confirm(desk.out)
    assert [r.head.chain for r in desk.requests() if isinstance(r, store.Cas)] == [HEAD.chain]


def test_a_suspended_store_of_which_nobody_knows_more_is_opened_by_the_operator():
    stopped = suspend(HEAD)
    desk = unregistered(stopped)
    own = desk.session.said
    assert own == NEWBORN, "what everybody sees is not worth a word"
    desk.answer(store.Put, store.PutDone(False))
    desk.watch(store.RecordChanged(own))
    assert polls(desk, (stopped, own), 20) == []
    desk.fresh()
    desk.session.confirm(desk.out)
    (cas,) = [r for r in desk.requests() if isinstance(r, store.Cas)]
    assert (cas.head.epoch, cas.head.status, cas.head.chain) == (2, Status.RECOVERING, HEAD.chain)


def test_what_was_heard_is_said_again_when_the_store_loses_it_too():
    desk = unregistered(None, word(CONFIG, life(0), 2, 4, seen=HEAD))
    desk.answer(store.Put, store.PutDone(False))
    desk.session.poll(desk.out)
    desk.fresh()
    desk.read(None)
    (put,) = desk.requests()
    assert put.record.seen == HEAD


def test_a_successor_that_the_rebuilt_head_knows_ends_the_process():
    desk = bereft(None)
    desk.see(succeeded(recovering(HEAD, epoch=2), 1))
    assert desk.exits() == [Exit(GONE, False)]


def test_a_copy_is_independent():
    desk = active()
    copy = desk.session.clone()
    desk.see(succeeded(HEAD, 1))
    assert desk.phase is Phase.GONE and copy.phase is Phase.ACTIVE and copy.client.head == HEAD
