"""The emulated store: what it answers, fences, tells, logs, and how it fails."""

from __future__ import annotations

import msgspec
import pytest

from emulator.kernel import Kernel
from emulator.store import EmulatedStore, StoreConfig
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.head import Commit, Head, Rollback, Status, successor
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Kind
from ftruntime.protocol.record import Held, Record, Stance
from ftruntime.protocol.registry import genesis, register
from ftruntime.protocol.store import (
    Cas,
    CasDone,
    Expire,
    Expired,
    HeadChanged,
    LeaseChanged,
    Put,
    PutDone,
    Read,
    RecordChanged,
    Renew,
    Renewed,
    View,
)
from ftruntime.seams import ConsensusStore

JOB = JobConfig(replicas=3, ranks_per_replica=1)
A1, A2, B1 = MemberId(0, 1), MemberId(0, 2), MemberId(1, 1)
LATENCY = 0.5


def _record(member, step=0, as_of=0):
    return Record(member, Held(step, f"state {step}", (0,)), as_of, 0, Stance.RUNNING, True)


class World:
    """A store, and everything that it has said, as (replica, answer or change)."""

    def __init__(self):
        self.kernel, self.said, self.log = Kernel(), [], []
        self.store = EmulatedStore(self.kernel, StoreConfig(latency_s=LATENCY), self.log.append)

    def at(self, time, act):
        self.kernel.at(time, lambda event, now: act(), None)

    def ask(self, replica, request, time=0.0):
        reply = lambda answer, now: self.said.append((now, replica, answer))  # noqa: E731
        self.at(time, lambda: self.store.submit(replica, request, reply))

    def now_ask(self, replica, request):
        """Ask, and run until everything has been said; returns the answer."""
        self.said.clear()
        self.ask(replica, request, self.kernel.now)
        self.kernel.run(self.kernel.now + 10.0 * LATENCY)
        return self.said[0][2] if self.said else None

    def watch(self, replica):
        heard = []
        self.store.watch(replica, lambda change, now: heard.append((now, change)))
        return heard

    def put_head(self, head, replica=0):
        stands = self.store.head
        epoch, version = (0, 0) if stands is None else stands.order
        done = self.now_ask(replica, Cas(epoch, version, head))
        assert done == CasDone(True, head)
        return head

    def start(self, *replicas):
        head = self.put_head(genesis(JOB))
        for replica in replicas:
            head = self.put_head(register(JOB, head, replica, f"nonce {replica} {head.version}")[0])
        return head


def _next(head, **changes):
    return successor(head, **changes)


def test_it_is_a_consensus_store():
    store: ConsensusStore = World().store
    store.unwatch(0)


def test_a_new_store_is_empty_and_answers_after_a_round_trip():
    world = World()
    world.ask(0, Read(True), 1.0)
    world.kernel.run()
    assert world.said == [(1.0 + 2 * LATENCY, 0, View(None, (), ()))]


def test_compare_and_set_takes_one_of_two():
    world = World()
    head = world.start()
    one, other = _next(head, closes=1), _next(head, closes=2)
    for replica, new in ((2, other), (1, one)):
        world.ask(replica, Cas(*head.order, new), 50.0)
    world.said.clear()
    world.kernel.run()
    assert [(r, a.taken, a.head.closes) for _, r, a in world.said] == [(1, True, 1), (2, False, 1)]


def test_requests_of_one_time_are_served_in_the_order_of_replicas_whoever_ran_first():
    def run(order):
        world = World()
        world.start()
        for replica in order:
            world.ask(replica, Renew(MemberId(replica, 1), 5.0), 50.0)
            world.ask(replica, Read(True), 50.0)
        world.said.clear()
        world.kernel.run(60.0)
        return world.said

    assert run([0, 1, 2]) == run([2, 0, 1])
    assert [r for _, r, _ in run([2, 1, 0])] == [0, 0, 1, 1, 2, 2]


def test_a_head_must_go_forward():
    world = World()
    head = world.start()
    with pytest.raises(AssertionError, match="increments the version"):
        world.now_ask(0, Cas(*head.order, head))


def test_records_and_leases_are_shown_and_leases_end():
    world = World()
    world.start(0, 1)
    heard = world.watch(2)
    assert world.now_ask(0, Put(_record(A1))) == PutDone(False)
    asked = world.kernel.now
    assert world.now_ask(0, Renew(A1, 12.0)) == Renewed(False)
    assert world.now_ask(2, Read(True)) == View(world.store.head, (_record(A1),), (A1,))
    world.kernel.run()
    assert [change for _, change in heard] == [
        RecordChanged(_record(A1)),
        LeaseChanged(A1, True),
        LeaseChanged(A1, False),
    ]
    assert heard[-1][0] == asked + LATENCY + 12.0 + LATENCY


