"""Watches one rank's events and effects, and derives what people want to know. It changes nothing.

The driver shows it every event and every effect; without an observer it does not even look. What is derived
goes to sinks (log, metrics, spans) and, of a leader, into the report that the store keeps for ``fthsdp
status``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import store as s
from ftruntime.protocol.head import Fate, Head
from ftruntime.protocol.ids import Lineage, MemberId, Position, Replica, Round
from ftruntime.protocol.plan import Kind
from ftruntime.protocol.record import Record, Stance

from .happening import Happening, Sink
from .report import FAILURES, Failure, Report, short
from .stalls import StallClock

# Effects that say by themselves what a rank is at; the rest of the phases come as Notes.
PHASES: Final[dict[type[f.Effect], str]] = {
    f.Launch: "compute",
    f.Measure: "vote",
    f.Apply: "apply",
    f.InstallStaged: "install",
    f.WarmUp: "warm-up",
    f.Restore: "restore",
    f.SaveShard: "checkpoint",
}


class Observer:
    """Of the rank at ``replica``/``position``.

    me:         as whom it is registered
    ranges:     of a whole state
    now, wall:  seconds of the loop, and Unix seconds
    """

    def __init__(
        self,
        replica: Replica,
        position: Position,
        me: Callable[[], MemberId],
        ranges: int,
        sinks: Iterable[Sink],
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._replica, self._position, self._me, self._ranges = replica, position, me, ranges
        self._sinks, self._now, self._wall = tuple(sinks), now, wall
        self.stalls = StallClock()
        self.phase = "starting"
        self.changed = False  # since the last report
        self._head: Head | None = None
        self._plan_told: tuple[list[str], list[str]] = ([], [])
        self._given_up = ""  # why the last round was
        self._fetch: Lineage = ""
        self._staged: set[int] = set()
        self._failures: deque[Failure] = deque(maxlen=FAILURES)

    # -- what the driver shows -----------------------------------------------------------------

    def event(self, event: e.Event) -> None:
        act = EVENTS.get(type(event))
        if act is not None:
            act(self, event)

    def effects(self, effects: Iterable[f.Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind in PHASES:
                self._enter(PHASES[kind])
            act = EFFECTS.get(kind)
            if act is not None:
                act(self, effect)

    def report(self) -> Report:
        """How it stands now."""
        self.changed = False
        head = self._head
        end = None if head is None else head.end
        return Report(
            "leader", self._replica, self._me().incarnation, self._wall(), self.phase,
            0 if end is None else end.step, "" if end is None else end.lineage,
            0 if head is None else head.round, len(self._staged), self._ranges if self._fetch else 0,
            self.stalls.expected, dict(self.stalls.lost), tuple(self._failures),
        )  # fmt: skip

    # -- telling -------------------------------------------------------------------------------

    def _tell(self, event: str, **more: Any) -> None:
        self.changed = True
        if self._sinks:
            head, me = self._head, self._me()
            round, step = (0, 0) if head is None else (head.round, head.end.step)
            happening = Happening(
                self._wall(), event, self._replica, me.incarnation, self._position, round, step, more
            )
            for sink in self._sinks:
                sink(happening)

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self._tell("phase", phase=phase)

    def _failed(self, event: str, culprit: Replica, cause: str, round: Round = -1) -> None:
        """A failure is told, counted, and remembered. The same one heard again, of two lanes say, is one."""
        cause = short(cause)
        if round < 0:
            round = 0 if self._head is None else self._head.round
        self.stalls.fault(self._now())
        last = self._failures[-1] if self._failures else None
        if last is None or (last.culprit, last.cause, last.round) != (culprit, cause, round):
            self._failures.append(Failure(self._wall(), round, culprit, cause))
            self._tell(event, culprit=culprit, cause=cause)

    # -- events --------------------------------------------------------------------------------

    def _peer_lost(self, event: e.PeerLost) -> None:
        self._failed("peer-lost", event.peer, f"replica {event.peer}.{event.incarnation}: {event.reason}")

    def _local_error(self, event: e.LocalError) -> None:
        self._failed("own-fault", self._replica, event.report.reason)

    def _transient(self, event: e.Transient) -> None:
        self._tell("transient", culprit=event.peer, cause=short(event.reason))

    def _bucket_ready(self, event: e.BucketReady) -> None:
        self.stalls.work(self._now(), event.round)

    def _saved(self, event: e.Saved) -> None:
        self._tell("saved", name=event.name, ok=event.ok, cause=short(event.reason))

    def _restored(self, event: e.Restored) -> None:
        self._tell("restored", ok=event.ok, cause=short(event.reason))

    def _answered(self, event: e.StoreAnswer) -> None:
        answer = event.answer
        if isinstance(answer, s.CasDone | s.View) and answer.head is not None:
            self._seen(answer.head)

    def _watched(self, event: e.Watched) -> None:
        change = event.change
        if isinstance(change, s.HeadChanged):
            self._seen(change.head)
        elif isinstance(change, s.LeaseChanged):
            self._lease(change.member, change.live)
        elif isinstance(change, s.RecordChanged):
            self._recorded(change.record)

    def _recorded(self, record: Record) -> None:
        """A member could not finish a round, because of others. Why, this one's last Note has said."""
        if record.stance is not Stance.NO or not record.accuses:
            return
        if record.member.replica == self._replica:
            self._failed("round-failed", record.accuses[0], self._given_up, record.round)
        else:
            self._tell("accused", by=record.member.replica, accused=list(record.accuses))

    def _lease(self, member: MemberId, live: bool) -> None:
        if live or self._head is None or not self._head.current(member):
            self._tell("lease", member=str(member), live=live)
            return
        self._failed("lease-ended", member.replica, f"replica {member}: its lease ended, its process is gone")

    def _seen(self, head: Head) -> None:
        """A head, perhaps newer than the last one that was seen."""
        before = self._head
        if before is not None and head.order <= before.order:
            return
        self._head = head
        if before is None or head.round == before.round:
            return
        fate = head.fate_of(before.plan)
        if fate is Fate.COMMITTED:
            seconds = self.stalls.commit(self._now(), before.plan.contributors)
            self._tell(
                "commit", committed=before.round, contributors=len(before.plan.contributors),
                seconds=None if seconds is None else round(seconds, 6), lost=dict(self.stalls.lost),
            )  # fmt: skip
        elif before.plan.kind is Kind.TRAIN:
            self.stalls.close(self._now(), before.round)
            self._tell("closed", closed=before.round, closes=head.closes)
        self._planned(head)

    def _planned(self, head: Head) -> None:
        """Who trains and who catches up, whenever it differs in more than the step."""
        plan = head.plan
        who = [str(member) for member in plan.contributors]
        catching = [str(catcher.member) for catcher in plan.catchers]
        if who != self._plan_told[0] or catching != self._plan_told[1]:
            self._plan_told = (who, catching)
            self._tell("plan", contributors=who, catching_up=catching, reason=plan.reason)

    # -- effects -------------------------------------------------------------------------------

    def _note(self, effect: f.Note) -> None:
        self.phase = effect.what
        if effect.what == "sealing":
            self.stalls.close(self._now(), effect.round)
            self._given_up = short(effect.detail)
            self._tell("sealing", cause=self._given_up)  # whom it accuses stands in its record
            return
        self._tell("phase", phase=effect.what, detail=effect.detail)

    def _exit(self, effect: f.Exit) -> None:
        self._failed("exit", self._replica, effect.reason)

    def _stage(self, effect: f.Stage) -> None:
        if effect.lineage != self._fetch:
            self._fetch, self._staged = effect.lineage, set()
        self._staged.add(effect.index)
        self._tell("staged", staged=len(self._staged), ranges=self._ranges)

    def _unstage(self, effect: f.Unstage) -> None:
        self._forget()

    def _installed(self, effect: f.InstallStaged) -> None:
        self._forget()
        self._tell("installing", to_step=effect.step)

    def _forget(self) -> None:
        self._fetch, self._staged = "", set()


EVENTS: Final[dict[type[e.Event], Callable[[Observer, Any], None]]] = {
    e.PeerLost: Observer._peer_lost,
    e.LocalError: Observer._local_error,
    e.Transient: Observer._transient,
    e.BucketReady: Observer._bucket_ready,
    e.Saved: Observer._saved,
    e.Restored: Observer._restored,
    e.StoreAnswer: Observer._answered,
    e.Watched: Observer._watched,
}
EFFECTS: Final[dict[type[f.Effect], Callable[[Observer, Any], None]]] = {
    f.Note: Observer._note,
    f.Exit: Observer._exit,
    f.Stage: Observer._stage,
    f.Unstage: Observer._unstage,
    f.InstallStaged: Observer._installed,
}
