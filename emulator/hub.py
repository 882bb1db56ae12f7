"""The hub of a job: what there is once, however many processes run its ranks.

It has the consensus store and the launchers, knows which faults wait for a phase, writes what is said of the
whole job, and decides when the run is over. Leaders tell it where they are; everybody else hears from it by
command (``commands.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from faultinject import Agenda, Phase, Schedule
from ftruntime.protocol import effects as f
from ftruntime.protocol import store as s
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import Address, Incarnation, Replica, Step

from .commands import COMMAND_S, Forget, Inject, Life, Told
from .operated import OperatedLauncher
from .spans import OnSpan, Spans
from .store import EmulatedStore, Reply, StoreConfig

if TYPE_CHECKING:
    from .emulation import Emulation
    from .process import Process

APPLY_S = 0.2
FIRST_WARM_UP_S = 1.0  # a run begins with processes that are warm
PHASES = {"begin": Phase.PLAN, "voted": Phase.COMMIT, "fetching": Phase.FETCH, "prepared": Phase.JOIN}


class AnyLeader(Protocol):
    """What the hub must know of a leader, wherever that is run: see ``Process``."""

    @property
    def address(self) -> Address: ...
    @property
    def life(self) -> Life: ...
    @property
    def incarnation(self) -> Incarnation: ...
    @property
    def at_step(self) -> Step: ...
    @property
    def trains(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    @property
    def leads(self) -> bool: ...


class Hub:
    """What is there once in ``job``.

    hears_of_ends: whether hosts say when a life has ended
    over:    when the run is over, virtual seconds; infinity while that is not known
    rounds:  the number of the last round that was opened
    """

    def __init__(
        self, job: Emulation, schedule: Schedule, store: StoreConfig, on_span: OnSpan | None
    ) -> None:
        self._job = job
        self.config, self.settings, self.kernel, self.log = job.config, job.settings, job.kernel, job.log
        self.command, self.reached = job.command, job.reached
        self.store = EmulatedStore(self.kernel, store, self._store_log)
        self.launcher = OperatedLauncher(self, FIRST_WARM_UP_S)
        self.agenda = Agenda(schedule)
        self.hears_of_ends = False  # hosts say when nothing of a life is left
        self.over = float("inf")
        self.rounds = self.steps_committed = 0
        self.productive = 0.0
        self._spans = Spans(on_span)
        self._recorded: frozenset[str] = frozenset()
        self._newest = (0, 0)  # (epoch, version) of the newest head that was seen

    def hear(self, report: Told, now: float) -> None:
        """A host reports."""
        self.launcher.hear(report, now)

    # -- the store -------------------------------------------------------------------------------------

    def watch(self, leader: Process) -> None:
        """``leader`` is told of every change in the store from now on."""
        self.store.watch(leader.address[0], leader.watched)

    def submit(self, replica: Replica, request: s.Request, reply: Reply) -> None:
        self.store.submit(replica, request, reply)

    def _store_log(self, entry: list[Any]) -> None:
        self.log(entry)
        if entry[0] != "head":
            return
        closed, head = entry[7], self.store.head
        self.rounds = entry[4]
        if closed is not None and closed["outcome"] == "committed" and head is not None:
            self.steps_committed += 1
            share = len(head.end.contributors) / self.config.replicas
            self.productive += share * (self.settings.step_seconds + APPLY_S)
            if self._job.folds is not None:
                self._job.folds.committed(closed["round"])
        if head is not None and head.end.step >= self.settings.steps and not self.settings.agreed_end:
            self.over = min(self.over, entry[1] + COMMAND_S)  # everybody can know that by then
            self.kernel.end_by(self.over)

    # -- what leaders say of themselves -------------------------------------------------------------------

    def noted(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        """A leader says where it is: for spans, states, and faults that wait for a phase."""
        if note.what == "registered":
            self._log_start(leader, now)
        if not leader.leads:
            return  # of replicas that were taken for dead
        NOTED.get(note.what, Hub._nothing)(self, leader, note, now)
        if note.what in PHASES:
            self._phase(leader, PHASES[note.what], now)
        self._look_at_checkpoints(now)

    def _nothing(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        """A note for people only."""

    def _log_start(self, leader: AnyLeader, now: float) -> None:
        replica, incarnation = leader.address[0], leader.incarnation
        self.launcher.registered(leader.life, incarnation)
        self.log(["start", now, replica, incarnation, "first" if incarnation == 1 else "restarted"])

    def _registered(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        replica = leader.address[0]
        self._spans.end(replica, "restart", now)
        self._spans.begin(replica, "warm-up", now)
        self._spans.begin(replica, "catch-up", now)

    def _prepared(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        self._spans.end(leader.address[0], "warm-up", now)

    def _begun(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        replica = leader.address[0]
        self._spans.end(replica, "commit", now)
        if leader.trains:
            self._state(replica, "up")
            self._spans.end_all(replica, now)
            self._spans.begin(replica, "compute", now, round=note.round)
        else:
            self._state(replica, "catching up")
            self._spans.begin(replica, "catch-up", now)

    def _state(self, replica: Replica, state: str) -> None:
        """A replica that is about to be ended stays what it is."""
        if self.launcher.runs(replica):
            self.launcher.states[replica] = state

    def _voted(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        self._spans.follow(leader.address[0], "vote", "quorum", now, round=note.round)

    def _applied(self, leader: AnyLeader, note: f.Note, now: float) -> None:
        self._spans.end(leader.address[0], "quorum", now)
        self._spans.end(leader.address[0], "commit", now)

    def computing(self, leader: AnyLeader, round: int, ready: float, now: float) -> None:
        """The leader's own rank has launched forward and backward; gradients are there at ``ready``."""
        self._phase(leader, Phase.FORWARD, now)
        self.kernel.at((now + ready) / 2.0, self._in_backward, leader)

    def _in_backward(self, leader: AnyLeader, now: float) -> None:
        if leader.alive and leader.leads:
            self._phase(leader, Phase.BACKWARD, now)

    def reducing(self, leader: AnyLeader, round: int, now: float) -> None:
        """The leader's own rank has its gradients: what is left is FTAR."""
        self._spans.follow(leader.address[0], "compute", "ftar", now, round=round)
        self._phase(leader, Phase.FTAR, now)

    def reduced(self, leader: AnyLeader, round: int, now: float) -> None:
        """The leader's own rank has every bucket: the vote begins."""
        self._spans.follow(leader.address[0], "ftar", "vote", now, round=round)
        self._phase(leader, Phase.VOTE, now)

    def applying(self, leader: AnyLeader, round: int, now: float) -> None:
        """The decision is known to the leader's own rank."""
        self._spans.follow(leader.address[0], "quorum", "commit", now, round=round)
        self._phase(leader, Phase.APPLY, now)

    def _phase(self, leader: AnyLeader, phase: Phase, now: float) -> None:
        """Faults that wait for this phase fall due."""
        due = self.agenda.at_phase(leader.address[0], leader.at_step, phase)
        if due:
            self.command(Inject(due), now)

    def down(self, replica: Replica, now: float) -> None:
        """The processes of the replica are as good as gone."""
        self._spans.end_all(replica, now)
        self._spans.begin(replica, "restart", now)

    def all_down(self, now: float) -> None:
        """No replica runs or is to run again."""
        if self.settings.agreed_end:
            self.over = min(self.over, now + 2 * COMMAND_S)
            self.kernel.end_by(self.over)

    def life_ended(self, replica: Replica, now: float) -> None:
        """A life that a fault was about has been ended."""
        self._job.injector.life_ended(replica, now)

    def finish(self, now: float) -> None:
        for replica in range(self.config.replicas):
            self._spans.end_all(replica, now)

    # -- checkpoints -----------------------------------------------------------------------------------------

    def _look_at_checkpoints(self, now: float) -> None:
        head: Head | None = self.store.head
        if head is None or head.known < self._newest:
            return  # a store that lost heads says nothing about what storage should keep
        self._newest = head.known
        recorded = frozenset(c.name for c in head.checkpoints)
        if recorded == self._recorded:
            return
        for checkpoint in head.checkpoints:
            if checkpoint.name not in self._recorded:
                self.log(["checkpoint", now, checkpoint.name, checkpoint.step, checkpoint.lineage])
        self._recorded = recorded
        oldest = head.checkpoints[0].step if head.checkpoints else 0
        self.command(Forget(tuple(sorted(recorded)), oldest), now)


NOTED: dict[str, Callable[[Hub, AnyLeader, f.Note, float], None]] = {
    "registered": Hub._registered,
    "prepared": Hub._prepared,
    "begin": Hub._begun,
    "voted": Hub._voted,
    "apply": Hub._applied,
}