def test_a_renewal_at_the_last_moment_counts():
    world = World()
    world.start(0)
    heard = world.watch(2)
    for time in (50.0, 53.0):
        world.ask(0, Renew(A1, 3.0), time)
    world.kernel.run()
    assert [(now, c.live) for now, c in heard] == [(51.0, True), (57.0, False)]


def test_the_launcher_ends_a_lease_at_once():
    world = World()
    world.start(0)
    heard = world.watch(2)
    world.now_ask(0, Renew(A1, 100.0))
    assert world.now_ask(0, Expire(A1)) == Expired()
    assert world.now_ask(0, Expire(A1)) == Expired(), "again is nothing"
    assert [c for _, c in heard] == [LeaseChanged(A1, True), LeaseChanged(A1, False)]


def test_a_registration_fences_the_life_before():
    world = World()
    head = world.start(0)
    world.now_ask(0, Put(_record(A1)))
    world.now_ask(0, Renew(A1, 100.0))
    world.log.clear()
    world.put_head(register(JOB, head, 0, "second")[0])
    assert world.now_ask(0, Put(_record(A1, 7))) == PutDone(True)
    assert world.now_ask(0, Renew(A1, 100.0)) == Renewed(True)
    assert world.now_ask(2, Read(True)).leased == ()
    assert [e[0] for e in world.log] == ["register", "fenced", "fenced"]
    assert world.log[0][2:] == [0, 2] and world.log[1][2:] == [0, 1]


def test_a_later_life_that_has_written_fences_too_and_takes_the_place_of_the_record():
    world = World()
    world.start()
    assert world.now_ask(0, Put(_record(A1))) == PutDone(False)
    assert world.now_ask(0, Put(_record(A2))) == PutDone(False)
    assert world.now_ask(0, Put(_record(A1, 9))) == PutDone(True)
    assert world.now_ask(0, Read(True)).records == (_record(A2),)


def test_a_process_without_a_life_may_leave_word():
    world = World()
    world.start(0)
    world.now_ask(0, Put(_record(A1)))
    unborn = _record(MemberId(0, 0))
    assert world.now_ask(0, Put(unborn)) == PutDone(False)
    assert world.now_ask(0, Read(True)).records == (unborn, _record(A1))


# -- the log --------------------------------------------------------------------------------------------


def _train(head, contributors, round=1):
    ranges = tuple((SampleRange(m.replica, 0, 8),) for m in contributors)
    return msgspec.structs.replace(
        head.plan,
        round=round,
        kind=Kind.TRAIN,
        contributors=contributors,
        ranges=ranges,
        divisor=len(contributors),
    )


def test_heads_are_logged_when_a_round_or_the_chain_changes():
    world = World()
    head = world.start(0, 1)
    assert [e[0] for e in world.log] == ["head", "register", "register"]
    first = world.log[0]
    assert first[2:8] == [1, 1, 1, "running", None, None] and first[8]["kind"] == "catch_up"
    world.log.clear()
    head = world.put_head(_next(head, round=2, plan=_train(head, (A1, B1), 2), by=A1))
    entry = world.log[-1]
    assert entry[6] == [0, 1]
    assert entry[7] == {"round": 1, "outcome": "closed", "step_after": 0, "lineage_after": head.end.lineage}
    assert entry[8]["contributors"] == [[0, 1], [1, 1]] and entry[8]["ranges"] == [[[0, 0, 8]], [[1, 0, 8]]]
    chain = (*head.chain, Commit(1, "one", 2, (A1, B1)))
    head = world.put_head(_next(head, round=3, chain=chain, plan=_train(head, (A1,), 3), by=B1))
    assert world.log[-1][7] == {"round": 2, "outcome": "committed", "step_after": 1, "lineage_after": "one"}
    count = len(world.log)
    world.put_head(_next(head, closes=1))
    assert len(world.log) == count


def test_a_rollback_is_logged_with_the_records_that_it_was_made_of():
    world = World()
    head = world.start(0, 1)
    chain = (*head.chain, Commit(1, "one", 1, (A1, B1)))
    head = world.put_head(_next(head, round=2, chain=chain))
    for member in (A1, B1):
        world.now_ask(member.replica, Put(_record(member, 0)))
    world.now_ask(0, Renew(A1, 100.0))
    head = world.put_head(_next(head, round=3, status=Status.RECOVERING))
    assert world.log[-1][5] == "recovering" and world.log[-1][8] is None
    rollback = Rollback(4, 1, 0, head.chain[0].lineage, "step 0 checkpoint")
    world.put_head(_next(head, round=4, status=Status.RUNNING, chain=head.chain[:1], rollback=rollback))
    assert world.log[-1][9] == {
        "to_step": 0,
        "to_lineage": head.chain[0].lineage,
        "lost_steps": 1,
        "from_step": 1,
        "live": [[0, 1, 0, "state 0"]],
        "source": "checkpoint",
    }


