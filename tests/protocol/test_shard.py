"""A rank's shard: the phases of its table, and how a state comes from and goes to others."""

from __future__ import annotations

import itertools

import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol.effects import (
    Connect,
    Freeze,
    InstallStaged,
    Release,
    Restore,
    SaveShard,
    Send,
    SendRange,
    Stage,
    Unstage,
    WarmUp,
)
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.shard import Phase

from .builders import catch_up_plan, job, life, lives, name, target, train_plan
from .floor import Floor

CONFIG = job(ranks_per_replica=3)  # position 0 has the leaves 1 and 2
ONE = job(ranks_per_replica=1)
A, B, C = (0, 0), (1, 0), (2, 0)
DONORS = lives(1)
STATE = target(ONE, 0)  # what everyone holds at the beginning


def ranks_do(floor, act):
    for at in floor.ranks:
        floor.act(at, act)
    floor.run()


# -- the table ---------------------------------------------------------------------------------

TABLE = {(Phase.NEW, Phase.IDLE), (Phase.IDLE, Phase.CHANGING), (Phase.CHANGING, Phase.IDLE)}


@pytest.mark.parametrize(("here", "there"), list(itertools.product(Phase, repeat=2)))
def test_a_shard_moves_as_the_table_says(here, there):
    member = Floor(ONE).ranks[A]
    member.phase = here
    if (here, there) in TABLE:
        member._move(there)
        assert member.phase is there
    else:
        with pytest.raises(AssertionError, match=f"rank 0: {here.name} to {there.name}"):
            member._move(there)


# -- warm-up -----------------------------------------------------------------------------------


def test_enlisting_connects_to_the_neighbours_to_come_and_warms_up():
    floor = Floor(CONFIG, (1,))
    member = floor.ranks[1, 0]
    member.phase = Phase.NEW
    out = floor.send((1, 0), m.Enlist(life(1, 3)))
    assert out == [
        Send((1, 1), m.Enlist(life(1, 3))),
        Send((1, 2), m.Enlist(life(1, 3))),
        Connect((0, 2)),
        WarmUp(),
    ]
    assert member.me == life(1, 3) and member.phase is Phase.IDLE


def test_a_replica_is_prepared_when_its_last_rank_is_warm():
    floor = Floor(CONFIG)
    for at in ((0, 2), (0, 0)):
        floor.act(at, lambda member, out: member.warm(out))
        floor.run()
        assert floor.told() == []
    floor.act((0, 1), lambda member, out: member.warm(out))
    floor.run()
    assert floor.told() == [m.Prepared()]
    ranks_do(floor, lambda member, out: member.warm(out))
    assert floor.told() == [], "once"


# -- a catcher fetches -------------------------------------------------------------------------


def fetching(number=1, donors=DONORS, checkpoint="", config=ONE, step=2):
    """Replica 0 is told to fetch the state of ``step``; its donors are not on the floor."""
    floor = Floor(config)
    wanted = target(config, step)
    floor.order(m.StartFetch(number, wanted.step, wanted.lineage, donors, checkpoint))
    floor.run()
    return floor


def asked(floor):
    """(donor, range) of every request on its way."""
    return [
        (to[0], message.index)
        for (_, to), queue in floor.links.items()
        for message in queue
        if isinstance(message, m.RangeRequest)
    ]


def give(floor, index, donor=1, lineage="L2", intact=True, incarnation=1, at=A):
    data = m.RangeData(lineage, index, donor, incarnation, intact)
    return floor.send(at, data, source=(donor, at[1]))


def test_ranges_are_staged_and_the_leader_is_told_once():
    floor = fetching()
    assert asked(floor) == [(1, 0), (1, 1)]
    assert give(floor, 0) == [Stage("L2", 0)]
    assert floor.told() == []
    give(floor, 1)
    assert floor.told() == [m.Fetched(1, True)]
    give(floor, 1)
    floor.order(m.StartFetch(1, 2, "L2", lives(1)))
    assert floor.told() == []
    assert floor.ranks[A].staging == target(ONE, 2)


def test_a_replica_has_fetched_when_its_last_rank_has():
    floor = fetching(config=CONFIG)
    for at in ((0, 0), (0, 2), (0, 1)):
        assert floor.told() == []
        for index in (0, 1):
            give(floor, index, at=at)
        floor.run()
    assert floor.told() == [m.Fetched(1, True)]


