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

import msgspec

from . import messages as m
from .advice import should_close
from .config import JobConfig
from .effects import Effect, Exit, Note, SetTimer
from .errors import ErrorClass, ErrorReport
from .head import Checkpoint, Fate, Head, Status
from .ids import Lineage, Replica, Round
from .intent import Intent, Want
from .ledger import advance as advance_ledger
from .plan import Base, Catcher, Kind, Plan, Target, lineage_root
from .record import Held, Record, Stance
from .run import WHOLE, Run, State
from .session import Phase, Session
from .task import task_of
from .way import Way


class Order(msgspec.Struct, frozen=True):
    """A state-changing order that the ranks are carrying out, and the state that it leads to."""

    number: int
    what: str
    leads_to: Held | None = None
    round: Round = -1


class Leader:
    """One per replica. ``down`` collects what it tells its ranks; the rank at position 0 relays it.

    held:      the state that every rank of the replica has
    run:       the round to which this replica contributes, until it is settled
    way:       catch-up (``way.py``)
    refused:   the last round that this replica was listed for and did not hold the base of
    """

    __slots__ = (
        "_accused",
        "_begun",
        "_broken",
        "_config",
        "_due",
        "_enlisted",
        "_fetch_number",
        "_grace_over",
        "_lagging",
        "_next_order",
        "_order",
        "_prepared",
        "_refused",
        "_restoring",
        "_saved",
        "_saving",
        "_timed",
        "_unreadable",
        "down",
        "held",
        "run",
        "session",
        "way",
    )

    def __init__(self, config: JobConfig, replica: Replica, nonce: str, attempt: int) -> None:
        self._config = config
        self.session = Session(config, replica, nonce, attempt)
        root = lineage_root(config.job, config.initial_digest)
        self.held = Held(0, root, (0,) * config.stream_count)
        self.run: Run | None = None
        self.way = Way()
        self.down: list[m.Message] = []
        self._begun: Round = 0  # the newest plan that was passed on to the ranks
        self._refused: Round = 0
        self._broken: Round = 0  # the newest round in which this replica's way was found to have a gap
        self._timed: Round = 0  # the newest round whose timers were set
        self._due: Round = 0  # the newest round whose time to close has passed
        self._grace_over: Round = 0
        self._next_order = 0
        self._order: Order | None = None
        self._prepared = False
        self._accused: tuple[Replica, ...] = ()  # whom this replica, catching up, could not reach
        self._lagging: Round = 0  # the newest round that is settled and that we still wait for
        self._enlisted = False
        self._fetch_number = 0
        self._restoring = ""  # the checkpoint that the ranks restore, if they fetch from no donor
        self._unreadable: tuple[str, ...] = ()
        self._saving: tuple[int, Checkpoint] | None = None
        self._saved: Checkpoint | None = None

    def clone(self) -> Leader:
        other = copy.copy(self)
        other.session = self.session.clone()
        other.run = copy.copy(self.run)
        other.way = self.way.clone()
        other.down = list(self.down)
        return other

    # -- events from the driver ------------------------------------------------------------------

    def started(self, out: list[Effect]) -> None:
        self.session.start(out)

    def answered(self, call: int, answer: object, out: list[Effect]) -> None:
        self.session.answered(call, answer, out)
        self._reconcile(out)

    def watched(self, change: object, out: list[Effect]) -> None:
        self.session.watched(change, out)
        self._reconcile(out)

    def confirm(self, out: list[Effect]) -> None:
        self.session.confirm(out)
        self._reconcile(out)

    def timer(self, name: str, tag: int, out: list[Effect]) -> None:
        if name == "store":
            self.session.unanswered(tag, out)
        elif name == "renew":
            self.session.renew(out)
        elif name == "poll":
            self.session.poll(out)
        elif name == "close":
            self._due = max(self._due, tag)
        elif name == "grace":
            self._grace_over = max(self._grace_over, tag)
        elif name == "round":
            self._round_late(tag, "the round has not ended in time", out)
        elif name == "late":
            self._late(tag, out)
        elif name == "silent":
            self._silent(tag, out)
        elif name == "order":
            self._undone(tag, out)
        self._reconcile(out)

    def awaits(self, name: str, tag: int) -> bool:
        """Whether the timer ``name`` with ``tag`` still means anything: it was set, never cancelled."""
        run, head = self.run, self.session.client.head
        opened = 0 if head is None else head.round
        if name == "store":
            return self.session.client.waits_for(tag)
        if name in ("close", "grace"):
            return tag == opened and tag > (self._due if name == "close" else self._grace_over)
        if name in ("round", "silent"):
            wanted = State.RUNNING if name == "round" else State.SEALING
            return run is not None and run.round == tag and run.state is wanted
        if name == "late":
            return tag in self.way.rounds or (run is not None and run.round == tag)
        if name == "order":
            return self._order is not None and self._order.number == tag
        return self.session.phase is not Phase.GONE

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
            self.session.pursue(self._intent(head), out)

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

    def _watch_peers(self, head: Head, out: list[Effect]) -> None:
        """A member of the ring that said no will not complete the round: find out fast if we have."""
        run = self.run
        if run is None or run.state is not State.RUNNING or run.round != head.round:
            return
        members = self.session.client.members
        for member in run.plan.ring():
            if member != self.session.me and members.said_no(member, run.round):
                self._seal(run, _report(f"{member} said no"), out)
                return

    # -- settle ----------------------------------------------------------------------------------

    def _settle(self, head: Head, out: list[Effect]) -> bool:
        """Bring the ranks what became of the round that they run."""
        run = self.run
        if run is None or head.fate(run.round) is Fate.OPEN:
            return False
        if run.state is State.DROPPED:
            self.run = None
            return True
        if head.fate(run.round) is Fate.CLOSED:
            run.move(State.DROPPING)
            self._command(m.Verdict.DROP, run.round, (), None, out)
            return True
        if run.state in WHOLE:
            run.move(State.APPLYING)
            self._command(m.Verdict.APPLY, run.round, run.scalars, _after(run.plan), out)
            return True
        self._lag(run, head, out)
        return False

    def _lag(self, run: Run, head: Head, out: list[Effect]) -> None:
        """Committed, but some rank here still lacks a bucket: neighbours go on serving it, for a time."""
        if run.state is not State.RUNNING:
            return
        if head.status is Status.RECOVERING:
            self._seal(run, _report("a recovering head asks what we have"), out)
        else:
            self._wait_for(run.round, out)

    def _wait_for(self, round: Round, out: list[Effect]) -> None:
        """Bound the wait for what is missing of a settled round."""
        if round > self._lagging:
            self._lagging = round
            out.append(SetTimer("late", round, 2 * self._config.timeouts.chunk))

    def _late(self, round: Round, out: list[Effect]) -> None:
        self._round_late(round, "committed elsewhere, and buckets are still missing here", out)
        self.way.vote(round, False, ())

    def _round_late(self, round: Round, reason: str, out: list[Effect]) -> None:
        run = self.run
        if run is not None and run.round == round and run.state is State.RUNNING:
            self._seal(run, _report(reason), out)

    def _seal(self, run: Run, report: ErrorReport, out: list[Effect]) -> None:
        """First phase of giving up (!): no rank accepts a chunk any more, then we know what we have."""
        run.move(State.SEALING)
        run.report = report
        self.down.append(m.Seal(run.round))
        out.append(Note("sealing", run.round, report.reason))
        out.append(SetTimer("silent", run.round, self._config.timeouts.seal))

    def _silent(self, round: Round, out: list[Effect]) -> None:
        """Some rank did not answer the seal: this replica is broken, its launcher starts it anew."""
        run = self.run
        if run is not None and run.round == round and run.state is State.SEALING:
            out.append(Exit(f"a rank did not answer the seal of round {round}", restart=True))

    # -- walk ------------------------------------------------------------------------------------

    def _walk(self, head: Head, out: list[Effect]) -> bool:
        """One step of catch-up: install, apply a held round, or drop one that is of no use."""
        way, held = self.way, self.held
        if self.run is not None:
            return False
        if way.target is not None and way.staged and head.on_chain(way.target.lineage):
            self._install(way.target, out)
            return True
        entry = way.applicable(head, held.lineage)
        if entry is not None:
            self._command(m.Verdict.APPLY, entry.plan.round, entry.scalars, _after(entry.plan), out)
            return True
        round = self._of_no_use(head, out)
        if round is not None:
            self._command(m.Verdict.DROP, round, (), None, out)
            return True
        return False

    def _of_no_use(self, head: Head, out: list[Effect]) -> Round | None:
        """A held round to drop. A way with a gap is given up whole: a newer snapshot is needed (!)."""
        way = self.way
        gap = way.gap(head, self.held.lineage) if way.target is not None or way.rounds else ""
        if head.status is Status.RECOVERING:
            gap = gap or "recovering"
        elif not gap and len(way.rounds) > self._config.catch_up.window:
            gap = f"more than {self._config.catch_up.window} steps behind"
        if gap and (way.target is not None or way.rounds):
            self._stop_fetch(gap, out)
            self._broken = head.round if head.status is Status.RUNNING else self._broken
            return next(iter(way.rounds), None)
        return way.useless(head, self.held.step)

    def _install(self, target: Base, out: list[Effect]) -> None:
        order = self._next("install", Held(target.step, target.lineage, target.ledger), -1, out)
        self.down.append(m.Install(order, target.step, target.lineage))

    def _stop_fetch(self, reason: str, out: list[Effect]) -> None:
        if self.way.target is not None:
            out.append(Note("fetch-stopped", self._begun, reason))
            self.way.stop_fetch()
            self.down.append(m.StopFetch())

    # -- orders ------------------------------------------------------------------------------------

    def _command(
        self, verdict: m.Verdict, round: Round, scalars: m.Scalars, leads_to: Held | None, out: list[Effect]
    ) -> None:
        """Tell the ranks what became of ``round``."""
        order = self._next(verdict.name.lower(), leads_to, round, out)
        self.down.append(m.Outcome(order, round, verdict, scalars))

    def _next(self, what: str, leads_to: Held | None, round: Round, out: list[Effect]) -> int:
        assert self._order is None, "the ranks carry out one order at a time"
        self._next_order += 1
        self._order = Order(self._next_order, what, leads_to, round)
        out.append(SetTimer("order", self._next_order, self._config.timeouts.round))
        return self._next_order

    def _undone(self, number: int, out: list[Effect]) -> None:
        if self._order is not None and self._order.number == number:
            out.append(Exit(f"a rank did not carry out order {number} ({self._order.what})", restart=True))

    def _carried_out(self, order: Order, out: list[Effect]) -> None:
        """All ranks are where ``order`` leads: only now does the record say so (!)."""
        run = self.run
        if order.leads_to is not None:
            self.held = order.leads_to
            out.append(Note(order.what, order.round, f"step {self.held.step}"))
        if order.what == "install":
            self.way.stop_fetch()
        elif order.round in self.way.rounds:
            self.way.done(order.round)
        elif run is not None and run.round == order.round and run.state is not State.DROPPED:
            self.run = None
            if run.state is State.APPLYING:
                self._checkpoint(run.plan, out)

    def _checkpoint(self, plan: Plan, out: list[Effect]) -> None:
        """Every so many steps one contributor, in turn, writes its shards of the new state."""
        every = self._config.checkpoint_every
        if not every or self.held.step % every or self._saving is not None:
            return
        writer = plan.contributors[(self.held.step // every) % len(plan.contributors)]
        if writer == self.session.me:
            name = f"step-{self.held.step}-{self.held.lineage[:8]}"
            self._next_order += 1
            checkpoint = Checkpoint(name, self.held.step, self.held.lineage, self.held.ledger)
            self._saving = (self._next_order, checkpoint)
            self.down.append(m.WriteCheckpoint(self._next_order, name))

    # -- begin -------------------------------------------------------------------------------------

    def _begin(self, head: Head, out: list[Effect]) -> bool:
        """Pass the plan of the open round on to the ranks, once the round before is settled here."""
        plan = head.plan
        if head.status is not Status.RUNNING or plan.round <= self._begun or self.run is not None:
            return False
        if self.session.me in plan.contributors and self.held.lineage != plan.base.lineage:
            self._refuse(head, plan, out)
            return False
        self._pass_on(head, plan, out)
        return True

    def _hold_on(self, head: Head, out: list[Effect]) -> None:
        """While its ranks install or apply, a catcher goes on to hold new rounds: a way that leads to the
        end of the chain must not get a gap because applying takes long."""
        plan = head.plan
        if head.status is not Status.RUNNING or plan.round <= self._begun or self.run is not None:
            return
        catching = plan.kind is Kind.TRAIN and plan.catcher(self.session.me) is not None
        if catching and not self.way.gap(head, self.held.lineage):
            self._pass_on(head, plan, out)

    def _pass_on(self, head: Head, plan: Plan, out: list[Effect]) -> None:
        """Down the tree with the plan."""
        self._begun = plan.round
        self.down.append(m.Begin(plan, task_of(plan, self.session.me)))
        if self.session.me in plan.contributors:
            self.run = Run(plan)
            share = self._config.timeouts.round / self._config.timeouts.close
            out.append(SetTimer("round", plan.round, plan.durations.close_after * share))
        catcher = plan.catcher(self.session.me)
        if catcher is not None:
            self._catch_up(head, plan, catcher, out)
        out.append(Note("begin", plan.round, plan.reason))

    def _refuse(self, head: Head, plan: Plan, out: list[Effect]) -> None:
        """Presumed to hold the base, and do not (!): contribute nothing and say so, unless the
        held round that leads there is just arriving."""
        if self.way.pending(head, self.held.lineage):
            for round in self.way.rounds:
                self._wait_for(round, out)
            return
        self._begun = self._refused = plan.round
        out.append(Note("refused", plan.round, f"holds step {self.held.step}, not step {plan.base.step}"))

    def _catch_up(self, head: Head, plan: Plan, catcher: Catcher, out: list[Effect]) -> None:
        """Hold what this round reduces, and fetch what the plan says if there is no way without."""
        way, fetch = self.way, catcher.fetch
        # What is staged is being installed: to stop it for another fetch would tear it (!).
        going = (way.target is None or way.staged) and not way.gap(head, self.held.lineage)
        if plan.kind is Kind.TRAIN:
            way.begin(plan)
        if fetch is None or fetch.lineage == self.held.lineage or going:
            return
        known = way.target is not None and way.target.lineage == fetch.lineage
        if not known:
            if fetch.lineage != plan.base.lineage:
                return
            way.fetch(plan.base)
            self._fetch_number += 1
            out.append(Note("fetching", plan.round, f"step {fetch.step}"))
        self._restoring = stored = "" if catcher.donors else self._stored(head, fetch.lineage)
        self.down.append(m.StartFetch(self._fetch_number, fetch.step, fetch.lineage, catcher.donors, stored))

    def _stored(self, head: Head, lineage: Lineage) -> str:
        for checkpoint in head.checkpoints:
            if checkpoint.lineage == lineage:
                return checkpoint.name
        return "initial" if head.chain[0].lineage == lineage else ""

    # -- record and intent ---------------------------------------------------------------------------

    def _as_of(self, head: Head) -> Round:
        """The newest round such that the outcome of every earlier one has been carried out here (!)."""
        rounds = [head.round]
        if self.run is not None:
            rounds.append(self.run.round)
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
            unreadable=self._unreadable,
        )
        said = self.session.said
        undisturbed = self.session.me in head.plan.contributors and head.status is Status.RUNNING
        late = self.run is not None and self.run.round < head.round
        took_back = said is not None and said.round == head.round and said.stance is Stance.NO
        if said is None or stance is Stance.NO or not undisturbed or late or took_back:
            self.session.publish(record, out)

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
            if run is not None and run.round == head.round and run.state is State.COMPLETE:
                return Intent(Want.COMMIT, run.round)
            waited = self._due >= head.round
            if client.leased(me) and should_close(self._config, head, me, client.members, waited):
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


def _report(reason: str) -> ErrorReport:
    """A reason to give a round up that is nobody's fault that we know of."""
    return ErrorReport(ErrorClass.TRANSIENT, reason)


def _after(plan: Plan) -> Held:
    """The state that committing ``plan`` leads to."""
    ledger = advance_ledger(plan.base.ledger, plan.ranges_by_replica())
    return Held(plan.base.step + 1, plan.lineage_after, ledger)
