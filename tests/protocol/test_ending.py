"""The end of a job: what is final stays so, who lingers for whom, and who goes without the last state."""

from __future__ import annotations

import msgspec
import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol import store
from ftruntime.protocol.advance import Next, NotYet, advance
from ftruntime.protocol.advice import should_close
from ftruntime.protocol.effects import Finish
from ftruntime.protocol.ending import PATIENCE, awaited, behind, servers
from ftruntime.protocol.head import Fate, Status
from ftruntime.protocol.member import Member
from ftruntime.protocol.plan import Catcher, Kind
from ftruntime.protocol.recovery import rebuild, recover
from ftruntime.protocol.registry import genesis, register
from ftruntime.protocol.session import Phase

from .builders import (
    after,
    base,
    catch_up_plan,
    everyone,
    head_at,
    head_of,
    job,
    life,
    lives,
    name,
    recovering,
    said,
    stored,
    succeeded,
    target,
    word,
)
from .chair import Chair

CONFIG = job()
ALL = everyone(CONFIG)
LAST = 3
FINAL = head_of(CONFIG, catch_up_plan(CONFIG, LAST), until=LAST)
ROUND = FINAL.round
HAVE_IT = tuple(word(CONFIG, who, LAST, ROUND) for who in ALL)


# -- the head ------------------------------------------------------------------------------------


def test_the_largest_end_that_any_life_brings_counts():
    head = genesis(CONFIG, 5)
    assert head.until == 5 and not head.finished
    for brought, until in ((0, 5), (4, 5), (9, 9), (5, 9)):
        head, _ = register(CONFIG, head, 1, f"life asked for {brought}", until=brought)
        assert head.until == until
    assert not genesis(CONFIG).finished, "a job without an end is never over"


def test_the_commit_of_the_last_step_is_final():
    head = head_at(CONFIG, LAST - 1, until=LAST)
    result = advance(CONFIG, head, head.round, Fate.COMMITTED, ALL[0], said(leased=ALL))
    assert isinstance(result, Next) and result.head.finished
    plan = result.head.plan
    assert (plan.kind, plan.base.step, plan.contributors) == (Kind.CATCH_UP, LAST, ())
    assert plan.reason == "step 3 is the last; held by 0.1, 1.1, 2.1"


def test_one_that_has_registered_since_is_handed_the_last_state():
    head = succeeded(FINAL, 1)
    back = word(CONFIG, life(1, 2), 0, ROUND)
    members = said(HAVE_IT[0], back, HAVE_IT[2])
    assert should_close(CONFIG, head, ALL[0], members, waited=False)
    result = advance(CONFIG, head, ROUND, Fate.CLOSED, ALL[0], members)
    assert isinstance(result, Next) and result.head.finished
    (catcher,) = result.head.plan.catchers
    assert (catcher.member, catcher.fetch) == (life(1, 2), target(CONFIG, LAST))
    assert set(catcher.donors) == set(lives(0, 2))


def test_what_is_final_is_not_rolled_back_though_nobody_has_it():
    late = word(CONFIG, life(0), 1, ROUND)
    result = advance(CONFIG, FINAL, ROUND, Fate.CLOSED, ALL[0], said(late))
    assert result == NotYet("the job is over at step 3, and nobody has that state")
    endless = msgspec.structs.replace(FINAL, until=0)
    gone = advance(CONFIG, endless, ROUND, Fate.CLOSED, ALL[0], said(late))
    assert isinstance(gone, Next) and gone.head.status is Status.RECOVERING


def test_it_is_restored_from_a_checkpoint_unless_that_cannot_be_read():
    head = msgspec.structs.replace(FINAL, checkpoints=(stored(CONFIG, 1), stored(CONFIG, LAST)))
    late = word(CONFIG, life(0), 1, ROUND)
    result = advance(CONFIG, head, ROUND, Fate.CLOSED, ALL[0], said(late))
    assert isinstance(result, Next) and result.head.plan.restore == "step-3"
    blind = msgspec.structs.replace(late, unreadable=("step-3",))
    assert isinstance(advance(CONFIG, head, ROUND, Fate.CLOSED, ALL[0], said(blind)), NotYet)