def test_donors_change_and_nothing_that_arrived_is_lost():
    floor = fetching(donors=lives(1, 2))
    give(floor, 0)
    floor.links.clear()
    floor.order(m.StartFetch(1, 2, "L2", lives(2)))
    floor.act(A, lambda member, out: member.peer_lost(1, 1, "reset", 0.0, out))
    give(floor, 1, donor=2)
    assert floor.told() == [m.Fetched(1, True)]


@pytest.mark.parametrize("how", ["not here", "lost"])
def test_without_any_donor_the_leader_hears_whom_it_could_not_reach(how):
    floor = fetching(donors=lives(1, 2))
    if how == "not here":
        for donor in (1, 2):
            floor.send(A, m.NotHere("L2", donor, 1), source=(donor, 0))
    else:
        for donor in (2, 1):
            floor.act(A, lambda member, out, d=donor: member.peer_lost(d, 1, "reset", 0.0, out))
    accused = () if how == "not here" else (1, 2)
    assert floor.told() == [m.Fetched(1, False, "no donor can be had", accused)]


def test_a_late_donor_is_struck_out_in_time():
    floor = fetching()
    for now in (20.0, 40.0, 60.0):
        floor.act(A, lambda member, out, t=now: member.timer("range", 1, t, out))
    assert floor.told() == [m.Fetched(1, False, "no donor can be had", (1,))]


@pytest.mark.parametrize("at", [(0, 1), (0, 2)])
def test_one_rank_that_cannot_is_enough(at):
    floor = fetching(config=CONFIG)
    floor.send(at, m.NotHere("L2", 1, 1), source=(1, at[1]))
    floor.run()
    assert floor.told() == [m.Fetched(1, False, "no donor can be had", ())]


def test_what_is_stopped_is_thrown_away_and_nothing_late_has_an_effect():
    floor = fetching()
    give(floor, 0)
    floor.order(m.StopFetch())
    assert floor.done(Unstage) == [Unstage("L2")] and floor.ranks[A].staging is None
    assert give(floor, 1) == []
    floor.send(A, m.NotHere("L2", 1, 1), source=B)
    floor.order(m.StopFetch())
    assert floor.told() == [] and len(floor.done(Unstage)) == 1


def test_another_number_is_another_fetch():
    floor = fetching()
    give(floor, 0)
    floor.links.clear()
    floor.order(m.StartFetch(2, 3, "L3", lives(2)))
    assert floor.done(Unstage) == [Unstage("L2")]
    assert asked(floor) == [(2, 0), (2, 1)]
    assert give(floor, 1) == [], "a range of the old state"
    for index in (0, 1):
        give(floor, index, donor=2, lineage="L3")
    assert floor.told() == [m.Fetched(2, True)]


def test_a_childs_answer_of_an_earlier_fetch_means_nothing():
    floor = fetching(number=2, config=CONFIG)
    for index in (0, 1):
        give(floor, index)
    for child in ((0, 1), (0, 2)):
        floor.send(A, m.Fetched(1, True), source=child)
        floor.send(A, m.Fetched(1, False, "old"), source=child)
    assert floor.told() == []
    for child in ((0, 1), (0, 2)):
        floor.send(A, m.Fetched(2, True), source=child)
    assert floor.told() == [m.Fetched(2, True)]


def test_an_answer_counts_for_the_fetch_it_was_given_in():
    """Half of the subtree had answered when the fetch was stopped and begun again under the same number."""
    floor = fetching(config=CONFIG)
    floor.send(A, m.Fetched(1, True), source=(0, 1))
    floor.order(m.StopFetch())
    floor.order(m.StartFetch(1, 2, "L2", lives(1)))
    for index in (0, 1):
        give(floor, index)
    floor.send(A, m.Fetched(1, True), source=(0, 2))
    assert floor.told() == []


def test_the_timer_of_a_fetch():
    floor = fetching(number=4)
    member = floor.ranks[A]
    assert member.awaits("range", 4) and not member.awaits("range", 3)
    for index in (0, 1):
        give(floor, index)
    assert not member.awaits("range", 4)


# -- restoring from a checkpoint ---------------------------------------------------------------


def restored(floor, lineage="L2", ok=True, reason=""):
    ranks_do(floor, lambda member, out: member.restored(lineage, ok, reason, out))


@pytest.mark.parametrize("checkpoint", ["step-2", "initial"])
def test_a_shard_comes_from_a_checkpoint(checkpoint):
    floor = fetching(donors=(), checkpoint=checkpoint)
    assert floor.done(Restore) == [Restore(checkpoint, 2, "L2")] and asked(floor) == []
    floor.order(m.StartFetch(1, 2, "L2", (), checkpoint))
    assert len(floor.done(Restore)) == 1, "said again, it is not begun again"
    restored(floor)
    restored(floor)
    assert floor.told() == [m.Fetched(1, True)]
    assert floor.ranks[A].staging == target(ONE, 2)


