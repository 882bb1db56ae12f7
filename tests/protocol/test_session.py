"""A leader's session with the store: each row of its table, lost answers, and a store that is lost."""

from __future__ import annotations

import msgspec
import pytest

from ftruntime.protocol import store
from ftruntime.protocol.effects import Exit, Note, SetTimer, StoreCall
from ftruntime.protocol.intent import Intent, Want
from ftruntime.protocol.record import Stance
from ftruntime.protocol.registry import genesis, register
from ftruntime.protocol.session import MOVES, Phase

from .builders import (
    after,
    closed,
    committed,
    everyone,
    job,
    life,
    lives,
    no,
    nonce,
    recovering,
    succeeded,
    word,
)
from .desk import CLOSE, COMMIT, CONFIG, GONE, HEAD, Desk, active

# -- registration ------------------------------------------------------------------------------


def test_it_begins_by_reading():
    desk = Desk().start()
    assert desk.requests() == [store.Read(linearizable=True)]
    assert SetTimer("poll", 0, CONFIG.timeouts.poll) in desk.out


def test_the_first_process_founds_the_job_in_an_empty_store():
    desk = Desk(attempt=0).start()
    desk.read(None)
    assert desk.requests() == [store.Cas(0, 0, genesis(CONFIG))]
    desk.answer(store.Cas, store.CasDone(True, genesis(CONFIG)))
    registered, _ = register(CONFIG, genesis(CONFIG), 1, nonce(1))
    assert desk.requests() == [store.Cas(1, 1, registered)]
    desk.answer(store.Cas, store.CasDone(True, registered))
    assert (desk.phase, desk.session.me) == (Phase.ACTIVE, life(1, 1))
    assert desk.requests() == [store.Renew(life(1), CONFIG.timeouts.lease)]
    assert SetTimer("renew", 0, CONFIG.timeouts.lease / 3) in desk.out


def test_who_loses_the_race_to_found_it_registers_with_the_winner():
    desk = Desk(attempt=0).start()
    desk.read(None)
    theirs, _ = register(CONFIG, genesis(CONFIG), 0, nonce(0))
    desk.answer(store.Cas, store.CasDone(False, theirs))
    (request,) = desk.requests()
    assert request == store.Cas(*theirs.order, register(CONFIG, theirs, 1, nonce(1))[0])


def test_a_process_that_was_started_anew_founds_nothing_and_says_that_it_holds_nothing():
    desk = Desk(attempt=1).start()
    desk.read(None)
    (request,) = desk.requests()
    assert isinstance(request, store.Put)
    assert request.record.member == life(1, 0) and request.record.held.step == 0
    assert request.record.seen is None and not request.record.ready
    desk.session.confirm(desk.out)
    assert desk.requests()[-1] == store.Cas(0, 0, genesis(CONFIG)), "unless the operator says so"


@pytest.mark.parametrize("incarnation", [1, 2])
def test_the_lost_answer_to_a_registration(incarnation):
    """What became of it is read: it was carried out, or it is tried again with the same nonce."""
    before = HEAD if incarnation == 2 else after(HEAD, incarnations=((1, nonce(0)), (0, ""), (1, nonce(2))))
    desk = Desk(attempt=incarnation - 1, incarnation=incarnation).start()
    desk.read(before)
    (cas,) = desk.requests()
    desk.unanswered(store.Cas)
    assert desk.requests() == [store.Read(linearizable=True)]
    lost = desk.session.clone()
    desk.read(before)
    assert desk.requests() == [cas]
    lost_desk = Desk(attempt=incarnation - 1, incarnation=incarnation)
    lost_desk.session, lost_desk.out = lost, [StoreCall(2 + 1, store.Read(linearizable=True))]
    lost_desk.read(cas.head)
    assert lost_desk.session.me == life(1, incarnation) and lost_desk.phase is Phase.ACTIVE


def test_a_registration_waits_for_its_answer():
    desk = Desk(attempt=1, incarnation=2).start()
    desk.read(HEAD)
    assert len(desk.requests()) == 1
    desk.see(after(HEAD))
    assert desk.requests() == [], "one request at a time"


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_a_process_that_was_taken_for_dead_does_not_register_after_its_successor(attempt):
    """The third life is there already: only a fourth process may register."""
    third = after(HEAD, incarnations=((1, nonce(0)), (3, nonce(1, 3)), (1, nonce(2))))
    desk = Desk(attempt=attempt, incarnation=attempt + 10).start()
    desk.read(third)
    assert desk.requests() == [] and desk.phase is Phase.GONE
    assert desk.exits() == [Exit("a later process of this replica has registered", True)]


