"""The view of the store moves forward only, and requests may stay unanswered."""

from __future__ import annotations

import pytest

from ftruntime.protocol import store
from ftruntime.protocol.client import NOTHING, Call, StoreClient
from ftruntime.protocol.effects import SetTimer, StoreCall
from ftruntime.protocol.head import TRAIL, Status, successor
from ftruntime.protocol.recovery import suspend
from ftruntime.protocol.registry import genesis

from .builders import after, committed, head_at, job, life, lives, word

CONFIG = job()
OLD = head_at(CONFIG, 1)
NEW = committed(CONFIG, OLD)
ANEW = after(OLD, epoch=2, version=1)


class Talk:
    """A client, and what it asks."""

    def __init__(self):
        self.client = StoreClient(2.0)
        self.out = []

    def ask(self, purpose="again", request=None):
        self.client.ask(purpose, request or store.Read(linearizable=True), self.out)
        return self.calls()[-1].call

    def calls(self):
        return [effect for effect in self.out if isinstance(effect, StoreCall)]

    def view(self, head, *records, leased=(), linearizable=True, number=None):
        """A read is answered."""
        if number is None:
            number = self.ask("test", store.Read(linearizable=linearizable))
        return self.client.answered(number, store.View(head, records, leased), self.out)

    def watch(self, change):
        self.client.watched(change, self.out)

    def reads(self):
        return [c for c in self.calls() if c.request == store.Read(linearizable=True)]


def seen(*heads):
    talk = Talk()
    for head in heads:
        talk.view(head)
    return talk


def test_an_empty_store():
    talk = Talk()
    assert talk.client.head is None and talk.client.stands == NOTHING == (0, 0)
    talk.view(None)
    assert (talk.client.head, talk.client.lost, talk.client.stands) == (None, False, (0, 0))


def test_every_request_has_its_number_and_its_timer():
    talk = Talk()
    first, second = talk.ask(), talk.ask("cas", store.Cas(0, 0, OLD))
    assert first != second
    assert talk.out == [
        StoreCall(first, store.Read(linearizable=True)),
        SetTimer("store", first, 2.0),
        StoreCall(second, store.Cas(0, 0, OLD)),
        SetTimer("store", second, 2.0),
    ]
    assert talk.client.busy("again") and talk.client.busy("cas") and not talk.client.busy("put")
    assert talk.client.waits_for(first) and not talk.client.waits_for(second + 1)


def test_a_request_is_answered_once_or_given_up_once():
    talk = Talk()
    first, second = talk.ask(), talk.ask("put", store.Put(word(CONFIG, life(0), 1, 3)))
    assert talk.client.expired(second) == Call("put", store.Put(word(CONFIG, life(0), 1, 3)))
    assert talk.client.expired(second) is None
    assert talk.view(OLD, number=first).purpose == "again"
    assert talk.client.expired(first) is None and not talk.client.busy("again")


def test_the_head_of_an_answer_that_was_given_up_is_still_news():
    talk = Talk()
    number = talk.ask()
    talk.client.expired(number)
    assert talk.view(OLD, word(CONFIG, life(1), 1, 3), number=number) is None
    assert talk.client.head == OLD
    assert talk.client.members.record(life(1)) is None, "how old its records are nobody knows any more"


def test_a_read_does_not_overwrite_what_the_watch_has_brought_since_it_was_sent():
    """Served before the lease was taken, answered after the watch told of it."""
    talk = Talk()
    number = talk.ask()
    talk.watch(store.LeaseChanged(life(1), True))
    talk.watch(store.RecordChanged(word(CONFIG, life(1), 1, 3)))
    talk.view(OLD, number=number)
    assert talk.client.leased(life(1)) and talk.client.members.record(life(1)) is not None


def test_a_head_of_another_branch_is_a_lost_store():
    """The store came back older and was written to since: its version has caught up, its past has not."""
    first = genesis(CONFIG)
    ours = successor(successor(first, round=2), round=3)
    theirs = successor(successor(successor(first, closes=1), round=2), round=3)
    talk = seen(ours)
    talk.watch(store.HeadChanged(theirs))
    assert talk.client.lost and talk.client.head == ours and talk.client.standing == theirs


def test_a_head_far_along_the_own_branch_is_no_lost_store():
    ours = later = genesis(CONFIG)
    for _ in range(3 * TRAIL):
        later = successor(later)
    talk = seen(ours)
    talk.watch(store.HeadChanged(later))
    assert talk.client.head == later and not talk.client.lost


# -- forward only ------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), [(OLD, NEW), (OLD, OLD), (NEW, ANEW)])
def test_the_view_moves_forward(first, then):
    talk = seen(first)
    talk.watch(store.HeadChanged(then))
    assert (talk.client.head, talk.client.standing, talk.client.lost) == (then, then, False)
    assert talk.client.stands == then.order


@pytest.mark.parametrize("stale", [OLD, None])
def test_a_read_that_goes_back_is_repeated_linearizably_and_shows_nothing(stale):
    talk = seen(NEW)
    before = talk.client.members
    talk.view(stale, word(CONFIG, life(1), 1, 3), leased=lives(1), linearizable=False)
    assert talk.client.head == talk.client.standing == NEW
    assert talk.client.members == before, "records of the stale replica are as old as its head"
    assert talk.client.busy("again") and talk.calls()[-1].request == store.Read(linearizable=True)
    assert not talk.client.lost