def test_a_checkpoint_that_cannot_be_read():
    floor = fetching(donors=(), checkpoint="step-2")
    restored(floor, ok=False, reason="no such file")
    assert floor.told() == [m.Fetched(1, False, "no such file")]
    floor.order(m.StartFetch(1, 2, "L2", (), "step-2"))
    assert len(floor.done(Restore)) == 2, "it may be tried again"


def test_of_a_subtree_every_rank_restores():
    floor = fetching(donors=(), checkpoint="step-2", config=CONFIG)
    floor.act((0, 1), lambda member, out: member.restored("L2", True, "", out))
    floor.act((0, 0), lambda member, out: member.restored("L2", True, "", out))
    floor.run()
    assert floor.told() == []
    floor.act((0, 2), lambda member, out: member.restored("L2", True, "", out))
    floor.run()
    assert floor.told() == [m.Fetched(1, True)]


def test_a_restore_of_another_state_or_of_none_means_nothing():
    floor = fetching(donors=(), checkpoint="step-2")
    restored(floor, lineage="L1")
    floor.order(m.StopFetch())
    restored(floor)
    assert floor.told() == []


@pytest.mark.parametrize("finished", [False, True])
def test_a_restore_that_is_stopped_leaves_no_buffer_behind(finished):
    """Invariant 12: what was staged from a checkpoint is host memory as well."""
    floor = fetching(donors=(), checkpoint="step-2")
    if finished:
        restored(floor)
    floor.order(m.StopFetch())
    assert floor.done(Unstage) == [Unstage("L2")] and floor.ranks[A].staging is None


# -- install -----------------------------------------------------------------------------------


def test_what_is_staged_becomes_the_state_at_the_leaders_word():
    floor = fetching(config=CONFIG)
    for at in floor.ranks:
        for index in (0, 1):
            give(floor, index, at=at)
    floor.run()
    floor.told()
    floor.order(m.Install(9, 2, "L2"))
    floor.run()
    for at, member in floor.ranks.items():
        assert floor.done(InstallStaged, at) == [InstallStaged(2, "L2")]
        assert member.phase is Phase.CHANGING and member.step == 0
    floor.applied(-1, (0, 0), (0, 1))
    assert floor.told() == []
    floor.applied(-1, (0, 2))
    assert floor.told() == [m.Done(9)]
    for member in floor.ranks.values():
        assert (member.step, member.lineage, member.phase) == (2, "L2", Phase.IDLE)
        assert member.staging is None


def test_only_what_is_staged_is_installed():
    floor = fetching()
    give(floor, 0)
    with pytest.raises(AssertionError, match="only what is staged at every rank"):
        floor.order(m.Install(9, 2, "L2"))


def test_nothing_else_comes_while_the_state_changes():
    floor = fetching()
    for index in (0, 1):
        give(floor, index)
    floor.order(m.Install(9, 2, "L2"))
    with pytest.raises(AssertionError, match="rank 0: CHANGING to CHANGING"):
        floor.order(m.Install(10, 2, "L2"))


def test_an_answer_to_no_order_is_a_fault_of_the_driver():
    with pytest.raises(AssertionError, match="an answer to no order"):
        Floor(ONE).applied(-1)


# -- a donor serves ----------------------------------------------------------------------------

CATCHER = (Catcher(life(2), STATE, lives(0)),)


def donor(catchers=CATCHER):
    floor = Floor(ONE)
    floor.begin(catch_up_plan(ONE, 0, catchers))
    return floor


def request(floor, lineage=STATE.lineage, index=0, replica=2, incarnation=1):
    return floor.send(A, m.RangeRequest(lineage, index, replica, incarnation), source=(replica, 0))


def test_a_donor_freezes_and_serves_what_the_plan_names():
    floor = donor()
    assert floor.done(Freeze) == [Freeze(0, STATE.lineage)]
    assert request(floor) == [SendRange(C, STATE.lineage, 0)]


def test_it_refuses_an_older_life_and_a_state_that_it_has_not():
    floor = donor((Catcher(life(2, 2), STATE, lives(0)), Catcher(life(1), target(ONE, 7), lives(0))))
    assert request(floor) == [Send(C, m.NotHere(STATE.lineage, 0, 1))]
    assert request(floor, "L7", replica=1) == [Send(B, m.NotHere("L7", 0, 1))]