def test_time_alone_ends_no_round_of_a_job_that_is_over():
    assert not should_close(CONFIG, FINAL, ALL[0], said(*HAVE_IT), waited=True)
    catcher = Catcher(life(1), target(CONFIG, LAST), (life(0),))
    head = head_of(CONFIG, catch_up_plan(CONFIG, LAST, (catcher,)), until=LAST)
    members = said(HAVE_IT[0], word(CONFIG, life(1), 0, ROUND, fetching=target(CONFIG, LAST)))
    assert should_close(CONFIG, head, ALL[0], members, waited=True), "whom nobody serves gets another donor"


def test_a_store_that_was_lost_comes_back_with_the_end():
    words = [msgspec.structs.replace(r, seen=FINAL) for r in HAVE_IT]
    result = rebuild(CONFIG, words, None, False)
    assert isinstance(result, Next) and result.head.finished
    head = result.head
    promises = said(*(word(CONFIG, who, 0, head.round) for who in ALL))
    again = recover(CONFIG, head, head.round, ALL[0], promises, grace_over=True)
    assert isinstance(again, Next) and again.head.finished and again.head.chain == FINAL.chain
    assert again.head.plan.base == base(CONFIG, LAST) and again.head.rollback is None


def test_a_job_that_is_asked_for_more_is_not_over():
    head, _ = register(CONFIG, FINAL, 1, "asked for more", until=LAST + 2)
    assert not head.finished
    members = said(HAVE_IT[0], HAVE_IT[2])
    result = advance(CONFIG, head, ROUND, Fate.CLOSED, ALL[0], members)
    assert isinstance(result, Next) and result.head.plan.contributors == lives(0, 2)


# -- who has what --------------------------------------------------------------------------------


def test_a_replica_is_awaited_until_its_present_life_says_that_it_has_the_state():
    assert awaited(FINAL, said(*HAVE_IT)) == []
    assert awaited(FINAL, said(*HAVE_IT, leased=())) == [], "who has ended well stays on record"
    assert awaited(FINAL, said(*HAVE_IT[:2])) == [2]
    assert awaited(succeeded(FINAL, 0), said(*HAVE_IT)) == [0]
    leaving = word(CONFIG, life(2), 1, ROUND, leaving=True)
    assert awaited(FINAL, said(*HAVE_IT[:2], leaving)) == []


def test_who_is_there_and_may_still_get_the_state():
    late = word(CONFIG, life(1), 1, ROUND)
    members = said(HAVE_IT[0], late)
    assert behind(FINAL, members) == [life(1)]
    assert servers(FINAL, members, life(1)) == [life(0)] and servers(FINAL, members, life(0)) == []
    undecided = word(CONFIG, life(0), LAST - 1, ROUND - 1)
    assert servers(FINAL, said(undecided, late), life(1)) == [life(0)], "it may be applying it right now"
    silent = said(late, leased=lives(0, 1))
    assert servers(FINAL, silent, life(1)) == [life(0)]


# -- the leader ----------------------------------------------------------------------------------


def over(chair):
    """Whether the leader has told its ranks to end, and gave its lease up."""
    told, expired = chair.asked(m.Finish), chair.requests(store.Expire)
    assert bool(told) == bool(expired) == (chair.leader.session.phase is Phase.GONE)
    if told:
        assert told == [m.Finish(LAST, name(CONFIG, LAST))] and expired == [store.Expire(chair.me)]
    return bool(told)


def linger(chair):
    """``linger`` passes."""
    chair.timer("linger", chair.leader.ending._number)


def seated(*records, leased=None, head=FINAL, step=LAST, replica=0):
    return Chair(CONFIG, head, step=step, replica=replica, records=records, leased=leased)


def test_a_leader_goes_when_everybody_has_the_last_state():
    c = seated(*HAVE_IT[:2])
    assert not over(c)
    c.hear(HAVE_IT[2])
    assert over(c)


def test_a_leader_waits_for_one_that_is_away_no_longer_than_linger():
    c = seated(*HAVE_IT[:2], leased=lives(0, 1))
    assert not over(c)
    c.timer("linger", 0)
    assert not over(c), "a timer of another time"
    linger(c)
    assert over(c)


