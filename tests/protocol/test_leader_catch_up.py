"""A replica that catches up: fetch, hold, install, apply, and what makes it begin again."""

from __future__ import annotations

import msgspec
import pytest

from ftruntime.protocol import messages as m
from ftruntime.protocol.effects import SetTimer
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.record import Stance

from .builders import (
    after,
    catch_up_plan,
    closed,
    committed,
    head_of,
    held,
    job,
    life,
    lives,
    name,
    recovering,
    stored,
    target,
    train_plan,
)
from .chair import LOST, Chair

CONFIG = job()  # the window is 4 held steps
PAIR = lives(0, 1)
APPLY, DROP = m.Verdict.APPLY, m.Verdict.DROP


def head_with(step, fetch=None, donors=PAIR, **changes):
    """Replicas 0 and 1 train on ``step`` (round ``step + 2``); replica 2 catches up."""
    return head_of(CONFIG, plan_with(step, fetch, donors), **changes)


def plan_with(step, fetch=None, donors=PAIR):
    entry = Catcher(life(2), None if fetch is None else target(CONFIG, fetch), donors, life(0))
    return train_plan(CONFIG, step, PAIR, (entry,))


def goes_on(head, fetch=None, donors=PAIR):
    """The head after the round has committed, and what the next plan says of replica 2."""
    return committed(CONFIG, head, plan_with(head.plan.base.step + 1, fetch, donors))


def catcher(step=0, fetch=2):
    """Replica 2 holds ``step`` and is told to fetch step 2."""
    head = head_with(2, fetch)
    return Chair(CONFIG, head, step=step, replica=2), head


def where(c):
    return c.leader.held.step, c.leader.held.lineage


def orders(c):
    return [(x.round, x.verdict, x.scalars) for x in c.asked(m.Outcome)]


# -- fetch and install -------------------------------------------------------------------------


def test_it_holds_the_round_and_fetches_its_base():
    c, head = catcher()
    begin, fetch = c.first[0][1:]
    assert isinstance(begin, m.Begin) and begin.plan == head.plan
    assert fetch == m.StartFetch(1, 2, "L2", PAIR, "")
    assert c.run is None and list(c.leader.way.rounds) == [4]


def test_what_all_ranks_have_staged_is_installed_and_only_then_held():
    c, _ = catcher()
    c.fetched(1)
    assert c.asked(m.Install) == [m.Install(1, 2, "L2")] and c.leader.held == held(CONFIG, 0)
    assert [r.held.step for r in c.puts()] in ([0], [])
    c.done()
    assert c.leader.held == held(CONFIG, 2)
    (record,) = c.puts()
    assert record.held.step == 2 and record.fetching is None


def test_the_answer_of_another_fetch_means_nothing():
    c, _ = catcher()
    c.fetched(2)
    c.fetched(0)
    c.fetched(0, ok=False)
    assert c.down == [] and c.leader.way.target is not None


def test_a_fetch_goes_on_with_other_donors():
    c, head = catcher()
    c.see(goes_on(head, 2, lives(1)))
    assert c.asked(m.StartFetch) == [m.StartFetch(1, 2, "L2", lives(1), "")], "the number is the same"


def test_another_base_is_another_fetch():
    c, head = catcher()
    c.see(goes_on(head, 3))
    assert c.asked(m.StartFetch) == [m.StartFetch(2, 3, "L3", PAIR, "")]
    c.fetched(1)
    assert c.asked(m.Install) == []
    c.fetched(2)
    assert c.asked(m.Install) == [m.Install(1, 3, "L3")]


def test_a_fetch_that_failed_is_stopped_and_the_next_plan_says_what_to_do():
    c, head = catcher()
    c.fetched(1, ok=False, reason="no donor can be had", accused=(0, 1))
    assert c.asked(m.StopFetch) == [m.StopFetch()]
    (record,) = c.puts()
    assert (record.accuses, record.fetching) == ((0, 1), None)
    c.see(closed(head))
    assert [type(x) for x in c.down if not isinstance(x, m.Outcome)] in ([], [m.Begin, m.StartFetch])
    c.done()
    assert c.leader._fetch_number == 2


def test_a_plan_that_goes_on_with_a_fetch_that_was_given_up_starts_nothing():
    """It was made of an older record: its base is another state, of which alone the ledger is known."""
    c, head = catcher()
    c.fetched(1, ok=False, reason="no donor can be had")
    c.see(goes_on(head, 2))
    c.done()
    assert c.asked(m.Begin) and c.asked(m.StartFetch) == [] and c.leader.way.target is None


def test_what_is_staged_and_off_the_chain_is_not_installed():
    """The chain was cut while the ranks carried out an order; then the fetch ends."""
    c, head = catcher()
    c.see(closed(head))
    assert orders(c) == [(4, DROP, ())]
    plan = msgspec.structs.replace(plan_with(1, 1), round=7)
    c.see(after(head, round=7, version=40, chain=head.chain[:2], plan=plan))
    c.fetched(1)
    c.done()
    assert c.asked(m.Install) == [] and c.asked(m.StopFetch) == [m.StopFetch()]


