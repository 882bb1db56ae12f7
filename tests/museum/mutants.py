"""The safeguards taken out of the real protocol, one a schedule: each schedule must fail under its own.

A mutant replaces the smallest function that embodies the rule. Where a second safeguard would stop the
process before the harm is done (an assertion on internal truths), the mutant takes that out as well.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import msgspec

from ftruntime.protocol import advance, intent, messages, planner, recovery, store
from ftruntime.protocol.advance import Next
from ftruntime.protocol.donor import Donor
from ftruntime.protocol.effects import Freeze, Release
from ftruntime.protocol.head import Fate, Status
from ftruntime.protocol.intent import Intent, Want, evaluate
from ftruntime.protocol.leader import Leader
from ftruntime.protocol.member import ORDERS, Member
from ftruntime.protocol.plan import Base
from ftruntime.protocol.record import Held
from ftruntime.protocol.run import State as RunState
from ftruntime.protocol.session import Session
from ftruntime.protocol.share import State as ShareState
from ftruntime.protocol.tap import TapSink
from ftruntime.protocol.way import Holding, Way
from ftruntime.store import Register


@contextmanager
def _patched(*changes):
    """``where`` is a module or class, or a table of handlers."""
    with ExitStack() as stack:
        for where, name, new in changes:
            table = isinstance(where, dict)
            stack.enter_context(patch.dict(where, {name: new}) if table else patch.object(where, name, new))
        yield


def planner_trusts_records():
    """1: nobody is presumed to have what was committed, and what no record shows is rolled back at once.

    Presumption, the wait for the undecided, and promises each suffice against schedule 1, so all are out.
    """
    close = advance._close

    def rolls_back_at_once(config, head, by, members):
        result = close(config, head, by, members)
        if isinstance(result, Next) and result.head.status is Status.RUNNING:
            return result
        records = members.live_records(head)
        base, source = recovery._target(config, head, records, frozenset())
        opened = recovery._cut(head, base, source, by)
        holders = [r.member for r in records if r.holds(base.lineage)]
        plan = planner.make_plan(config, opened, base, holders, members, "" if holders else source)
        return Next(msgspec.structs.replace(opened, plan=plan))

    nobody = lambda head, members, plan: set()  # noqa: E731
    return _patched((advance, "_still_in", nobody), (advance, "_close", rolls_back_at_once))


def records_of_any_age():
    """2: a rollback is planned from the records that are there, whatever head they were written under."""
    recover = recovery.recover

    def recovers(config, head, round, by, members, grace_over):
        fresh = tuple(msgspec.structs.replace(r, as_of=head.round) for r in members.records)
        return recover(config, head, round, by, planner.Members(fresh, members.leased), grace_over)

    return _patched((intent, "recover", recovers))


def promise_during_install():
    """3: an install under way is not waited for: the record promises the state that is just going away."""
    as_of = Leader._as_of

    def blind(self, head):
        order, self._order = self._order, None
        try:
            return as_of(self, head)
        finally:
            self._order = order

    return _patched((Leader, "_as_of", blind))


def timeout_decides():
    """4: a time-out makes a replica drop a round of which it has every bucket."""
    late = Leader._round_late

    def drops(self, round, reason, out):
        run = self.run
        if run is not None and run.round == round and run.state is RunState.COMPLETE:
            run.state = RunState.DROPPED
            self._command(messages.Verdict.DROP, round, (), None, out)
        else:
            late(self, round, reason, out)

    return _patched((Leader, "_round_late", drops))


def settled_is_a_refusal():
    """5: a commit that comes second is refused, whatever became of the round, and the replica drops it."""
    answered = Leader.answered

    def aborts(self, call, answer, out):
        run = self.run
        second = isinstance(answer, store.CasDone) and not answer.taken
        if second and run is not None and run.state is RunState.COMPLETE and answer.head.round > run.round:
            run.state = RunState.DROPPED
            self._command(messages.Verdict.DROP, run.round, (), None, out)
        answered(self, call, answer, out)

    return _patched((Leader, "answered", aborts))


def yes_without_acknowledgement():
    """6: a rank votes yes as soon as it has every bucket itself."""

    def say_yes(self, share, out):
        if share.state is ShareState.WHOLE and share.scalars is not None:
            share.move(ShareState.VOTED)
            self._cast_vote(self.position, share.plan.round, True, share.scalars, None, out)

    return _patched((Member, "_say_yes", say_yes))


def contributes_from_any_base():
    """7: a replica that is listed contributes, whatever state it holds."""
    begin, contribute = Leader._begin, Member._contribute

    def begins(self, head, out):
        held = self.held
        if self.session.me in head.plan.contributors:
            base = head.plan.base
            self.held = Held(base.step, base.lineage, base.ledger)
        try:
            return begin(self, head, out)
        finally:
            self.held = held

    def contributes(self, message, now, out):
        lineage, self.lineage = self.lineage, message.plan.base.lineage
        try:
            contribute(self, message, now, out)
        finally:
            self.lineage = lineage

    return _patched((Leader, "_begin", begins), (Member, "_contribute", contributes))


def partial_tap_counts():
    """8: when the tap's source is lost, what has arrived of the round is taken for all of it."""

    def source_lost(self, replica, incarnation):
        if self._stored > 0:
            self._total = self._stored

    return _patched((TapSink, "source_lost", source_lost))


