"""The register by itself: what each request does to it, and that nobody else is needed for it."""

from __future__ import annotations

import pytest

from ftruntime.protocol import store
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.record import Held, Record, Stance
from ftruntime.protocol.registry import genesis, register
from ftruntime.store import Register

JOB = JobConfig(replicas=2, ranks_per_replica=1)
OLD, NEW = MemberId(0, 1), MemberId(0, 2)


def record(member):
    return Record(member, Held(0, "state 0", (0,)), 0, 0, Stance.RUNNING, True)


def founded(lives=1):
    """A register in which replica 0 has registered ``lives`` times."""
    kept, head = Register(), genesis(JOB)
    assert kept.execute(store.Cas(0, 0, head), 0.0) == store.CasDone(True, head)
    for life in range(lives):
        entered, _ = register(JOB, head, 0, f"nonce {life}", 0)
        assert kept.execute(store.Cas(*head.order, entered), 0.0).taken
        head = entered
    return kept


def test_each_request_has_its_answer():
    kept = founded()
    assert kept.execute(store.Put(record(OLD)), 0.0) == store.PutDone(False)
    assert kept.execute(store.Renew(OLD, 5.0), 1.0) == store.Renewed(False)
    assert kept.leases[OLD].expires == 6.0
    view = store.View(kept.head, (record(OLD),), (OLD,))
    assert kept.execute(store.Read(linearizable=True), 2.0) == view
    assert kept.execute(store.Expire(OLD), 3.0) == store.Expired() and kept.leases == {}
    with pytest.raises(TypeError, match="not a request"):
        kept.execute(store.Expired(), 3.0)


def test_a_head_is_taken_only_by_who_has_seen_the_one_that_stands():
    kept = founded()
    head = kept.head
    assert kept.execute(store.Cas(0, 0, head), 0.0) == store.CasDone(False, head)
    assert kept.head is head


def test_a_life_that_was_succeeded_is_refused_and_has_lost_its_lease():
    kept = founded()
    kept.execute(store.Renew(OLD, 5.0), 0.0)
    entered, _ = register(JOB, kept.head, 0, "another", 0)
    kept.execute(store.Cas(*kept.head.order, entered), 1.0)
    assert kept.leases == {} and kept.changes[-1] == store.LeaseChanged(OLD, False)
    assert kept.execute(store.Put(record(OLD)), 1.0) == store.PutDone(True)
    assert kept.execute(store.Renew(OLD, 5.0), 1.0) == store.Renewed(True)
    assert kept.execute(store.Renew(NEW, 5.0), 1.0) == store.Renewed(False)


def test_changes_come_in_the_order_of_happening_and_leases_end_in_time():
    kept = founded()
    kept.changes.clear()
    kept.execute(store.Put(record(OLD)), 0.0)
    kept.execute(store.Renew(OLD, 5.0), 0.0)
    kept.execute(store.Renew(OLD, 5.0), 1.0)
    kept.expire_due(5.0)
    assert OLD in kept.leases, "it was prolonged"
    kept.expire_due(6.0)
    ended, taken = (store.LeaseChanged(OLD, live) for live in (False, True))
    assert kept.changes == [store.RecordChanged(record(OLD)), taken, ended]


def test_a_clone_goes_its_own_way():
    kept = founded()
    twin = kept.clone()
    twin.execute(store.Put(record(OLD)), 0.0)
    twin.execute(store.Renew(OLD, 5.0), 0.0)
    assert kept.records == kept.leases == {} and len(twin.changes) == len(kept.changes) + 2
    twin.wipe()
    assert kept.head is not None and twin.head is None


def test_a_store_can_come_back_as_old_as_its_backups():
    kept = founded(lives=2)
    newest = kept.head
    kept.go_back(2)
    assert kept.head.incarnations[0][0] == 0 < newest.incarnations[0][0]
    with pytest.raises(ValueError, match="1 to 1 heads, not 2"):
        kept.go_back(2)