def test_it_is_repeated_once_at_a_time():
    talk = seen(NEW)
    count = len(talk.reads())
    for _ in range(3):
        talk.watch(store.HeadChanged(OLD))
    assert len(talk.reads()) == count + 1


def test_the_repeated_read_ends_the_doubt():
    talk = seen(NEW)
    talk.view(OLD, linearizable=False)
    number = talk.calls()[-1].call
    talk.view(NEW, word(CONFIG, life(1), 2, 4), leased=lives(1), number=number)
    assert not talk.client.lost and talk.client.leased(life(1))
    assert talk.client.members.record(life(1)).held.step == 2


@pytest.mark.parametrize("stale", [OLD, None])
def test_a_store_that_really_went_back_is_lost(stale):
    talk = seen(NEW)
    talk.view(stale, word(CONFIG, life(1), 1, 3), leased=lives(1))
    assert talk.client.lost
    assert talk.client.head == NEW, "what was seen is not forgotten"
    assert talk.client.standing == stale
    assert talk.client.stands == (NOTHING if stale is None else OLD.order)
    assert talk.client.members.record(life(1)) is not None, "records are now those of the new store"


def test_a_store_that_is_as_new_again_is_not_lost():
    talk = seen(NEW)
    talk.view(None)
    talk.watch(store.HeadChanged(ANEW))
    assert (talk.client.lost, talk.client.head, talk.client.standing) == (False, ANEW, ANEW)


def test_what_the_watch_brought_meanwhile_is_no_proof_against_a_read():
    """The store may have served the read before it made that change."""
    talk = seen(OLD)
    number = talk.ask("poll", store.Read(linearizable=True))
    talk.watch(store.HeadChanged(NEW))
    talk.view(OLD, number=number)
    assert not talk.client.lost and talk.client.head == NEW
    assert talk.client.busy("again"), "so it asks once more"


def test_suspending_an_older_store_makes_it_no_newer():
    """It came back one change older: suspended, it has the version that we have seen, and not its commit."""
    talk = seen(NEW)
    talk.view(OLD)
    stopped = suspend(OLD)
    assert stopped.order == NEW.order
    number = talk.ask("cas", store.Cas(*OLD.order, stopped))
    talk.client.answered(number, store.CasDone(True, stopped), talk.out)
    assert talk.client.head == NEW
    talk.view(stopped)
    assert (talk.client.head, talk.client.standing, talk.client.lost) == (NEW, stopped, True)
    assert talk.client.stands == stopped.order


def test_who_has_seen_no_more_than_was_suspended_follows_it():
    talk = seen(OLD)
    talk.watch(store.HeadChanged(suspend(OLD)))
    assert talk.client.head.status is Status.LOST and not talk.client.lost


@pytest.mark.parametrize("taken", [True, False])
def test_the_answer_to_a_cas_shows_the_head_that_stands(taken):
    talk = seen(OLD)
    number = talk.ask("cas", store.Cas(*OLD.order, NEW))
    call = talk.client.answered(number, store.CasDone(taken, NEW), talk.out)
    assert call.purpose == "cas" and talk.client.head == NEW


# -- records and leases ------------------------------------------------------------------------


def test_records_and_leases_follow_the_watch():
    talk = seen(OLD)
    talk.watch(store.RecordChanged(word(CONFIG, life(1), 0, 3)))
    talk.watch(store.RecordChanged(word(CONFIG, life(1), 1, 3)))
    talk.watch(store.LeaseChanged(life(1), True))
    assert talk.client.members.records == (word(CONFIG, life(1), 1, 3),)
    assert talk.client.leased(life(1))
    talk.watch(store.LeaseChanged(life(1), False))
    talk.watch(store.LeaseChanged(life(2), False))
    assert talk.client.members.leased == frozenset()


def test_one_record_per_replica_is_kept():
    talk = seen(OLD)
    talk.watch(store.RecordChanged(word(CONFIG, life(1), 1, 3)))
    talk.watch(store.RecordChanged(word(CONFIG, life(0), 1, 3)))
    talk.watch(store.RecordChanged(word(CONFIG, life(1, 2), 0, 3)))
    assert [r.member for r in talk.client.members.records] == [life(0), life(1, 2)]


def test_a_view_replaces_everything():
    talk = seen(OLD)
    talk.watch(store.RecordChanged(word(CONFIG, life(1), 1, 3)))
    talk.watch(store.LeaseChanged(life(1), True))
    talk.view(NEW, word(CONFIG, life(2), 1, 3), leased=lives(2))
    assert [r.member for r in talk.client.members.records] == [life(2)]
    assert talk.client.members.leased == {life(2)}


def test_a_copy_is_independent():
    talk = seen(OLD)
    number = talk.ask()
    copy = talk.client.clone()
    talk.watch(store.RecordChanged(word(CONFIG, life(1), 1, 3)))
    talk.watch(store.LeaseChanged(life(1), True))
    talk.watch(store.HeadChanged(NEW))
    talk.client.expired(number)
    assert copy.head == OLD and copy.waits_for(number)
    assert copy.members.records == () and copy.members.leased == frozenset()