def held_gradient_on_any_base():
    """9: a held round that was committed is applied onto what the replica holds, across a gap."""
    applicable, gap, outcome = Way.applicable, Way.gap, Member._outcome

    def any_base(self, head, held):
        for round, entry in self.rounds.items():
            complete = entry.holding is Holding.COMPLETE and self.target is None
            if complete and head.fate(round) is Fate.COMMITTED:
                return entry
        return applicable(self, head, held)

    def overlooked(self, head, held):
        later = any(entry.holding is not Holding.BROKEN for entry in self.rounds.values())
        return "" if later and self.target is None else gap(self, head, held)

    def applies(self, source, message, now, out):
        lineage = self.lineage
        if message.verdict is messages.Verdict.APPLY:
            self.lineage = self.shares[message.round].plan.base.lineage
        outcome(self, source, message, now, out)
        self.lineage = lineage

    return _patched(
        (Way, "applicable", any_base), (Way, "gap", overlooked), (ORDERS, messages.Outcome, applies)
    )


def copies_when_asked():
    """10: a donor copies its state when a range is asked for, not before the round that changes it."""
    answer = Donor._answer
    steps, made = {}, set()

    def freeze(self, held, out):
        if held.lineage not in self._frozen:
            self._frozen += (held.lineage,)
            steps[held.lineage] = held.step

    def release(self, lineages, out):
        out += [Release(x) for x in lineages if (self._me, self._position, x) in made]
        made.difference_update((self._me, self._position, x) for x in lineages)
        self._frozen = tuple(x for x in self._frozen if x not in lineages)

    def asked(self, source, message, out):
        if message.lineage in self._frozen and (self._me, self._position, message.lineage) not in made:
            made.add((self._me, self._position, message.lineage))
            out.append(Freeze(steps[message.lineage], message.lineage))
        answer(self, source, message, out)

    return _patched((Donor, "_freeze", freeze), (Donor, "_release", release), (Donor, "_answer", asked))


def highest_step_wins():
    """11: the base of a plan is the highest step that any member holds, on the chain or not."""
    make_plan = advance.make_plan

    def plans(config, head, base, holders, members, restore="", tapping=()):
        best = max(members.live_records(head), key=lambda r: r.held.step)
        if best.held.step > base.step:
            base = Base(best.held.step, best.held.lineage, best.held.ledger)
            holders, tapping = [r.member for r in members.live_records(head) if r.holds(base.lineage)], ()
        return make_plan(config, head, base, holders, members, restore, tapping)

    return _patched((advance, "make_plan", plans))


def cursor_in_the_head():
    """12: a rollback goes on with the cursors that the head ran to, not with those of the state."""
    target = recovery._target

    def targets(config, head, promises, unreadable):
        base, source = target(config, head, promises, unreadable)
        return msgspec.structs.replace(base, ledger=head.plan.base.ledger), source

    return _patched((recovery, "_target", targets))


def no_catch_up_below_min_replicas():
    """13: with too few replicas to train there is no plan, so nobody catches up."""
    catch_up = planner._catch_up_plan

    def idles(*arguments):
        return msgspec.structs.replace(catch_up(*arguments), catchers=())

    return _patched((planner, "_catch_up_plan", idles))


def promise_on_reading():
    """14: reading a recovering head is taken for having carried out what it shows."""
    as_of = Leader._as_of

    def read(self, head):
        return head.round if head.status is Status.RECOVERING else as_of(self, head)

    return _patched((Leader, "_as_of", read))


def only_records_of_the_new_base_join():
    """15: a ready catcher joins only if its record shows the state that is just being committed."""

    def never(member, plan, members):
        record = members.record(member)
        return record is not None and record.ready and record.holds(plan.lineage_after)

    return _patched((advance, "_ready_and_level", never))


def retry_takes_the_new_round():
    """16: the loop around a commit's CAS reads the head again and commits the round that it finds there."""
    unanswered, answered = Session.unanswered, Session.answered
    again = set()

    def gave_up(self, number, out):
        call = self.client._calls.get(number)
        if call is not None and call.purpose == "cas":
            again.add(self.me)
        unanswered(self, number, out)

    def loops(self, number, answer, out):
        answered(self, number, answer, out)
        if self.me in again and isinstance(answer, store.View):
            again.discard(self.me)
            head = self.client.head
            result = evaluate(self._config, self.client, Intent(Want.COMMIT, head.round), self.me)
            if isinstance(result, Next):
                self._cas(result.head, out)

    return _patched((Session, "unanswered", gave_up), (Session, "answered", loops))


def gives_up_without_seal():
    """17: a replica that gives up drops the round at once, without asking its ranks what they have."""

    def drops(self, run, report, out):
        run.report = report
        run.state = RunState.DROPPED
        self._command(messages.Verdict.DROP, run.round, (), None, out)

    return _patched((Leader, "_seal", drops))


def one_record_a_replica():
    """18: records are keyed by the replica alone, and the last write stands."""

    def put(self, record):
        for other in [m for m in self.records if m.replica == record.member.replica]:
            del self.records[other]
        self.records[record.member] = record
        self.changes.append(store.RecordChanged(record))
        return store.PutDone(False)

    return _patched((Register, "put", put))
