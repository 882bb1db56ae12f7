"""What a leader has its ranks do: settle a round, walk towards the end of the chain, begin a plan.

The ranks get one state-changing order at a time, and the next only when every rank has carried the last
one out. Each method takes one step towards what a head shows; ``leader.py`` decides when.
"""

from __future__ import annotations

import copy

import msgspec

from . import messages as m
from .config import JobConfig
from .effects import Effect, Exit, Note, SetTimer
from .errors import ErrorClass, ErrorReport
from .head import Checkpoint, Fate, Head, Status
from .ids import Replica, Round
from .plan import Base, Catcher, Plan, lineage_root
from .record import Held
from .run import WHOLE, Run, State
from .session import Session
from .task import task_of
from .way import Way


class Order(msgspec.Struct, frozen=True):
    """A state-changing order that the ranks are carrying out, and the state that it leads to."""

    number: int
    what: str
    leads_to: Held | None = None
    round: Round = -1


class Orders:
    """One replica's state as its leader knows it, and the orders that change it.

    down:  what the ranks are told; the rank at position 0 relays it
    held:  the state that every rank of the replica has
    run:   the round to which this replica contributes, until it is settled
    way:   catch-up (``way.py``)
    """

    __slots__ = (
        "_accused",
        "_begun",
        "_broken",
        "_config",
        "_fetch_number",
        "_lagging",
        "_next_order",
        "_order",
        "_overdue",
        "_refused",
        "_restoring",
        "_saved",
        "_saving",
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
        self._refused: Round = 0  # the newest plan that lists this replica, which does not hold its base
        self._broken: Round = 0  # the newest round in which this replica's way was found to have a gap
        self._lagging: Round = 0  # the newest round that is settled and that we still wait for
        self._next_order = 0
        self._order: Order | None = None
        self._accused: tuple[Replica, ...] = ()  # whom this replica, catching up, could not reach
        self._fetch_number = 0
        self._restoring = ""  # the checkpoint that the ranks restore, if they fetch from no donor
        self._unreadable: tuple[str, ...] = ()
        self._saving: tuple[int, Checkpoint] | None = None
        self._overdue = False  # what is being saved was passed over once already
        self._saved: Checkpoint | None = None

    def _clone_orders(self, other: Orders) -> None:
        other.session = self.session.clone()
        other.run = copy.copy(self.run)
        other.way = self.way.clone()
        other.down = list(self.down)

    # -- settle ----------------------------------------------------------------------------------

    def _settle(self, head: Head, out: list[Effect]) -> bool:
        """Bring the ranks what became of the round that they run."""
        run = self.run
        if run is None or head.fate_of(run.plan) is Fate.OPEN:
            return False
        if run.state is State.DROPPED:
            self.run = None
            return True
        if head.fate_of(run.plan) is Fate.CLOSED:
            run.move(State.DROPPING)
            self._command(m.Verdict.DROP, run.round, (), None, out)
            return True
        if run.state in WHOLE:
            run.move(State.APPLYING)
            self._command(m.Verdict.APPLY, run.round, run.scalars, _held(run.plan.result()), out)
            return True
        self._lag(run, head, out)
        return False

    def _lag(self, run: Run, head: Head, out: list[Effect]) -> None:
        """Committed, but some rank here still lacks a bucket: neighbours go on serving it, for a time."""
        if run.state is not State.RUNNING:
            return
        if head.status is Status.RECOVERING:
            self._seal(run, without_fault("a recovering head asks what we have"), out)
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
            self._seal(run, without_fault(reason), out)

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
            leads_to = _held(entry.plan.result())
            self._command(m.Verdict.APPLY, entry.plan.round, entry.scalars, leads_to, out)
            return True
        round = self._of_no_use(head, out)
        if round is not None:
            self._command(m.Verdict.DROP, round, (), None, out)
            return True
        late = way.pending(head, held.lineage)
        if late is not None:  # what it waits for may have been lost on the way
            self._wait_for(late, out)
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
        order = self._next("install", _held(target), -1, out)
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
        """Every so many steps, and after the last, one contributor, in turn, writes shards of the new state.

        One that is still being written is given up only when its writer's turn comes for the second time:
        it may be slow, or some shard may have failed.
        """
        every, head = self._config.checkpoint_every, self.session.client.head
        last = head is not None and head.until == self.held.step
        if not every or (self.held.step % every and not last):
            return
        writer = plan.contributors[-(-self.held.step // every) % len(plan.contributors)]
        if writer != self.session.me:
            return
        if self._saving is not None and not self._overdue:
            self._overdue = True
            return
        name = f"step-{self.held.step}-{self.held.lineage[:8]}"
        self._next_order += 1
        self._overdue = False
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
        catcher = plan.catcher(self.session.me)
        if catcher is not None and catcher.holds and not self.way.gap(head, self.held.lineage):
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
        if self.way.pending(head, self.held.lineage) is not None:
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
        if catcher.holds:
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
        self._restoring = stored = "" if catcher.donors else head.stored(fetch.lineage)
        self.down.append(m.StartFetch(self._fetch_number, fetch.step, fetch.lineage, catcher.donors, stored))


def without_fault(reason: str) -> ErrorReport:
    """A reason to give a round up that is nobody's fault that we know of."""
    return ErrorReport(ErrorClass.TRANSIENT, reason)


def _held(state: Base) -> Held:
    return Held(state.step, state.lineage, state.ledger)
