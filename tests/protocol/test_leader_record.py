"""The record: what ``as_of`` may say in each state, and when the record is written at all."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol import store
from ftruntime.protocol.head import Status
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.record import Record, Stance

from .builders import (
    after,
    catch_up_plan,
    closed,
    committed,
    head_at,
    head_of,
    held,
    job,
    life,
    lives,
    recovering,
    succeeded,
    target,
    train_plan,
    word,
)
from .chair import Chair

CONFIG = job()
HEAD = head_at(CONFIG, 2)
ROUND = HEAD.round  # 4
COMMITTED = committed(CONFIG, HEAD)

YES = lambda c: c.yes(ROUND)  # noqa: E731
NO = lambda c: c.no(ROUND)  # noqa: E731
WHOLE = lambda c: c.sealed(ROUND, True)  # noqa: E731
PARTIAL = lambda c: c.sealed(ROUND, False)  # noqa: E731
DONE = lambda c: c.done()  # noqa: E731


def see(head):
    return lambda c: c.see(head)


def record_of(c):
    """What the record says, or would say, now."""
    return c.leader._as_of(c.leader.session.client.head)


# -- as_of -------------------------------------------------------------------------------------

AS_OF = [
    ("open", [], ROUND),
    ("voted yes", [YES], ROUND),
    ("sealing", [NO], ROUND),
    ("kept", [NO, WHOLE], ROUND),
    ("dropped, not carried out", [NO, PARTIAL], ROUND),
    ("dropped", [NO, PARTIAL, DONE], ROUND),
    ("the head shows a commit: reading it moves nothing", [YES, see(COMMITTED)], ROUND),
    ("applied", [YES, see(COMMITTED), DONE], ROUND + 1),
    ("the head shows a close: reading it moves nothing", [see(closed(HEAD))], ROUND),
    ("dropped at its word", [see(closed(HEAD)), DONE], ROUND + 1),
    ("committed elsewhere, still running", [see(COMMITTED)], ROUND),
    ("committed elsewhere, sealing", [NO, see(COMMITTED)], ROUND),
    ("committed elsewhere, dropped and not carried out", [NO, see(COMMITTED), PARTIAL], ROUND),
    ("committed elsewhere, dropped", [NO, see(COMMITTED), PARTIAL, DONE], ROUND + 1),
    ("kept, committed, being applied", [NO, WHOLE, see(COMMITTED)], ROUND),
    ("far behind", [YES, see(closed(closed(COMMITTED)))], ROUND),
    ("recovering, before it is carried out", [YES, see(recovering(COMMITTED))], ROUND),
    ("recovering, a promise", [YES, see(recovering(COMMITTED)), DONE], ROUND + 2),
    ("recovering, open round dropped", [YES, see(recovering(HEAD)), DONE], ROUND + 1),
]


@pytest.mark.parametrize(("steps", "as_of"), [x[1:] for x in AS_OF], ids=[x[0] for x in AS_OF])
def test_as_of_is_the_round_whose_predecessors_have_all_been_carried_out(steps, as_of):
    c = Chair(CONFIG, HEAD)
    for step in steps:
        step(c)
    assert record_of(c) == as_of


def test_as_of_never_passes_a_round_that_is_undecided_or_being_applied():
    """Schedule 2, over every short order of events."""
    events = [YES, NO, WHOLE, PARTIAL, see(COMMITTED), see(recovering(COMMITTED)), DONE]
    for order in itertools.permutations(events, 4):
        c = Chair(CONFIG, HEAD)
        for event in order:
            event(c)
            run = c.run
            if run is not None and run.round == ROUND:
                assert record_of(c) <= ROUND
            for record in c.puts():
                assert run is None or record.as_of <= run.round


def catcher(step=2, **changes):
    """Replica 2 catches up while 0 and 1 train: it holds round 4 by a tap."""
    entry = Catcher(life(2), None if step == 2 else target(CONFIG, 2), lives(0), life(0))
    head = head_of(CONFIG, train_plan(CONFIG, 2, lives(0, 1), (entry,)), **changes)
    return Chair(CONFIG, head, step=step, replica=2), head


def test_a_held_round_counts_while_it_is_settled_and_not_carried_out():
    c, head = catcher()
    assert record_of(c) == ROUND
    after_it = committed(CONFIG, head)
    c.see(after_it)
    assert record_of(c) == ROUND, "committed, and its ranks still receive"
    c.yes(ROUND)
    assert c.asked(m.Outcome) and record_of(c) == ROUND, "being applied"
    c.done()
    assert record_of(c) == ROUND + 1 and c.leader.held.lineage == "L3"


def test_a_held_round_that_is_open_counts_no_less_than_the_head():
    c, _ = catcher()
    c.yes(ROUND)
    assert record_of(c) == ROUND and c.asked(m.Outcome) == []


def test_a_promise_waits_for_an_install_that_is_under_way():
    """Before it promises, a member finishes an install: the state of before is just going away."""
    c, head = catcher(step=0)
    c.fetched(1)
    assert c.asked(m.Install)
    c.see(recovering(head))
    assert record_of(c) < ROUND + 1
    c.done()
    for _ in range(3):
        c.done()  # held rounds are dropped
    assert c.said() == (ROUND + 1, "RUNNING", 2)


def test_nor_is_one_made_while_the_ranks_install_and_hold_nothing_else():
    entry = Catcher(life(2), target(CONFIG, 2), lives(0))
    head = head_of(CONFIG, catch_up_plan(CONFIG, 2, (entry,)))
    c = Chair(CONFIG, head, step=0, replica=2)
    c.fetched(1)
    c.see(recovering(head))
    assert c.said()[0] < ROUND + 1
    c.done()
    assert c.said() == (ROUND + 1, "RUNNING", 2)


# -- when it is written ------------------------------------------------------------------------


def quiet(c, *steps):
    """What is written by each of ``steps``."""
    written = []
    for step in steps:
        step(c)
        written.append(len(c.puts()))
    return written


def test_the_first_word_of_a_life_is_written_whatever_it_is():
    (record,) = Chair(CONFIG, HEAD).first[1]
    assert record == Record(life(0), held(CONFIG, 2), ROUND, ROUND, Stance.RUNNING, False)


def test_contributors_without_trouble_stay_silent():
    c = Chair(CONFIG, HEAD)
    later = committed(CONFIG, COMMITTED)
    steps = [YES, see(COMMITTED), DONE, lambda c: c.yes(ROUND + 1), see(later), DONE]
    written = quiet(c, *steps)
    assert written == [0, 0, 0, 0, 0, 0], "an apply that is under way is no trouble either"


def test_at_every_no_it_is_written():
    c = Chair(CONFIG, HEAD)
    assert quiet(c, NO, WHOLE, YES) == [0, 1, 1], "and when it is taken back"


def test_an_undecided_member_says_so():
    c = Chair(CONFIG, HEAD)
    c.see(COMMITTED)
    (record,) = c.puts()
    assert (record.as_of, record.round, record.held.step) == (ROUND, ROUND + 1, 2)


def test_who_is_not_a_contributor_writes_what_differs():
    c, head = catcher()
    assert len(c.first[1]) == 1
    assert quiet(c, see(after(head)), lambda c: c.hear(word(CONFIG, life(0), 2, 4))) == [0, 0]
    c.prepared()
    assert [r.ready for r in c.puts()] == [True]
    c.see(closed(head))
    assert [(r.round, r.as_of) for r in c.puts()] == [(ROUND + 1, ROUND)]
    c.done()
    assert [(r.round, r.as_of) for r in c.puts()] == [(ROUND + 1, ROUND + 1)]


def test_a_recovering_head_asks_everyone():
    c = Chair(CONFIG, HEAD)
    c.see(recovering(HEAD))
    c.done()
    assert c.puts()[-1].as_of == ROUND + 1


def test_a_catch_up_round_has_no_contributors_so_everyone_writes():
    config = job(min_replicas=3)
    c = Chair(config, head_at(config, 2))
    c.see(closed(head_at(config, 2)))
    c.done()
    waiting = head_of(config, catch_up_plan(config, 2, round=6), version=30)
    c.see(waiting)
    c.done()
    assert c.puts()[-1].round == 6


def test_it_says_what_the_replica_holds_and_never_what_it_expects():
    """Schedules 2 and 7."""
    c = Chair(CONFIG, HEAD)
    c.yes(ROUND)
    c.see(COMMITTED)
    assert c.said()[2] == 2
    c.done()
    c.see(recovering(COMMITTED))
    c.done()
    assert c.said()[2] == 3


def test_whom_a_catcher_could_not_reach_is_in_its_record():
    c, _ = catcher(step=0)
    c.fetched(1, ok=False, reason="no donor can be had", accused=(0,))
    (record,) = c.puts()
    assert record.accuses == (0,) and record.fetching is None


def test_what_a_catcher_fetches_is_in_its_record():
    c, _ = catcher(step=0)
    (record,) = c.first[1]
    assert record.fetching == target(CONFIG, 2) and record.held.step == 0


# -- a promise ---------------------------------------------------------------------------------


def promised():
    """Kept, closed by ``recovering``, dropped: the record is a promise."""
    c = Chair(CONFIG, HEAD)
    asks = recovering(HEAD)
    for step in (NO, WHOLE, see(asks), DONE):
        step(c)
    assert c.said() == (ROUND + 1, "RUNNING", 2)
    return c, asks


PROMISED = {
    "a register": lambda c, asks: c.see(succeeded(asks, 1)),
    "a late vote": lambda c, asks: c.yes(ROUND),
    "a late seal": lambda c, asks: c.sealed(ROUND, True),
    "a late timer": lambda c, asks: c.timer("round", ROUND),
    "a late fetch": lambda c, asks: c.fetched(1),
    "warm": lambda c, asks: c.prepared(),
    "a record": lambda c, asks: c.hear(word(CONFIG, life(1), 3, asks.round)),
    "a lease": lambda c, asks: c.lease(life(1), False),
    "the same head": lambda c, asks: c.see(asks),
}


@pytest.mark.parametrize("event", PROMISED.values(), ids=PROMISED)
def test_a_promise_is_kept_until_a_head_of_a_higher_round_is_read(event):
    """A ``register`` is not one."""
    c, asks = promised()
    event(c, asks)
    assert [x for x in c.down if not isinstance(x, m.Enlist)] == []
    assert c.leader.held == held(CONFIG, 2) and c.said()[0] == asks.round


def test_and_not_longer():
    c, asks = promised()
    plan = train_plan(CONFIG, 2, round=asks.round + 1)
    c.see(after(asks, round=asks.round + 1, status=Status.RUNNING, plan=plan))
    assert [type(x) for x in c.down] == [m.Begin]


def test_what_was_committed_and_is_held_is_carried_out_before_the_promise():
    """Schedule 14, for held rounds."""
    c, head = catcher()
    c.yes(ROUND)
    c.see(recovering(committed(CONFIG, head)))
    assert c.asked(m.Outcome) == [m.Outcome(1, ROUND, m.Verdict.APPLY, (7.0,))]
    assert c.said()[0] == ROUND
    c.done()
    assert c.said() == (ROUND + 2, "RUNNING", 3)


def test_what_is_not_whole_is_dropped_before_the_promise():
    c, head = catcher()
    c.see(recovering(committed(CONFIG, head)))
    assert c.asked(m.Outcome) == [m.Outcome(1, ROUND, m.Verdict.DROP)]
    c.done()
    assert c.said() == (ROUND + 2, "RUNNING", 2)


def test_a_fetch_that_is_not_staged_is_given_up_before_the_promise():
    c, head = catcher(step=0)
    c.see(recovering(head))
    assert c.asked(m.StopFetch) == [m.StopFetch()]
    c.done()
    assert c.said() == (ROUND + 1, "RUNNING", 0)
    assert c.leader.session.said.fetching is None


# -- the store is lost -------------------------------------------------------------------------


def test_a_store_that_was_lost_gets_the_newest_head_and_then_a_promise():
    c = Chair(CONFIG, HEAD)
    c.timer("poll", 0)
    c.answer(store.Read, store.View(None, (), ()))
    assert c.puts()[-1].seen == HEAD
    c.yes(ROUND)
    assert c.requests() == [], "training goes on to the vote, commits wait"
    rebuilt = msgspec.structs.replace(recovering(HEAD), epoch=2)
    c.see(rebuilt)
    assert c.asked(m.Outcome) == [m.Outcome(1, ROUND, m.Verdict.DROP)]
    c.done()
    assert c.said() == (ROUND + 1, "RUNNING", 2) and c.leader.session.said.seen is None
