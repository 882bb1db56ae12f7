"""What goes wrong is found, has its class, and changes no sum; the next round goes well without anybody."""

import os
import threading
import time

import psutil
import pytest

from ftruntime.ftar import Failure, Patience
from ftruntime.ftar import communicator as communicators
from ftruntime.ftar.wire import Done, Failed, Heard, Quiet
from ftruntime.ftar.wire_errors import CLASSES, error_class
from ftruntime.protocol.errors import ErrorClass
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import Chunk, Join

from .members import Members

SIZES = [4 * 900, 4 * 3]
IMPATIENT = Patience(chunk=0.5, kernel=20.0, retries=5)


@pytest.fixture
def ring():
    made = []

    def make(*arguments, **options):
        made.append(Members(*arguments, **options))
        return made[-1]

    yield make
    for members in made:
        members.close()


class Damage:
    """Changes the bytes of the ``at``-th write, once."""

    def __init__(self, at, change):
        self.at, self.change, self.seen = at, change, 0

    def __call__(self, there):
        if self.seen == self.at:
            self.change(there)
        self.seen += 1


def flip(there):
    there[len(there) // 2] ^= 1


@pytest.mark.parametrize("at", [0, 5, 11])
def test_a_damaged_chunk_is_found_and_sent_again(ring, at):
    members = ring(3, chunk_bytes=256, checked=True)
    members.damage = damage = Damage(at, flip)
    members.check(members.reduce(1, SIZES))
    assert damage.seen > at, "the damage was done"


def test_without_checksums_damage_goes_unseen(ring):
    """So the test above sees what the checksums do, and not that nothing happens."""
    members = ring(3, chunk_bytes=256)
    members.damage = Damage(5, flip)
    with pytest.raises(AssertionError, match="other bits"):
        members.check(members.reduce(1, SIZES))


def test_damage_again_and_again_gives_the_link_up(ring):
    members = ring(2, chunk_bytes=256, checked=True, patience=IMPATIENT)
    members.damage = flip
    found = members.reduce(1, SIZES)
    reports = [error.report for error in found.values() if isinstance(error, Failure)]
    assert any(r.error_class is ErrorClass.PEER_LOST and "retries" in r.reason and r.accused for r in reports)


def meddle(members, change):
    """``change`` the list of everything that each wire brings."""
    for one in members.all.values():
        poll = one.wire.poll
        one.wire.poll = lambda poll=poll: change(poll())


def test_words_that_come_twice_have_no_effect(ring):
    members = ring(3)
    meddle(members, lambda sights: [s for s in sights for _ in range(1 + isinstance(s, Heard))])
    for round in (1, 2):
        members.check(members.reduce(round, SIZES, seed=round))


def test_words_of_another_round_or_life_have_no_effect(ring):
    members = ring(3)
    left = MemberId(2, 1)
    stale = [
        Heard(left, Chunk(1, 1, 0, True)), Heard(left, Chunk(2, 9, 0, True)), Heard(left, Quiet(0, 1)),
        Heard(MemberId(1, 1), Join(1, 1, 1)),
    ]  # fmt: skip
    members.check(members.reduce(1, SIZES))
    sent = iter([stale])
    one = members.all[MemberId(0, 1)]
    poll = one.wire.poll
    one.wire.poll = lambda: [*next(sent, []), *poll()]
    members.check(members.reduce(2, SIZES, seed=2))


def test_reports_that_come_late_only_delay(ring):
    """A write may be acknowledged by its receiver before its sender hears that it is done."""
    members = ring(2, slots=2, chunk_bytes=64)
    for one in members.all.values():
        poll, late = one.wire.poll, []

        def held(poll=poll, late=late):
            late.append(poll())
            sights = [s for s in late[-1] if not isinstance(s, Done)]
            return sights + ([s for s in late.pop(0) if isinstance(s, Done)] if len(late) > 3 else [])

        one.wire.poll = held
    members.check(members.reduce(1, [4 * 200]))


# -- deaths and stops -----------------------------------------------------------------------------


def at_chunk(members, victim, number, act):
    """``act`` once ``victim`` has been told of ``number`` chunks."""
    one = members.all[victim]
    poll, seen = one.wire.poll, [0]

    def watched():
        sights = poll()
        before = seen[0]
        seen[0] += sum(isinstance(s, Heard) and isinstance(s.word, Chunk) for s in sights)
        if before <= number < seen[0] or (number < 0 and before == 0 and number != seen[0]):
            act()
        return sights

    one.wire.poll = watched


@pytest.mark.parametrize("phase", [0, 8, 20])
def test_a_member_that_dies_costs_its_round_and_no_more(ring, phase):
    members = ring(4, chunk_bytes=128, patience=IMPATIENT)
    victim = MemberId(2, 1)
    at_chunk(members, victim, phase, lambda: members.net.kill(victim))
    found = members.reduce(1, SIZES)
    survivors = tuple(me for me in members.ids if me != victim)
    accused = {a for me in survivors for a in getattr(getattr(found[me], "report", None), "accused", ())}
    assert accused == {victim.replica}, "whoever noticed names the dead"
    members.check(members.reduce(2, SIZES, members=survivors, seed=2))


@pytest.mark.parametrize("phase", [0, 8, 20])
def test_who_stands_still_is_left_behind_and_changes_nothing_when_it_goes_on(ring, phase):
    members = ring(3, chunk_bytes=128, patience=IMPATIENT)
    victim, right = MemberId(1, 1), MemberId(2, 1)
    wire = members.all[victim].wire
    at_chunk(members, victim, phase, lambda: members.net.stop(victim))
    found = members.reduce(1, SIZES)
    assert all(isinstance(outcome, Failure) for outcome in found.values())
    survivors = tuple(me for me in members.ids if me != victim)
    others = [members.all[me] for me in survivors]
    # What it posted while it stood still may land whenever it goes on: also in the middle of the next round.
    late = threading.Timer(0.05, lambda: (members.net.go_on(victim), wire.poll()))
    late.start()
    members.check(members.reduce(2, SIZES, members=survivors, seed=2))
    late.join()
    assert others[1].me == right and others[1].revoked <= 1
    members.check(members.reduce(3, SIZES, members=members.ids, seed=3))


def test_slots_that_were_taken_away_are_used_again_when_they_are_given_back(ring):
    members = ring(3, chunk_bytes=128, patience=IMPATIENT)
    victim, right = MemberId(1, 1), members.all[MemberId(2, 1)]
    at_chunk(members, victim, 8, lambda: members.net.stop(victim))
    members.reduce(1, SIZES)
    survivors = (MemberId(0, 1), MemberId(2, 1))
    members.check(members.reduce(2, SIZES, members=survivors, seed=2))
    if right.revoked:
        assert len(right._left_to) == 1 and not right._spare
        members.net.kill(victim)
        members.check(members.reduce(3, SIZES, members=survivors, seed=3))
        assert not right._left_to and len(right._spare) == 1


@pytest.mark.parametrize("kept", [True, False])
def test_the_rule_of_quiet_is_what_keeps_late_writes_out(ring, monkeypatch, kept):
    """Without it, a write of a round that was given up lands in the slots of the next one (wire.py)."""
    members = ring(3, chunk_bytes=128, patience=IMPATIENT)
    victim, survivors = MemberId(1, 1), (MemberId(0, 1), MemberId(2, 1))
    wire = members.all[victim].wire
    if not kept:
        forget = lambda self, given_up: self._granted.clear()  # noqa: E731
        monkeypatch.setattr(communicators.Communicator, "_clear_slots", forget)
    at_chunk(members, victim, 0, lambda: members.net.stop(victim))
    members.reduce(1, SIZES)
    assert wire._adrift, "it had a write under way"
    at_chunk(members, MemberId(2, 1), 3, lambda: (members.net.go_on(victim), wire.poll()))
    members.reduce(2, SIZES, members=survivors, seed=2)
    assert not wire._adrift and bool(members.intruders) != kept


# -- the own device -------------------------------------------------------------------------------


def test_a_kernel_that_fails_is_fatal_for_its_rank_only(ring, monkeypatch):
    members = ring(2, patience=IMPATIENT)
    one = members.all[MemberId(0, 1)]
    one.engine._constants["UNIT"] = "nonsense"
    found = members.reduce(1, SIZES)
    report = found[one.me].report
    assert report.error_class is ErrorClass.LOCAL_FATAL and "kernel" in report.reason and not report.accused


def test_a_kernel_that_hangs_is_noticed(ring, monkeypatch):
    patience = Patience(chunk=20.0, kernel=0.3, retries=1)
    members = ring(2, patience=patience)
    one = members.all[MemberId(0, 1)]
    monkeypatch.setattr(one.engine._stream, "launch", lambda *arguments: None)
    found = members.reduce(1, SIZES)
    report = found[one.me].report
    assert report.error_class is ErrorClass.LOCAL_FATAL and "has not done operation" in report.reason


# -- errors have classes --------------------------------------------------------------------------


def test_every_status_has_one_class():
    statuses = [status for known in CLASSES.values() for status in known]
    assert len(set(statuses)) == len(statuses) and set(CLASSES) == set(ErrorClass)
    assert error_class("IBV_WC_RETRY_EXC_ERR: port 1") is ErrorClass.TRANSIENT
    assert error_class("something new") is ErrorClass.PEER_LOST


STATUSES = [
    ("NIXL_ERR_BACKEND", None),
    ("NIXL_ERR_INVALID_PARAM", ErrorClass.LOCAL_FATAL),
    ("NIXL_ERR_REMOTE_DISCONNECT", ErrorClass.PEER_LOST),
]


@pytest.mark.parametrize("status, kind", STATUSES)
def test_a_failed_write_is_tried_again_if_that_may_help(ring, status, kind):
    members = ring(2, chunk_bytes=256, patience=IMPATIENT)
    one = members.all[MemberId(0, 1)]
    write, failed = one.wire.write, []

    def fail_third(peer, slot, size, word):
        number = write(peer, slot, size, word)
        if len(failed) < 3:
            failed.append(number)
        return number

    one.wire.write = fail_third
    poll = one.wire.poll
    one.wire.poll = lambda: [
        Failed(s.write, status) if isinstance(s, Done) and s.write == (failed + [-1] * 3)[2] else s
        for s in poll()
    ]
    found = members.reduce(1, SIZES)
    if kind is None:
        members.check(found)
    else:
        assert found[one.me].report.error_class is kind


# -- nothing is left behind -----------------------------------------------------------------------


def test_two_hundred_reconfigurations_leave_nothing_behind(ring):
    members = ring(3, chunk_bytes=1024, patience=IMPATIENT)
    ids, sizes = members.ids, [4 * 30]
    process = psutil.Process(os.getpid())

    def standing():
        return process.num_fds(), threading.active_count()

    members.check(members.reduce(1, sizes))
    before = standing()
    for round in range(2, 202):
        present = ids if round % 2 else ids[round // 2 % 2 : round // 2 % 2 + 2]
        if round % 25 == 0:
            members.reduce(round, sizes, members=present, given_up=lambda: True)
        else:
            members.check(members.reduce(round, sizes, members=present, seed=round))
    assert standing() == before
    for one in members.all.values():
        assert len(one._left_to) + len(one._spare) <= len(ids), "slots do not pile up"
        assert len(one._windows) <= len(ids) and len(one._early) <= communicators.EARLY_WORDS


def test_a_round_that_is_given_up_waits_for_no_time_out(ring):
    never = Patience(chunk=1e6, kernel=1e6, retries=5)
    members = ring(3, chunk_bytes=128, patience=never)
    began = time.monotonic()
    missing = MemberId(1, 1)
    found = members.reduce(1, SIZES, given_up=lambda: time.monotonic() > began + 0.2, skip=[missing])
    assert set(found) == set(members.ids) - {missing}
    assert all(isinstance(outcome, Failure) for outcome in found.values())