def test_it_serves_the_frozen_state_after_its_own_has_moved_on():
    """Schedule 10."""
    floor = Floor(ONE)
    floor.begin(train_plan(ONE, 0, lives(0), CATCHER))
    floor.buckets(2)
    floor.measure(2)
    floor.order(m.Outcome(1, 2, m.Verdict.APPLY, (1.0,)))
    floor.applied(2)
    assert floor.ranks[A].step == 1
    floor.begin(train_plan(ONE, 1, lives(0), CATCHER))
    assert len(floor.done(Freeze)) == 1 and floor.done(Release) == []
    assert request(floor, index=1) == [SendRange(C, STATE.lineage, 1)]


def test_a_copy_that_no_plan_names_is_released():
    floor = donor()
    floor.begin(catch_up_plan(ONE, 0, round=3))
    assert floor.done(Release) == [Release(STATE.lineage)]
    assert request(floor) == [], "it waits: a plan that this rank has not heard of may allow it"
    floor.begin(catch_up_plan(ONE, 0, round=4))
    assert Send(C, m.NotHere(STATE.lineage, 0, 1)) in floor.log[A]


def test_a_request_may_come_before_the_plan():
    floor = Floor(ONE)
    assert request(floor) == []
    floor.begin(catch_up_plan(ONE, 0, CATCHER))
    assert SendRange(C, STATE.lineage, 0) in floor.log[A]
    kinds = [type(e) for e in floor.log[A] if isinstance(e, Freeze | SendRange)]
    assert kinds == [Freeze, SendRange]


def test_a_rank_that_never_was_a_donor_keeps_no_books():
    floor = Floor(ONE)
    floor.begin(catch_up_plan(ONE, 0))
    assert floor.ranks[A]._donor is None


# -- checkpoints -------------------------------------------------------------------------------


def saved(floor, at, name="step-0", ok=True):
    floor.act(at, lambda member, out: member.saved(name, ok, out))
    floor.run()


def test_a_checkpoint_is_written_when_every_rank_has_its_shard():
    floor = Floor(CONFIG)
    floor.order(m.WriteCheckpoint(3, "step-0"))
    floor.run()
    for at in floor.ranks:
        assert floor.done(SaveShard, at) == [SaveShard("step-0", 0, name(CONFIG, 0))]
    saved(floor, (0, 2))
    saved(floor, (0, 0))
    saved(floor, (0, 1), name="another")
    assert floor.told() == []
    saved(floor, (0, 1))
    assert floor.told() == [m.Done(3)]
    saved(floor, (0, 1))
    assert floor.told() == []


def test_a_shard_that_could_not_be_written_is_never_done():
    floor = Floor(ONE)
    floor.order(m.WriteCheckpoint(3, "step-0"))
    saved(floor, A, ok=False)
    assert floor.told() == []
    floor.order(m.WriteCheckpoint(4, "step-0"))
    saved(floor, A)
    assert floor.told() == [m.Done(4)]


def test_a_checkpoint_that_failed_is_forgotten_with_the_next():
    floor = Floor(CONFIG)
    for order in (3, 5, 8):
        floor.order(m.WriteCheckpoint(order, f"step-{order}"))
        floor.run()
        for at in floor.ranks:
            saved(floor, at, f"step-{order}", ok=at != (0, 2))
        assert floor.told() == [] and list(floor.ranks[A]._calls) == [("done", order)]
    floor.order(m.WriteCheckpoint(9, "step-9"))
    floor.run()
    for at in floor.ranks:
        saved(floor, at, "step-9")
    assert floor.told() == [m.Done(9)] and floor.ranks[A]._calls == {}


def test_a_late_word_on_a_checkpoint_that_was_given_up_is_not_kept():
    floor = Floor(CONFIG)
    floor.order(m.WriteCheckpoint(3, "step-3"))
    floor.run()
    floor.held.add(((0, 1), A))
    saved(floor, (0, 1), "step-3")
    floor.order(m.WriteCheckpoint(5, "step-5"))
    floor.held.clear()
    floor.run()
    assert floor.ranks[A]._calls == {}
    for at in floor.ranks:
        saved(floor, at, "step-5")
    assert floor.told() == [m.Done(5)] and floor.ranks[A]._calls == {}


def test_a_copy_is_independent():
    floor = fetching()
    copy = floor.ranks[A].clone()
    give(floor, 0)
    give(floor, 1)
    out = []
    copy._range(B, m.RangeData("L2", 0, 1, 1), 0.0, out)
    assert out == [Stage("L2", 0)] and copy.up == []