def test_another_job_ends_the_process():
    desk = Desk(config=job(samples_per_step=8)).start()
    desk.read(HEAD)
    (exit,) = desk.exits()
    assert "give every replica the same configuration" in exit.reason and not exit.restart
    assert desk.phase is Phase.GONE


# -- the phase table ---------------------------------------------------------------------------


def test_the_phase_table_is_what_the_docstring_says():
    table = {
        Phase.REGISTERING: {Phase.ACTIVE, Phase.GONE},
        Phase.ACTIVE: {Phase.BEREFT, Phase.GONE},
        Phase.BEREFT: {Phase.ACTIVE, Phase.GONE},
        Phase.GONE: set(),
    }
    assert table == MOVES


def test_a_higher_incarnation_ends_the_process():
    desk = active()
    desk.see(succeeded(HEAD, 1))
    assert desk.exits() == [Exit(GONE, False)] and desk.phase is Phase.GONE


def test_the_higher_incarnation_of_another_replica_is_no_concern():
    desk = active()
    desk.see(succeeded(HEAD, 0))
    assert desk.phase is Phase.ACTIVE and desk.out == []


@pytest.mark.parametrize(
    ("kind", "answer"), [(store.Put, store.PutDone(True)), (store.Renew, store.Renewed(True))]
)
def test_a_refused_write_ends_the_process(kind, answer):
    desk = active()
    desk.session.renew(desk.out)
    desk.session.publish(no(CONFIG, life(1), 2, 4), desk.out)
    desk.answer(kind, answer)
    assert desk.exits() == [Exit(GONE, False)] and desk.phase is Phase.GONE


def test_who_is_gone_does_nothing_and_never_registers_again():
    """Schedule 18."""
    desk = active()
    desk.session.publish(no(CONFIG, life(1), 2, 4), desk.out)
    put = desk.asked(store.Put)[-1].call
    desk.see(succeeded(HEAD, 1))
    desk.fresh()
    session = desk.session
    session.renew(desk.out)
    session.poll(desk.out)
    session.publish(word(CONFIG, life(1), 2, 5), desk.out)
    session.pursue(Intent(Want.CLOSE, 4), desk.out)
    session.pursue(Intent(Want.COMMIT, 4), desk.out)
    session.unanswered(put, desk.out)
    session.confirm(desk.out)
    desk.see(committed(CONFIG, HEAD))
    assert desk.out == [] and desk.phase is Phase.GONE


# -- records -----------------------------------------------------------------------------------


def test_a_record_is_written_when_it_says_something_new():
    desk = active()
    desk.publish(word(CONFIG, life(1), 2, 4))
    assert desk.requests() == []
    desk.publish(no(CONFIG, life(1), 2, 4))
    assert desk.requests() == [store.Put(no(CONFIG, life(1), 2, 4))]


def test_an_unanswered_record_is_written_again_in_its_newest_form_for_ever():
    desk = active()
    desk.publish(no(CONFIG, life(1), 2, 4))
    newest = word(CONFIG, life(1), 2, 4, stance=Stance.YES)
    desk.publish(newest)
    for _ in range(5):
        desk.unanswered(store.Put)
        assert desk.requests() == [store.Put(newest)]
        assert [e.name for e in desk.out if isinstance(e, SetTimer)] == ["store"]


def test_a_new_life_has_said_nothing_yet():
    desk = Desk(attempt=1, incarnation=2).start()
    desk.read(None)
    desk.answer(store.Put, store.PutDone(False))
    desk.see(HEAD)
    desk.answer(store.Cas, store.CasDone(True, succeeded(HEAD, 1)))
    assert desk.session.said is None and desk.session.me == life(1, 2)


# -- leases ------------------------------------------------------------------------------------


def test_the_lease_is_renewed_whether_or_not_the_last_renewal_was_answered():
    desk = active()
    for _ in range(3):
        desk.fresh()
        desk.session.renew(desk.out)
        assert desk.requests() == [store.Renew(life(1), 90.0)]
        assert SetTimer("renew", 0, 30.0) in desk.out
    desk.unanswered(store.Renew)
    assert desk.requests() == []


def test_the_head_is_read_anew_from_time_to_time():
    desk = active()
    desk.session.poll(desk.out)
    assert desk.requests() == [store.Read(linearizable=True)]
    assert SetTimer("poll", 0, CONFIG.timeouts.poll) in desk.out
    desk.session.poll(desk.out)
    assert len(desk.asked(store.Read)) == 1, "not while one is in flight"


