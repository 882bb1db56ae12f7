"""Recognises the named fault points of ``faultinject.points`` in what ranks hear and ask for.

Nothing of this is there unless it is wanted: then the steps of each process are looked at, and a mark is put
before each effect that is a point (``Reached``). Whoever carries the effects out counts it there, and lets
the faults strike that wait for it: before the effect or, in a lane, if they touch more than this rank, at the
same instant after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultinject import Agenda, Schedule
from faultinject import vocabulary as v
from faultinject.targets import ranks_of
from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.head import Head, Status
from ftruntime.protocol.ids import Address

from .commands import Inject
from .odd import SPOILT
from .process import CARRY_OUT, Process

if TYPE_CHECKING:
    from faultinject import AnyFault

    from .emulation import Emulation

OWN = (v.Crash, v.Hang, v.Pause, v.LinkFlap)  # faults of one rank that touch no other at the same instant
Name = str | Callable[[Any], str]  # of the point, or what gives it; "" for none


class Reached(f.Effect, frozen=True, array_like=True, tag=True, gc=False):
    """A point was reached: not an effect of the protocol, but a mark among them."""

    name: str


class Points:
    """Counts the points that are reached, and tells which faults they let loose."""

    def __init__(self, job: Emulation, schedule: Schedule) -> None:
        self._job = job
        self._agenda = Agenda(schedule)
        self.reached: Counter[str] = Counter()

    @property
    def waits(self) -> bool:
        """Whether a fault waits for a point."""
        return self._agenda.waits_for_points

    def watch(self, process: Process) -> None:
        """From now on the points that ``process`` reaches are marked."""
        step, hear_chunk = process.step, process.hear_chunk

        def watched(event: Any, now: float) -> list[f.Effect]:
            name = _of_event(process, event)
            marks: list[f.Effect] = [Reached(name)] if name else []
            return marks + _marked(process, step(event, now))

        process.step = watched
        process.hear_chunk = lambda source, message, now: _marked(process, hear_chunk(source, message, now))

    def reach(self, name: str, address: Address, now: float) -> tuple[AnyFault, ...]:
        """The rank at ``address`` has come to this point. Returns faults of its own that waited for that, and
        has others strike as soon as all can have heard of it."""
        self.reached[name] += 1
        process = self._job.processes.get(address)
        step = 0 if process is None else process.rank.member.step
        due = self._agenda.at_point(name, step, lambda fault: self._hits(fault, address))
        own = tuple(fault for fault in due if type(fault) in OWN and getattr(fault, "rank", None) == address)
        others = tuple(fault for fault in due if fault not in own)
        if others:
            self._job.command(Inject(others), now)
        return own

    def _hits(self, fault: AnyFault, address: Address) -> bool:
        ranks = ranks_of(fault, self._job.shape)
        return not ranks or address in ranks


def _strike(process: Process, effect: Reached, now: float) -> None:
    job = process.job
    assert job.points is not None, "there are no marks where nobody wants them"
    if job.processes.get(process.address) is process:
        job.inject(job.points.reach(effect.name, process.address, now), now)
    else:
        job.points.reached[effect.name] += 1  # one that was taken for dead: faults hit its successor


CARRY_OUT[Reached] = _strike


def _marked(process: Process, effects: list[f.Effect]) -> list[f.Effect]:
    found: list[f.Effect] = []
    for effect in effects:
        known = _EFFECTS.get(type(effect))
        name = known(process, effect) if known is not None else ""
        if name:
            found.append(Reached(name))
        found.append(effect)
    return found


def _named(name: Name) -> Callable[[Process, Any], str]:
    if isinstance(name, str):
        return lambda process, effect: name
    return lambda process, effect: name(effect)


def _sent(process: Process, effect: f.Send) -> str:
    name = _MESSAGES.get(type(effect.message), "")
    return name if isinstance(name, str) else name(effect.message)


def _of_event(process: Process, event: e.Event) -> str:
    if type(event) is e.TimerFired:
        name = f"timer.{event.name}"
        return name if name in _TIMERS and process.rank.awaits(event.name, event.tag) else ""
    found = _HEARD.get(type(event), "")
    return found if isinstance(found, str) else found(event)


def _asked(process: Process, effect: f.StoreCall) -> str:
    request = effect.request
    if not isinstance(request, s.Cas):
        return _REQUESTS.get(type(request), "")
    leader = process.rank.leader
    assert leader is not None, "only leaders talk to the store"
    return _change(leader.session.client.head, request.head)


def _change(before: Head | None, after: Head) -> str:
    """What a head that is to be written would change."""
    if after.status is Status.LOST:
        return "store.suspend"
    if before is None or after.version == 1:
        return "store.found"
    if after.epoch != before.epoch:
        return "store.rebuild"
    if after.status is not before.status:
        return "store.recover" if after.status is Status.RECOVERING else "store.rollback"
    if after.round != before.round:
        return "store.commit" if after.end.round == before.round else "store.close"
    return "store.register" if after.incarnations != before.incarnations else "store.checkpoint"


def _answered(event: e.StoreAnswer) -> str:
    answer = event.answer
    if isinstance(answer, s.CasDone):
        return "store.taken" if answer.taken else "store.beaten"
    return "store.fenced" if getattr(answer, "fenced", False) else ""


_TIMERS = frozenset(
    f"timer.{name}" for name in "store close grace rest round late silent order roll chunk range".split()
)
_REQUESTS: dict[type[Any], str] = {s.Read: "store.read", s.Put: "store.put", s.Renew: "store.renew"}
_NOTES = {
    "voted": "leader.voted",
    "sealing": "leader.sealing",
    "sealed": "leader.sealed",
    "refused": "leader.refused",
    "store-lost": "leader.bereft",
    "not-yet": "leader.not_yet",
}
_LOST = {
    "connection reset": "link.lost",
    "connection refused": "link.refused",
    "the connection was reset": "link.broken",
    "no fresh connection": "link.broken",
}
_MESSAGES: dict[type[Any], Name] = {
    m.Begin: "tree.begin",
    m.Enlist: "tree.enlist",
    m.Outcome: lambda said: "tree.apply" if said.verdict is m.Verdict.APPLY else "tree.drop",
    m.Seal: "tree.seal",
    m.StartFetch: lambda said: "tree.restore" if said.checkpoint else "tree.fetch",
    m.StopFetch: "tree.stop_fetch",
    m.Install: "tree.install",
    m.WriteCheckpoint: "tree.checkpoint",
    m.RollCall: "tree.roll_call",
    m.Vote: lambda said: "vote.yes" if said.yes else "vote.no",
    m.Sealed: lambda said: "seal.whole" if said.complete else "seal.lacking",
    m.Done: "order.done",
    m.Fetched: lambda said: "fetched.whole" if said.ok else "fetched.failed",
    m.Prepared: "prepared",
    m.Join: "ring.join",
    m.Ack: "ring.ack",
    m.Probe: "ring.probe",
    m.Waiting: "ring.waiting",
    m.TapAck: lambda said: "tap.ack" if said.count else "tap.ask",
    m.TapEnd: "tap.end",
    m.RangeRequest: "fetch.ask",
    m.NotHere: "fetch.refused",
}
_HEARD: dict[type[Any], Name] = {
    e.BucketReady: "compute.bucket",
    e.Applied: "apply.done",
    e.Measured: "round.measured",
    e.PeerLost: lambda event: _LOST.get(event.reason, "link.tree_reset"),
    e.Transient: lambda event: "link.spoilt" if event.reason == SPOILT else "link.transient",
    e.Reconnected: "link.reconnected",
    e.LocalError: "device.failed",
    e.Restored: lambda event: "restore.done" if event.ok else "restore.failed",
    e.Warm: "start.warm",
    e.Saved: lambda event: "checkpoint.saved" if event.ok else "checkpoint.failed",
    e.StoreAnswer: _answered,
    e.Watched: "store.news",
    e.Leave: "operator.leave",
}
_EFFECTS: dict[type[Any], Callable[[Process, Any], str]] = {
    f.Send: _sent,
    f.StoreCall: _asked,
    f.Note: _named(lambda note: _NOTES.get(note.what, "")),
    f.PostTap: _named("tap.post"),
    f.StoreTap: _named("tap.store"),
    f.Reconnect: _named("ring.reconnect"),
    f.Connect: _named("start.connect"),
    f.Launch: _named(lambda launch: "compute.reuse" if launch.reuse else "compute.launch"),
    f.Hold: _named("hold.begin"),
    f.Abort: _named("round.abort"),
    f.Measure: _named("round.reduced"),
    f.Apply: _named("apply.begin"),
    f.Drop: _named("round.drop"),
    f.Freeze: _named("donor.freeze"),
    f.Release: _named("donor.release"),
    f.SendRange: _named("donor.send"),
    f.Stage: _named("fetch.stage"),
    f.Unstage: _named("fetch.unstage"),
    f.Restore: _named("restore.begin"),
    f.InstallStaged: _named("install.begin"),
    f.WarmUp: _named("start.warm_up"),
    f.SaveShard: _named("checkpoint.save"),
    f.Exit: _named(lambda exit: "exit.restart" if exit.restart else "exit.for_good"),
}