def test_without_training_it_fetches_and_holds_nothing():
    entry = Catcher(life(2), target(CONFIG, 2), lives(0))
    head = head_of(CONFIG, catch_up_plan(CONFIG, 2, (entry,)))
    c = Chair(CONFIG, head, step=0, replica=2)
    assert c.leader.way.rounds == {}
    assert c.first[0][-1] == m.StartFetch(1, 2, "L2", lives(0), "")


def test_a_checkpoint_that_cannot_be_restored_is_named_in_the_record():
    entry = Catcher(life(2), target(CONFIG, 2))
    plan = catch_up_plan(CONFIG, 2, (entry,), restore="step-2")
    c = Chair(CONFIG, head_of(CONFIG, plan, checkpoints=(stored(CONFIG, 2),)), step=0, replica=2)
    assert c.leader.session.said.unreadable == ()
    c.fetched(1, ok=False, reason="no such file")
    assert [r.unreadable for r in c.puts()] == [("step-2",)]
    c.see(closed(head_of(CONFIG, plan, checkpoints=(stored(CONFIG, 2),))))
    c.fetched(2, ok=False, reason="no such file")
    assert c.leader.session.said.unreadable == ("step-2",), "once, however often it fails"


@pytest.mark.parametrize(("step", "source"), [(2, "step-2"), (0, "initial")])
def test_without_a_donor_it_restores(step, source):
    entry = Catcher(life(2), target(CONFIG, step))
    head = head_of(
        CONFIG,
        catch_up_plan(CONFIG, step, (entry,), restore=source),
        checkpoints=(stored(CONFIG, step),) if step else (),
    )
    c = Chair(CONFIG, head, step=9, replica=2)
    assert c.first[0][-1] == m.StartFetch(1, step, name(CONFIG, step), (), source)


def test_a_holder_of_the_base_fetches_nothing():
    c, _ = catcher(step=2)
    assert [type(x) for x in c.first[0]] == [m.Enlist, m.Begin]


# -- hold and apply ----------------------------------------------------------------------------


def test_a_fetch_longer_than_a_step_stalls_nobody():
    """It takes three steps; what was held meanwhile is applied one by one."""
    c, head = catcher()
    for round in (4, 5, 6):
        c.yes(round, (float(round),))
        head = goes_on(head, 2)
        c.see(head)
        assert orders(c) == []
    c.fetched(1)
    c.done()
    for step, round in ((3, 4), (4, 5), (5, 6)):
        assert orders(c) == [(round, APPLY, (float(round),))]
        c.done()
        assert where(c) == (step, f"L{step}")
    assert orders(c) == []
    (record,) = c.puts()
    assert record.held.step == 5 and record.fetching is None


def test_level_it_goes_on_by_what_it_holds():
    c, head = catcher(step=2)
    c.yes(4)
    c.see(goes_on(head))
    assert orders(c) == [(4, APPLY, (7.0,))]
    c.done()
    assert where(c) == (3, "L3")


def test_while_its_ranks_apply_they_hold_the_next_round():
    """A way that leads to the end must not get a gap because applying takes long."""
    c, head = catcher(step=2)
    c.yes(4)
    head = goes_on(head)
    c.see(head)
    assert [type(x) for x in c.down] == [m.Outcome, m.Begin]
    c.yes(5)
    head = goes_on(head)
    c.see(head)
    assert [type(x) for x in c.down] == [m.Begin], "one order at a time"
    c.done()
    assert orders(c) == [(5, APPLY, (7.0,))]


def test_a_contribution_waits_for_the_state_that_it_starts_from():
    c, head = catcher(step=2)
    c.yes(4)
    c.see(joins(head))
    assert [type(x) for x in c.down] == [m.Outcome]
    c.done()
    assert [type(x) for x in c.down] == [m.Begin] and c.run.round == 5


def test_what_is_staged_is_a_way_and_needs_no_other_fetch():
    """The next plan names a newer state, while the ranks install: to stop them there would tear it."""
    c, head = catcher()
    c.yes(4)
    c.fetched(1)
    c.see(goes_on(head, 3))
    assert c.asked(m.StartFetch) == c.asked(m.StopFetch) == []
    c.done()
    assert where(c) == (2, "L2") and orders(c) == [(4, APPLY, (7.0,))]


def test_while_its_ranks_still_receive_a_committed_round_it_waits():
    c, head = catcher(step=2)
    c.see(goes_on(head))
    assert orders(c) == [] and c.leader.held == held(CONFIG, 2)
    assert c.said()[0] == 4
    c.yes(4)
    assert orders(c) == [(4, APPLY, (7.0,))]