# -- intents -----------------------------------------------------------------------------------


def test_a_commit_costs_one_round_trip():
    desk = active()
    desk.pursue(COMMIT)
    (request,) = desk.requests()
    assert (request.epoch, request.version) == HEAD.order
    assert request.head.fate(HEAD.round).name == "COMMITTED" and request.head.by == life(1)


@pytest.mark.parametrize("intent", [CLOSE, Intent(Want.RECOVER, HEAD.round + 1)])
def test_other_intents_read_the_head_and_then_the_records_first(intent):
    desk = active(HEAD if intent is CLOSE else recovering(HEAD))
    desk.pursue(intent)
    assert desk.requests() == [store.Read(linearizable=True)]
    desk.pursue(intent)
    assert desk.requests() == [], "not twice"
    records = [word(CONFIG, m, 2, HEAD.round + 1) for m in everyone(CONFIG)]
    desk.read(desk.session.client.head, *records, leased=everyone(CONFIG))
    (request,) = desk.requests()
    assert isinstance(request, store.Cas) and request.head.round == intent.round + 1


def test_nothing_is_wanted_while_an_answer_is_awaited():
    desk = active()
    desk.pursue(COMMIT)
    desk.pursue(COMMIT)
    assert desk.requests() == []
    desk.pursue(None)
    assert desk.requests() == []


def test_the_lost_answer_to_a_commit_ends_in_what_became_of_the_round():
    """Schedules 4, 5 and 16: it is looked into, and never committed twice."""
    desk = active()
    desk.pursue(COMMIT)
    desk.unanswered(store.Cas)
    assert desk.requests() == [store.Read(linearizable=True)]
    desk.read(committed(CONFIG, HEAD))
    desk.pursue(COMMIT)
    assert desk.requests() == []


def test_a_failed_cas_is_tried_again_for_the_same_round():
    desk = active()
    desk.pursue(COMMIT)
    other = succeeded(HEAD, 0)
    desk.answer(store.Cas, store.CasDone(False, other))
    desk.pursue(COMMIT)
    (request,) = desk.requests()
    assert (request.epoch, request.version) == other.order and request.head.round == HEAD.round + 1
    desk.answer(store.Cas, store.CasDone(False, closed(other)))
    desk.pursue(COMMIT)
    assert desk.requests() == []


def test_while_the_store_is_away_every_request_is_looked_into_for_ever():
    desk = active()
    desk.pursue(COMMIT)
    desk.unanswered(store.Cas)
    for _ in range(5):
        desk.pursue(COMMIT)
        assert desk.requests() == []
        desk.unanswered(store.Read)
        assert desk.requests() == [store.Read(linearizable=True)]
    desk.read(HEAD)
    desk.pursue(COMMIT)
    (request,) = desk.requests()
    assert isinstance(request, store.Cas), "and then the commit goes on"


def test_an_unanswered_fresh_read_is_asked_again_by_whoever_still_wants_it():
    desk = active()
    desk.pursue(CLOSE)
    desk.unanswered(store.Read)
    assert desk.requests() == []
    desk.pursue(CLOSE)
    assert desk.requests() == [store.Read(linearizable=True)]


def not_yet():
    """Replica 1 wants to close a round while replica 0 is undecided about the last commit."""
    asks = recovering(HEAD)
    desk = active(asks)
    intent = Intent(Want.RECOVER, asks.round)
    desk.pursue(intent)
    desk.read(asks, word(CONFIG, life(1), 2, asks.round), leased=lives(0, 1))
    return desk, intent


def test_what_is_too_early_is_put_off_until_the_store_changes():
    desk, intent = not_yet()
    (note,) = [e for e in desk.out if isinstance(e, Note)]
    assert (note.what, note.detail) == ("not-yet", "0.1 has not promised in round 5")
    desk.pursue(intent)
    assert desk.requests() == []
    desk.pursue(msgspec.structs.replace(intent, grace_over=True))
    assert desk.requests() == [store.Read(linearizable=True)], "this is another intent"


@pytest.mark.parametrize("change", ["record", "poll"])
def test_and_taken_up_again_then(change):
    desk, intent = not_yet()
    if change == "record":
        desk.watch(store.RecordChanged(word(CONFIG, life(0), 2, 5)))
    else:
        desk.session.poll(desk.out)
        desk.read(recovering(HEAD), word(CONFIG, life(1), 2, 5), leased=lives(0, 1))
    desk.pursue(intent)
    assert desk.requests() == [store.Read(linearizable=True)]
