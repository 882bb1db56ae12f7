"""The leader of a replica: what its ranks do about what the head shows (design 3.2, 3.3, 3.5).

The leader is level-triggered: each event updates what it knows, and ``_reconcile`` then takes the
first step that separates the ranks from what the head shows:

    settle   a round that is not open any more: the ranks apply or drop it (``run.py``)
    walk     catch-up: install what was fetched, apply or drop held rounds (``way.py``)
    begin    the plan of the open round

So a lost watch event, a jump over several heads and a late answer need no cases of their own.
The ranks get one state-changing order at a time, and the next only when every rank has carried
the last one out. Under ``recovering`` nothing begins: once settled and walked, what the record says
is a promise, and it is kept because no step is left until a head of a higher round is read (!).
"""

from __future__ import annotations

import copy
from collections.abc import Collection

from . import messages as m
from .advice import rest, should_close
from .config import JobConfig
from .effects import Effect, Exit, Note, SetTimer
from .ending import Ending
from .ending import State as End
from .head import Checkpoint, Fate, Head, Status
from .ids import Replica, Round, Step
from .intent import Intent, Want
from .orders import Orders, without_fault
from .plan import Kind, Target
from .record import Record, Stance
from .run import Run, State
from .session import Phase

TAKEN_OUT = "the operator takes this replica out"