def test_a_closed_round_is_dropped():
    c, head = catcher(step=2)
    c.yes(4)
    c.see(closed(head))
    assert orders(c) == [(4, DROP, ())]
    c.done()
    assert c.leader.held == held(CONFIG, 2) and list(c.leader.way.rounds) == [5]


def test_what_the_snapshot_contains_already_is_dropped():
    c, head = catcher()
    c.yes(4)
    c.see(goes_on(head, 3))
    c.fetched(2)
    c.done()
    assert c.leader.held == held(CONFIG, 3)
    assert orders(c) == [(4, DROP, ())]


# -- gaps --------------------------------------------------------------------------------------


def test_a_partial_round_that_committed_means_a_newer_snapshot():
    """Schedule 8."""
    c, head = catcher(step=2)
    c.no(4)
    assert c.leader.session.said.stance is Stance.NO, "a gap or a partial bucket is a no"
    c.see(goes_on(head))
    assert orders(c) == [(4, DROP, ())]
    c.done()
    assert c.leader.held == held(CONFIG, 2)
    c.see(goes_on(goes_on(head), 4))
    c.done()
    assert m.StartFetch(1, 4, "L4", PAIR, "") in c.past_down + c.down


def test_a_round_that_was_missed_stops_the_fetch_before_it():
    """Schedule 9: what would be applied after it has another base."""
    c, head = catcher()
    jump = committed(CONFIG, goes_on(head, 2), plan_with(4, 2))
    c.see(jump)
    assert c.asked(m.StopFetch) == [m.StopFetch()]
    assert ("fetch-stopped", 4, "round 5 was missed") in c.notes()
    assert c.said()[1] == "NO"


def test_a_chain_that_was_cut_takes_the_way_with_it():
    """Schedule 11."""
    c, head = catcher()
    c.yes(4)
    after_it = goes_on(head, 2)
    c.see(after_it)
    cut = recovering(after_it)
    c.see(cut)
    c.done()
    shorter = after(
        cut,
        round=cut.round + 1,
        status=head.status,
        chain=head.chain[:2],
        plan=msgspec.structs.replace(plan_with(1, 1), round=cut.round + 1),
    )
    while c.asked(m.Outcome):
        c.done()
    c.see(shorter)
    fetches = c.asked(m.StartFetch)
    assert [f.lineage for f in fetches] == ["L1"]
    assert c.leader.held == held(CONFIG, 0)


def test_beyond_the_window_it_begins_again():
    c, head = catcher()
    while c.leader.way.target is not None:
        c.yes(head.round)
        head = goes_on(head, 2)
        c.see(head)
        assert len(c.leader.way.rounds) <= CONFIG.catch_up.window + 1
    assert c.asked(m.StopFetch) == [m.StopFetch()]
    assert head.plan.base.step - 2 == CONFIG.catch_up.window
    assert any("more than 4 steps behind" in detail for _, _, detail in c.notes())
    while c.asked(m.Outcome):
        assert {verdict for _, verdict, _ in orders(c)} == {DROP}
        c.done()
    assert c.leader.held == held(CONFIG, 0)


# -- one that was presumed level ---------------------------------------------------------------


def joins(head):
    """The round commits, and the next plan presumes that replica 2 is level and ready."""
    return committed(CONFIG, head, train_plan(CONFIG, head.plan.base.step + 1))


def test_the_presumption_holds_and_it_contributes():
    c, head = catcher(step=2)
    c.prepared()
    c.yes(4)
    c.see(joins(head))
    c.done()
    assert c.run is not None and c.run.round == 5


def test_the_round_that_leads_there_may_still_be_arriving():
    c, head = catcher(step=2)
    c.see(joins(head))
    assert c.run is None and c.down == [] and c.said()[1] == "RUNNING"
    assert SetTimer("late", 4, 2 * CONFIG.timeouts.chunk) in c.out
    c.yes(4)
    c.done()
    assert c.run.round == 5


@pytest.mark.parametrize("how", ["time", "no"])
def test_and_when_it_does_not_come_it_says_so(how):
    c, head = catcher(step=2)
    c.see(joins(head))
    if how == "time":
        c.timer("late", 4)
    else:
        c.no(4, LOST)
    assert orders(c) == [(4, DROP, ())]
    c.done()
    assert c.said()[1] == "NO" and c.run is None and c.asked(m.Begin) == []


# -- ready -------------------------------------------------------------------------------------


def test_it_is_ready_when_all_ranks_are_warm():
    c, _ = catcher(step=2)
    assert not c.leader.session.said.ready
    c.prepared()
    assert [r.ready for r in c.puts()] == [True] and ("prepared", 4, "") in c.notes()


def test_a_copy_is_independent():
    c, head = catcher(step=2)
    copy = c.leader.clone()
    c.yes(4)
    c.see(goes_on(head))
    c.done()
    assert copy.held == held(CONFIG, 2) and list(copy.way.rounds) == [4]
    assert copy.way.rounds[4].holding.name == "RECEIVING"
