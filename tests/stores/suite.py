"""What every consensus store must do, whoever serves it: a class to inherit from, one fixture to give.

The fixture ``place`` is a store of its own with ``member()``, a client (``Member``), and, where
``durable`` is True, ``restart()``, which kills the store and starts it again.
"""

from __future__ import annotations

import msgspec
import pytest

from ftruntime.protocol import store as s
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.record import Held, Record, Stance
from ftruntime.protocol.registry import genesis, register

CONFIG = JobConfig(replicas=3, ranks_per_replica=2)
TTL = 60.0


def record(replica, incarnation, round=0):
    return Record(MemberId(replica, incarnation), Held(0, "", (0,)), 0, round, Stance.RUNNING, ready=False)


def heads(count):
    """A head and its successors, each of which registers one more replica."""
    found = [genesis(CONFIG)]
    for replica in range(count - 1):
        found.append(register(CONFIG, found[-1], replica % 3, f"{replica}", 0)[0])
    return found


def cas(before, after):
    expected = (0, 0) if before is None else before.order
    return s.Cas(*expected, after)


class StoreSuite:
    durable = True

    def test_an_empty_store_shows_nothing(self, place):
        assert place.member().ask(s.Read(True)) == s.View(None, (), ())

    def test_of_two_that_swap_one_is_refused_and_sees_why(self, place):
        near, far = place.member(), place.member()
        first, second = heads(2)
        assert near.ask(cas(None, first)) == s.CasDone(True, first)
        assert far.ask(cas(None, first)) == s.CasDone(False, first)
        assert far.ask(cas(first, second)) == s.CasDone(True, second)
        assert near.ask(s.Read(True)).head == far.ask(s.Read(True)).head == second

    def test_many_that_swap_at_once_win_once_each(self, place):
        members = [place.member() for _ in range(8)]
        line = heads(4)
        before = None
        for head in line:
            answers = place.ask_all(members, cas(before, head))
            assert sorted(answer.taken for answer in answers) == [False] * 7 + [True]
            assert {answer.head.order for answer in answers} == {head.order}
            before = head

    def test_a_write_of_an_earlier_life_is_refused(self, place):
        member = place.member()
        assert member.ask(s.Put(record(0, 2))) == s.PutDone(False)
        assert member.ask(s.Put(record(0, 1))) == s.PutDone(True)
        assert member.ask(s.Renew(MemberId(0, 1), TTL)) == s.Renewed(True)
        assert member.ask(s.Read(True)).records == (record(0, 2),)

    def test_a_record_is_overwritten_in_place(self, place):
        member = place.member()
        for round in range(3):
            assert member.ask(s.Put(record(1, 1, round))) == s.PutDone(False)
        assert member.ask(s.Read(True)).records == (record(1, 1, 2),)

    def test_a_lease_ends_when_its_time_is_over_or_its_launcher_says_so(self, place):
        member, watcher = place.member(), place.member()
        member.ask(s.Renew(MemberId(0, 1), 0.3))
        member.ask(s.Renew(MemberId(1, 1), TTL))
        assert member.ask(s.Read(True)).leased == (MemberId(0, 1), MemberId(1, 1))
        watcher.until(lambda: s.LeaseChanged(MemberId(0, 1), False) in watcher.changes)
        assert member.ask(s.Expire(MemberId(1, 1))) == s.Expired()
        watcher.until(lambda: s.LeaseChanged(MemberId(1, 1), False) in watcher.changes)
        assert member.ask(s.Read(True)).leased == ()

    def test_a_lease_that_is_renewed_does_not_end(self, place):
        member, watcher = place.member(), place.member()
        for _ in range(8):
            member.ask(s.Renew(MemberId(0, 1), 2.0))
            watcher.wait(0.3)
        assert s.LeaseChanged(MemberId(0, 1), False) not in watcher.changes

    def test_a_watch_shows_every_change_in_the_stores_order(self, place):
        member, watcher = place.member(), place.member()
        line = heads(6)
        before = None
        for round, head in enumerate(line):
            member.ask(cas(before, head))
            member.ask(s.Put(record(2, 1, round)))
            before = head
        expected = [
            change
            for round, head in enumerate(line)
            for change in (s.HeadChanged(head), s.RecordChanged(record(2, 1, round)))
        ]
        watcher.until(lambda: len(watcher.changes) >= len(expected))
        assert watcher.changes == expected

    def test_who_begins_to_watch_is_told_what_stands(self, place):
        member, (head, *_) = place.member(), heads(1)
        member.ask(cas(None, head))
        member.ask(s.Put(record(0, 1)))
        member.ask(s.Renew(MemberId(0, 1), TTL))
        late = place.member()
        wanted = [s.HeadChanged(head), s.RecordChanged(record(0, 1)), s.LeaseChanged(MemberId(0, 1), True)]
        late.until(lambda: all(change in late.changes for change in wanted))

    def test_a_large_head_comes_through(self, place):
        big = JobConfig(replicas=1000, ranks_per_replica=1)
        head = genesis(big)
        for replica in range(0, 1000, 250):
            head = register(big, head, replica, "n" * 500, 0)[0]
        member = place.member()
        assert member.ask(cas(None, head)).taken
        assert place.member().ask(s.Read(True)).head == head

    def test_what_was_answered_survives_the_store(self, place):
        if not self.durable:
            pytest.skip("this store is not durable")
        member, line = place.member(), heads(3)
        before = None
        for head in line:
            assert member.ask(cas(before, head)).taken
            before = head
        member.ask(s.Put(record(0, 1)))
        member.ask(s.Renew(MemberId(0, 1), TTL))
        place.restart()
        assert place.member().ask(s.Read(True)) == s.View(line[-1], (record(0, 1),), (MemberId(0, 1),))

    def test_who_watched_through_a_restart_misses_nothing(self, place):
        if not self.durable:
            pytest.skip("this store is not durable")
        member, watcher = place.member(), place.member()
        first, second = heads(2)
        member.ask(cas(None, first))
        member.ask(s.Renew(MemberId(0, 1), TTL))
        watcher.until(lambda: len(watcher.changes) == 2)
        place.restart()
        fresh = place.member()
        assert fresh.ask(cas(first, second)).taken
        fresh.ask(s.Expire(MemberId(0, 1)))
        watcher.until(lambda: s.LeaseChanged(MemberId(0, 1), False) in watcher.changes)
        seen = [change.head.version for change in watcher.changes if isinstance(change, s.HeadChanged)]
        assert seen[-1] == second.version and seen == sorted(seen)
        assert msgspec.msgpack.encode(watcher.changes)  # plain values, whatever the transport