# -- faults ---------------------------------------------------------------------------------------------


def test_a_lost_answer_was_carried_out():
    world = World()
    head = world.start()
    world.store.lose_answers(1, lambda request: isinstance(request, Cas))
    assert world.now_ask(1, Cas(*head.order, _next(head))) is None
    assert world.now_ask(1, Read(True)).head.version == head.version + 1
    assert world.now_ask(1, Cas(*head.order, _next(head))) == CasDone(False, world.store.head)


def test_what_an_unavailable_store_is_asked_is_neither_done_nor_answered():
    world = World()
    world.start(0)
    world.now_ask(0, Renew(A1, 12.0))
    heard = world.watch(2)
    world.store.unavailable(20.0)
    back = world.kernel.now + 20.0
    assert world.now_ask(0, Put(_record(A1))) is None
    world.kernel.run()
    assert heard == [(back + 12.0 + LATENCY, LeaseChanged(A1, False))], "leases run anew"
    assert world.now_ask(0, Read(True)).records == ()


def test_a_slow_store_answers_late_and_keeps_the_order():
    world = World()
    world.store.slow_down(10.0)
    world.ask(0, Read(True), 1.0)
    world.at(1.5, lambda: world.store.slow_down(1.0))
    world.ask(0, Renew(A1, 1.0), 2.0)
    world.kernel.run()
    assert [(now, type(a)) for now, _, a in world.said] == [(6.5, View), (6.5, Renewed)]


def test_after_a_change_of_leader_reads_may_be_stale_unless_linearizable():
    world = World()
    head = world.start()
    world.store.change_leader(1.0, 30.0)
    assert world.now_ask(0, Read(True)) is None
    new = world.put_head(_next(head))
    assert world.now_ask(1, Read(False)).head == head
    assert world.now_ask(1, Read(True)).head == new
    world.kernel.at(world.kernel.now + 30.0, lambda event, now: None, None)
    world.kernel.run()
    assert world.now_ask(1, Read(False)).head == new


def test_a_store_can_come_back_empty_or_older():
    world = World()
    heads = [world.start(0)]
    world.now_ask(0, Put(_record(A1)))
    world.now_ask(0, Renew(A1, 1e6))
    for _ in range(2):
        heads.append(world.put_head(_next(heads[-1], round=heads[-1].round + 1)))
    world.store.restart_older(1, 0.1)
    world.kernel.run(world.kernel.now + 1.0)
    world.now_ask(0, Read(True))
    assert world.now_ask(0, Read(True)) == View(heads[-2], (_record(A1),), ())
    with pytest.raises(ValueError, match="go back 1 to 3 heads, not 99"):
        world.store.restart_older(99, 0.1)
    world.store.restart_empty(0.1)
    world.now_ask(0, Read(True))
    assert world.now_ask(0, Read(True)) == View(None, (), ())
    world.log.clear()
    rebuilt: Head = _next(heads[-1], epoch=2, round=heads[-1].round + 1)
    world.put_head(rebuilt)
    assert world.log[-1][7]["round"] == heads[-1].round, "what was logged before is not logged again"
    assert "register" not in [entry[0] for entry in world.log]


@pytest.mark.parametrize(("requests", "answers"), [(True, True), (True, False), (False, True)])
def test_a_cut_is_one_way_or_both_and_the_watch_catches_up(requests, answers):
    world = World()
    head = world.start(0, 1)
    heard = world.watch(0)
    world.store.cut([0], 40.0, requests, answers)
    healed = world.kernel.now + 40.0
    assert (world.now_ask(0, Put(_record(A1))) is None) == (requests or answers)
    kept = world.now_ask(1, Read(True)).records
    assert kept == (() if requests else (_record(A1),))
    for version in range(2):
        head = world.put_head(_next(head, closes=version), replica=1)
    world.kernel.run()
    if answers:
        assert [now for now, _ in heard] == [healed + LATENCY] * len(heard)
    changes = [c for _, c in heard if isinstance(c, HeadChanged)]
    assert changes[-1] == HeadChanged(head) and len(changes) == (1 if answers else 2)
    assert world.now_ask(0, Read(True)) is not None


def test_a_replica_that_is_gone_is_told_nothing():
    world = World()
    heard = world.watch(0)
    world.store.unwatch(0)
    world.start()
    assert heard == []


def test_a_store_without_latency_is_refused():
    with pytest.raises(ConfigError, match="latency_s is 0"):
        EmulatedStore(Kernel(), StoreConfig(latency_s=0.0), print)