class Leader(Orders):
    """One per replica, at position 0."""

    __slots__ = (
        "_due",
        "_enlisted",
        "_grace_over",
        "_leaving",
        "_prepared",
        "_rested",
        "_roll",
        "_timed",
        "ending",
    )

    def __init__(self, config: JobConfig, replica: Replica, nonce: str, attempt: int) -> None:
        super().__init__(config, replica, nonce, attempt)
        self._timed: Round = 0  # the newest round whose timers were set
        self._due: Round = 0  # the newest round whose time to close has passed
        self._grace_over: Round = 0
        self._rested: Round = 0  # the newest round that may be closed early although others before it failed
        self._prepared = False
        self._enlisted = False
        self._leaving = False  # the operator takes this replica out
        self.ending = Ending()
        self._roll = 0  # the roll call that is not answered by all yet

    def clone(self) -> Leader:
        other = copy.copy(self)
        self._clone_orders(other)
        other.ending = self.ending.clone()
        return other

    def simplify(self, unawaited: Collection[str]) -> tuple[int, ...]:
        """See ``Rank.simplify``. A notice is only ever compared with the round of a head: with being equal to
        it, or at least it; and heads only move forward."""
        head = self.session.client.head
        opened = 0 if head is None else head.round
        for notice in ("_due", "_grace_over", "_rested", "_refused", "_broken"):
            if getattr(self, notice) < opened:
                setattr(self, notice, 0)
        waits = self._order is not None or self._roll > 0
        if not waits and not self._config.checkpoint_every:  # ranks remember the order of a checkpoint
            self._next_order = 0
        return self.session.simplify(unawaited)

    # -- events from the driver ------------------------------------------------------------------

    def started(self, until: Step, out: list[Effect]) -> None:
        self.session.start(until, out)

    def answered(self, call: int, answer: object, out: list[Effect]) -> None:
        self.session.answered(call, answer, out)
        self._reconcile(out)

    def watched(self, change: object, out: list[Effect]) -> None:
        self.session.watched(change, out)
        self._reconcile(out)

    def confirm(self, out: list[Effect]) -> None:
        self.session.confirm(out)
        self._reconcile(out)

    def leave(self, out: list[Effect]) -> None:
        """The operator takes this replica out. One that has no part in the job yet goes at once."""
        self._leaving = True
        if self.session.phase is Phase.REGISTERING:
            out.append(Exit(TAKEN_OUT, restart=True))
        self._reconcile(out)

    def timer(self, name: str, tag: int, out: list[Effect]) -> None:
        """A timer that was set fired; whether it still means anything is seen where it is looked into."""
        if name == "store":
            self.session.unanswered(tag, out)
        elif name == "renew":
            self.session.renew(out)
            self._call_roll(out)
        elif name == "poll":
            self.session.poll(out)
        elif name == "close":
            self._due = max(self._due, tag)
        elif name == "grace":
            self._grace_over = max(self._grace_over, tag)
        elif name == "rest":
            self._rested = max(self._rested, tag)
        elif name == "round":
            self._round_late(tag, "the round has not ended in time", out)
        elif name == "late":
            self._late(tag, out)
        elif name == "silent":
            self._silent(tag, out)
        elif name == "order":
            self._undone(tag, out)
        elif name == "linger":
            self.ending.timer(tag, self._config, out)
            self._mourn(out)
        elif name == "roll" and tag == self._roll:
            out.append(Exit("a rank does not answer the roll call", restart=True))
        self._reconcile(out)

    def awaits(self, name: str, tag: int) -> bool:
        """Whether the timer ``name`` with ``tag`` still means anything: it was set, never cancelled."""
        run, head = self.run, self.session.client.head
        opened = 0 if head is None else head.round
        if name == "store":
            return self.session.client.waits_for(tag)
        if name in ("close", "grace", "rest"):
            passed = {"close": self._due, "grace": self._grace_over, "rest": self._rested}
            return tag == opened and tag > passed[name]
        if name in ("round", "silent"):
            wanted = State.RUNNING if name == "round" else State.SEALING
            return run is not None and run.round == tag and run.state is wanted
        if name == "late":
            return tag in self.way.rounds or (run is not None and run.round == tag)
        if name == "order":
            return self._order is not None and self._order.number == tag
        if name == "roll":
            return tag == self._roll
        if name == "linger":
            return self.ending.awaits(tag)
        return self.session.phase is not Phase.GONE

    def _call_roll(self, out: list[Effect]) -> None:
        """Ranks that contribute vote; of the others (holders, donors, catchers) one that hangs would stay
        unnoticed, and its replica of no use."""
        if self._enlisted and self.run is None and not self._roll:
            self._next_order += 1
            self._roll = self._next_order
            self.down.append(m.RollCall(self._roll))
            out.append(SetTimer("roll", self._roll, self._config.timeouts.round))

    # -- events from the ranks -------------------------------------------------------------------

    def vote(self, vote: m.Vote, out: list[Effect]) -> None:
        """The ranks' vote on a round that they run or hold."""
        run = self.run
        if run is None or run.round != vote.round:
            self._held_vote(vote)
        elif vote.yes:
            run.yes, run.scalars = True, vote.scalars
            if run.state in (State.RUNNING, State.KEPT):
                run.move(State.COMPLETE)
                out.append(Note("voted", run.round, "yes"))
        elif run.state is State.RUNNING and vote.report is not None:
            self._seal(run, vote.report, out)
        self._reconcile(out)

    def _held_vote(self, vote: m.Vote) -> None:
        self.way.vote(vote.round, vote.yes, vote.scalars)
        if vote.report is not None:
            self._accused = vote.report.accused

    def sealed(self, answer: m.Sealed, out: list[Effect]) -> None:
        """Every rank has sealed the round, and this is whether all of them have every bucket."""
        run = self.run
        if run is not None and run.round == answer.round and run.state is State.SEALING:
            self._after_seal(run, answer, out)
            out.append(Note("sealed", run.round, run.state.name.lower()))
        self._reconcile(out)

    def _after_seal(self, run: Run, answer: m.Sealed, out: list[Effect]) -> None:
        if not answer.complete:
            run.move(State.DROPPED)
            self._command(m.Verdict.DROP, run.round, (), None, out)
            return
        run.move(State.KEPT)
        run.scalars = answer.scalars
        if run.yes:
            run.move(State.COMPLETE)

    def done(self, number: int, out: list[Effect]) -> None:
        """Every rank has carried order ``number`` out."""
        if self._saving is not None and self._saving[0] == number:
            self._saved, self._saving = self._saving[1], None
        elif number == self._roll:
            self._roll = 0
        elif self._order is not None and self._order.number == number:
            order, self._order = self._order, None
            self._carried_out(order, out)
        self._reconcile(out)

    def fetched(self, answer: m.Fetched, out: list[Effect]) -> None:
        """All ranks have staged their shards, or one of them cannot."""
        target = self.way.target
        if target is not None and answer.number == self._fetch_number:
            if answer.ok:
                self.way.staged = True
                self._accused = ()
                out.append(Note("fetched", self._begun, f"step {target.step}"))
            else:
                self._accused = answer.accused
                if self._restoring and self._restoring not in self._unreadable:
                    self._unreadable = (*self._unreadable, self._restoring)
                self._stop_fetch(answer.reason, out)
        self._reconcile(out)

    def prepared(self, out: list[Effect]) -> None:
        """All ranks are warm and connected: this replica may become a contributor."""
        self._prepared = True
        out.append(Note("prepared", self._begun))
        self._reconcile(out)

    # -- reconciliation --------------------------------------------------------------------------

    def _reconcile(self, out: list[Effect]) -> None:
        if self.session.phase is Phase.ACTIVE:
            head = self._head()
            self._enlist(out)
            self._set_timers(head, out)
            while self._order is None and self._step(head, out):
                pass
            if self._order is not None:
                self._hold_on(head, out)
            self._watch_peers(head, out)
            self._report(head, out)
            self._go(head, out)
            self.session.pursue(self._intent(head), out)
            self._end(head, out)

    def _end(self, head: Head, out: list[Effect]) -> None:
        """Of a job that is over: hand the last state on, or get it, and go (``ending.py``)."""
        ending, members, me = self.ending, self.session.client.members, self.session.me
        ending.see(head, self._config, out)
        if ending.state is not End.LINGERING or self._order is not None or self.run is not None:
            return
        if self.held.lineage == head.end.lineage:
            busy = self._saving is not None or self._saved is not None
            if ending.part(head, self._config, members, me, busy):
                self._finish(out)
        elif not self.way.staged and self.way.pending(head, self.held.lineage) is None:
            if ending.stranded(head, members, me):
                end = f"step {head.end.step} ({head.end.lineage[:8]})"
                reason = f"the job is over at {end}, and nobody is left who could hand it over: to train on"
                reason += " from a checkpoint ask for more steps, to begin anew give a new store"
                out.append(Exit(reason, restart=False))

    def _mourn(self, out: list[Effect]) -> None:
        """The store has lost its head, and with it that the job is over: its result is here all the same."""
        last = self.ending.last
        if self.session.phase is Phase.BEREFT and last is not None and self.held.lineage == last.lineage:
            if self._order is None and self.run is None and self.ending.bereft():
                self._finish(out)

    def _finish(self, out: list[Effect]) -> None:
        last = self.ending.last
        assert last is not None and last.lineage == self.held.lineage, "who ends well has the last state (!)"
        self.session.retire(out)
        self.down.append(m.Finish(last.step, last.lineage))
        out.append(Note("over", last.round, f"step {last.step}"))

    def _go(self, head: Head, out: list[Effect]) -> None:
        """Who is taken out goes when nobody counts on it: others train from the state that it holds (!)."""
        holder = head.plan.kind is not Kind.TRAIN and self.held.lineage == head.end.lineage
        needed = holder or self.run is not None or self.session.me in head.plan.contributors
        if self._leaving and not needed and head.status is Status.RUNNING:
            out.append(Exit(TAKEN_OUT, restart=True))

    def _step(self, head: Head, out: list[Effect]) -> bool:
        """Take one step towards ``head``; False if there is none to take now."""
        return self._settle(head, out) or self._walk(head, out) or self._begin(head, out)

    def _head(self) -> Head:
        head = self.session.client.head
        assert head is not None, "an active session has seen a head"
        return head

    def _enlist(self, out: list[Effect]) -> None:
        if not self._enlisted:
            self._enlisted = True
            self.down.append(m.Enlist(self.session.me))
            out.append(Note("registered", 0, str(self.session.me)))

    def _set_timers(self, head: Head, out: list[Effect]) -> None:
        """Durations count from when this observer first sees the round (!)."""
        if head.round > self._timed:
            self._timed = head.round
            t = self._config.timeouts
            if head.status is Status.RECOVERING:
                out.append(SetTimer("grace", head.round, t.rollback_grace))
                return
            start = head.round == 1
            out.append(
                SetTimer("close", head.round, t.start_grace if start else head.plan.durations.close_after)
            )
            pause = rest(self._config, head)
            if pause:
                out.append(SetTimer("rest", head.round, pause))

    def _watch_peers(self, head: Head, out: list[Effect]) -> None:
        """A member of the ring that said no will not complete the round: find out fast if we have."""
        run = self.run
        if run is None or run.state is not State.RUNNING or run.round != head.round:
            return
        members = self.session.client.members
        for member in run.plan.ring():
            if member != self.session.me and members.said_no(member, run.round):
                self._seal(run, without_fault(f"{member} said no"), out)
                return

    # -- record and intent ---------------------------------------------------------------------------

    def _as_of(self, head: Head) -> Round:
        """The newest round such that the outcome of every earlier one has been carried out here (!)."""
        rounds = [head.round]
        if self.run is not None:
            # Under ``recovering`` nothing is open: a round that is not settled yet lies behind.
            rounds.append(min(self.run.round, head.round - (head.status is not Status.RUNNING)))
        settled = self.way.oldest_settled(head)
        if settled is not None:
            rounds.append(settled)
        if self._order is not None and self._order.what == "install":
            rounds.append(head.round - 1)  # a promise made now would be of a state that is just going away
        return min(rounds)

    def _report(self, head: Head, out: list[Effect]) -> None:
        """Write our record where the design asks for it: contributors without trouble stay silent."""
        stance, accuses = self._stance(head)
        record = Record(
            member=self.session.me,
            held=self.held,
            as_of=self._as_of(head),
            round=head.round,
            stance=stance,
            ready=self._prepared,
            accuses=accuses,
            fetching=self._fetching(head),
            unreadable=self._still_unreadable(head),
            leaving=self._leaving,
        )
        self.session.word = record
        said = self.session.said
        undisturbed = self.session.me in head.plan.contributors and head.status is Status.RUNNING
        lacking = (State.RUNNING, State.SEALING, State.DROPPED)
        late = self.run is not None and self.run.round < head.round and self.run.state in lacking
        took_back = said is not None and said.round == head.round and said.stance is Stance.NO
        if said is None or stance is Stance.NO or not undisturbed or late or took_back or self._leaving:
            self.session.publish(record, out)

    def _still_unreadable(self, head: Head) -> tuple[str, ...]:
        """Of what this replica could not restore, what is on record still."""
        recorded = {c.name for c in head.checkpoints}
        self._unreadable = tuple(name for name in self._unreadable if name in recorded)
        return self._unreadable

    def _stance(self, head: Head) -> tuple[Stance, tuple[Replica, ...]]:
        run = self.run
        if run is not None and run.round == head.round:
            if run.state in (State.KEPT, State.DROPPED):
                return Stance.NO, run.accused
            return (Stance.YES if run.state is State.COMPLETE else Stance.RUNNING), ()
        if head.round in (self._refused, self._broken) or self.way.broken(head.round):
            return Stance.NO, self._accused
        return Stance.RUNNING, self._accused

    def _fetching(self, head: Head) -> Target | None:
        way = self.way
        if way.target is not None:
            return Target(way.target.step, way.target.lineage)
        behind = self.held.lineage != head.end.lineage
        if behind and way.rounds and not way.gap(head, self.held.lineage):
            return Target(self.held.step, self.held.lineage)
        return None

    def _intent(self, head: Head) -> Intent | None:
        """What we want of the head now. Safety never depends on it."""
        client, me, run = self.session.client, self.session.me, self.run
        if head.status is Status.RUNNING:
            mine = run is not None and head.fate_of(run.plan) is Fate.OPEN
            if run is not None and mine and run.state is State.COMPLETE:
                return Intent(Want.COMMIT, run.round)
            waited = self._due >= head.round
            rested = self._rested >= head.round or not rest(self._config, head)
            if client.leased(me) and should_close(self._config, head, me, client.members, waited, rested):
                return Intent(Want.CLOSE, head.round)
        elif head.status is Status.RECOVERING and client.leased(me):
            return Intent(Want.RECOVER, head.round, grace_over=self._grace_over >= head.round)
        if self._saved is not None and self._unrecorded(head, self._saved):
            return Intent(Want.CHECKPOINT, head.round, checkpoint=self._saved)
        return None

    def _unrecorded(self, head: Head, saved: Checkpoint) -> bool:
        if any(c.name == saved.name for c in head.checkpoints) or not head.on_chain(saved.lineage):
            self._saved = None
            return False
        return True