def test_a_leader_waits_longer_for_one_that_is_there_and_not_for_ever():
    c = seated(HAVE_IT[0], HAVE_IT[2], word(CONFIG, life(1), 0, ROUND))
    for _ in range(PATIENCE - 1):
        linger(c)
        assert not over(c)
    linger(c)
    assert over(c)


def test_a_leader_whose_ranks_do_something_stays():
    c = Chair(CONFIG, head_at(CONFIG, LAST - 1, until=LAST), records=HAVE_IT[1:])
    c.yes(c.run.round)
    c.see(msgspec.structs.replace(FINAL, version=c.leader.session.client.head.version + 1))
    assert c.asked(m.Outcome)[0].verdict is m.Verdict.APPLY and not over(c)
    c.done()
    c.hear(word(CONFIG, c.me, LAST, ROUND))
    assert over(c)


def test_the_last_step_gets_a_checkpoint_and_its_writer_stays_until_that_is_on_record():
    config = job(checkpoint_every=50)
    head = head_at(config, LAST - 1, until=LAST)
    have = tuple(word(config, who, LAST, ROUND) for who in ALL)
    writers = 0
    for replica in range(3):
        c = Chair(
            config, head, replica=replica, records=tuple(r for r in have if r.member.replica != replica)
        )
        c.yes(c.run.round)
        c.see(head_of(config, catch_up_plan(config, LAST), until=LAST, version=head.version + 1))
        c.done()
        writes = c.asked(m.WriteCheckpoint)
        c.hear(word(config, c.me, LAST, ROUND))
        assert bool(c.asked(m.Finish)) is not bool(writes)
        writers += len(writes)
    assert writers == 1


def test_a_replica_that_nobody_can_serve_says_so_at_once_and_stays_away():
    c = seated(step=1, leased=lives(0))
    (exit,) = c.exits()
    assert exit.reason.startswith("the job is over at step 3 (L3), and nobody is left") and not exit.restart


@pytest.mark.parametrize(
    "hope",
    [
        {"records": HAVE_IT[1:2], "leased": lives(0, 1)},
        {"leased": lives(0, 2)},
        {"leased": lives(0), "head": msgspec.structs.replace(FINAL, checkpoints=(stored(CONFIG, LAST),))},
        {"leased": lives(0), "head": recovering(FINAL)},
    ],
)
def test_with_any_hope_it_stays_and_not_for_ever(hope):
    hope = {"records": (), "head": FINAL, **hope}
    c = seated(*hope["records"], leased=hope["leased"], head=hope["head"], step=1)
    assert not c.exits()
    gone = False
    for _ in range(PATIENCE):
        assert not gone
        linger(c)
        gone = bool(c.exits())
        if hope["head"].status is Status.RECOVERING:
            break
    assert gone


def test_a_job_that_goes_on_takes_those_who_linger_with_it():
    c = seated(*HAVE_IT[:2])
    number = c.leader.ending._number
    more, _ = register(CONFIG, FINAL, 2, "asked for more", until=LAST + 1)
    c.see(more)
    assert ("goes-on", ROUND, "the job goes on to step 4") in c.notes()
    c.timer("linger", number)
    assert not over(c)


def test_who_has_the_result_and_lost_the_store_ends_well_when_linger_has_passed():
    c = seated(*HAVE_IT[:2])
    c.see(after(FINAL, status=Status.LOST))
    assert c.leader.session.phase is Phase.BEREFT and not over(c)
    linger(c)
    assert over(c)


# -- a rank --------------------------------------------------------------------------------------


def test_a_rank_that_was_told_survives_its_mates():
    member, out = Member(CONFIG, 0, 1), []
    member.step, member.lineage = LAST, name(CONFIG, LAST)
    member.command((0, 0), m.Finish(LAST, name(CONFIG, LAST)), 0.0, out)
    assert out == [Finish(LAST, name(CONFIG, LAST))]
    member.peer_lost(0, 1, "connection reset", 0.0, out)
    assert len(out) == 1


def test_a_rank_ends_well_with_the_last_state_alone():
    member = Member(CONFIG, 0, 1)
    with pytest.raises(AssertionError, match="the last state alone"):
        member.command((0, 0), m.Finish(LAST, name(CONFIG, LAST)), 0.0, [])
