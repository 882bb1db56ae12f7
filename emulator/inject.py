"""What each kind of fault does to an emulated job: the vocabulary of ``faultinject``, carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from faultinject import vocabulary as v
from faultinject.targets import ranks_of
from ftruntime.protocol.store import Cas

from .netfaults import Group, LinkFault, LinkFaultKind
from .process import Process

if TYPE_CHECKING:
    from .emulation import Emulation
    from .hub import Hub

FLIPPED_BIT = 17


class Injector:
    """Carries faults out and notes them.

    happened:    every fault that took effect, as the schedule has it
    lasting:     those that have not ended yet
    last_ended:  when the last of them had ended, seconds
    """

    def __init__(self, job: Emulation) -> None:
        self._job = job
        self.happened: list[v.AnyFault] = []
        self.lasting: list[v.AnyFault] = []
        self.last_ended = 0.0

    def inject(self, fault: v.AnyFault, now: float) -> None:
        """``fault`` takes effect now."""
        if self._job.folds is not None:
            self._job.folds.happens(fault)
        self.noted(fault, now)
        if self._job.hub is not None or not isinstance(fault, OF_THE_HUB):
            DO[type(fault)](self, fault, now)

    def noted(self, fault: v.AnyFault, now: float) -> None:
        """``fault`` happens now, whoever carries it out."""
        self.happened.append(fault)
        self._log("fault", fault, now)
        ends = now + getattr(fault, "duration", 0.0)
        self.last_ended = max(self.last_ended, ends)

    def _log(self, kind: str, fault: v.AnyFault, now: float) -> None:
        """Each fault is logged once, however many processes it touches."""
        if self._job.hub is not None:
            self._job.log([kind, now, self._entry(fault)])

    def _entry(self, fault: v.AnyFault) -> dict[str, Any]:
        entry: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(fault))  # lists, as a file has them
        return entry

    @property
    def _hub(self) -> Hub:
        assert self._job.hub is not None, "a fault of the hub happens where the hub is"
        return self._job.hub

    def _later(self, seconds: float, act: Callable[[float], object], fault: v.AnyFault) -> None:
        """When the fault ends: undo it and say so."""
        self.lasting.append(fault)

        def heal(_: object, now: float) -> None:
            act(now)
            self.lasting.remove(fault)
            self._log("heal", fault, now)

        self._job.kernel.at(self._job.kernel.now + seconds, heal, None)

    def _targets(self, fault: v.AnyFault) -> list[Process]:
        """Living processes that the fault hits; a fault of a replica that is down hits nobody."""
        found = [self._job.processes.get(rank) for rank in ranks_of(fault, self._job.shape)]
        return [process for process in found if process is not None and process.alive]

    # -- processes and devices -------------------------------------------------------------------

    def crash(self, fault: v.Crash, now: float) -> None:
        for process in self._targets(fault):
            self._job.hosts.crashed(process, fault.cause or "crash", now)

    def hang(self, fault: v.Hang, now: float) -> None:
        for process in self._targets(fault):
            in_ftar = process.computing < 0 and bool(process.rings)
            if in_ftar or fault.variant == "never_joins":
                process.stick()
            else:
                process.stall = True  # it goes on until FTAR, and sticks there

    def slow(self, fault: v.Slow, now: float) -> None:
        """A straggler: its links or its device, until the fault ends."""
        targets = self._targets(fault)
        if fault.part == "link":
            self._link(LinkFaultKind.BANDWIDTH, targets, fault.duration, min(1.0, 1.0 / fault.factor))
            self._later(fault.duration, lambda now: None, fault)
            return
        for process in targets:
            process.device.slow_down(fault.factor)

        def mend(now: float) -> None:
            for process in targets:
                process.device.slow_down(1.0)

        self._later(fault.duration, mend, fault)

    def _registered(self, fault: v.AnyFault) -> list[Process]:
        """Targets that may compute gradients: whoever is not registered yet has no part in the job."""
        return [process for process in self._targets(fault) if process.member.incarnation]

    def corrupt_gradient(self, fault: v.CorruptGradient, now: float) -> None:
        for process in self._registered(fault):
            process.device.flip_bit(FLIPPED_BIT)

    def nan_gradient(self, fault: v.NanGradient, now: float) -> None:
        for process in self._registered(fault):
            process.device.poison()

    def pause(self, fault: v.Pause, now: float) -> None:
        """Everything that the processes would hear meanwhile, they hear when they go on."""
        targets = self._targets(fault)
        for process in targets:
            process.pause()

        def resume(now: float) -> None:
            for process in targets:
                process.resume(now)

        self._later(fault.duration, resume, fault)

    def zombie(self, fault: v.Zombie, now: float) -> None:
        """The old processes stand still, are taken for dead, and go on after ``delay``."""
        processes = self._job.hosts.detach(fault.replica)
        if not processes:
            return
        for process in processes:
            process.pause()
        if self._job.hub is not None:
            self._job.hub.launcher.detach(fault.replica, now)
        self.last_ended = max(self.last_ended, now + fault.delay)

        def come_back(now: float) -> None:
            for process in processes:
                process.resume(now)

        self._later(fault.delay, come_back, fault)

    def launcher_delay(self, fault: v.LauncherDelay, now: float) -> None:
        self._hub.launcher.delay(fault.replica, fault.seconds)

    def replica_lost_for_ever(self, fault: v.ReplicaLostForEver, now: float) -> None:
        leader = self._job.processes.get((fault.replica, 0))
        if leader is not None:
            self._job.log_crash(leader, fault.cause or "lost for ever", now)
        if self._job.hub is not None:
            self._job.hub.launcher.lose(fault.replica, now)

    # -- network ---------------------------------------------------------------------------------

    def _link(self, kind: LinkFaultKind, targets: list[Process], seconds: float, amount: float) -> None:
        now = self._job.kernel.now
        for process in targets:
            replica, position = process.address
            here = Group(frozenset({replica}), frozenset(), frozenset({position}))
            self._job.network.add(LinkFault(kind, now, now + seconds, here, Group(), amount))

    def link_flap(self, fault: v.LinkFlap, now: float) -> None:
        self._link(LinkFaultKind.LOSSY, self._targets(fault), fault.duration, 1.0)
        self._later(fault.duration, lambda now: None, fault)

    def partition(self, fault: v.Partition, now: float) -> None:
        """Between every two groups, or from the first to the second; the store may be in a group."""
        sides = [frozenset(p for p in group if p != "store") for group in fault.groups]
        pairs = [(a, b) for a in range(len(sides)) for b in range(len(sides)) if a != b]
        for a, b in [(0, 1)] if fault.one_way else pairs:
            if sides[a] and sides[b]:
                down = LinkFaultKind.DOWN
                link = LinkFault(down, now, now + fault.duration, Group(sides[a]), Group(sides[b]))
                self._job.network.add(link)
        if self._job.hub is not None:
            self._cut_store(fault, sides)
        self._later(fault.duration, lambda now: None, fault)

    def _cut_store(self, fault: v.Partition, sides: list[frozenset[Any]]) -> None:
        with_store = [i for i, group in enumerate(fault.groups) if "store" in group]
        for i, side in enumerate(sides):
            if not with_store or i in with_store or not side:
                continue
            asks = not fault.one_way or i == 0
            told = not fault.one_way or with_store[0] == 0
            self._hub.store.cut(side, fault.duration, requests=asks, answers=told)

    # -- store -----------------------------------------------------------------------------------

    def store_slow(self, fault: v.StoreSlow, now: float) -> None:
        self._hub.store.slow_down(fault.factor)
        self._later(fault.duration, lambda now: self._hub.store.slow_down(1.0), fault)

    def store_away(self, fault: v.StoreAway, now: float) -> None:
        self._hub.store.unavailable(fault.duration)
        self._later(fault.duration, lambda now: None, fault)

    def store_lost_answer(self, fault: v.StoreLostAnswer, now: float) -> None:
        self._hub.store.lose_answers(fault.count, lambda request: isinstance(request, Cas))

    def store_leader_change(self, fault: v.StoreLeaderChange, now: float) -> None:
        self._hub.store.change_leader(fault.duration, 2.0 * fault.duration)
        self._later(fault.duration, lambda now: None, fault)

    def store_empty(self, fault: v.StoreEmpty, now: float) -> None:
        if self._hub.store.head is None:  # there was nothing to lose
            self._later(STORE_RESTART_S, lambda now: None, fault)
        self._hub.store.restart_empty(STORE_RESTART_S)

    def store_restored_old(self, fault: v.StoreRestoredOld, now: float) -> None:
        """As far back as there are backups, if the schedule asks for more."""
        versions = min(fault.versions, self._hub.store.backups)
        if versions:
            self._hub.store.restart_older(versions, STORE_RESTART_S)
        else:
            self._later(STORE_RESTART_S, lambda now: None, fault)


STORE_RESTART_S = 1.0
OF_THE_HUB = (
    v.StoreSlow, v.StoreAway, v.StoreLostAnswer, v.StoreLeaderChange, v.StoreEmpty, v.StoreRestoredOld,
    v.LauncherDelay,
)  # fmt: skip
DO: dict[type[v.Fault], Callable[[Injector, Any, float], None]] = {
    v.Crash: Injector.crash,
    v.Hang: Injector.hang,
    v.Slow: Injector.slow,
    v.CorruptGradient: Injector.corrupt_gradient,
    v.NanGradient: Injector.nan_gradient,
    v.Partition: Injector.partition,
    v.LinkFlap: Injector.link_flap,
    v.StoreSlow: Injector.store_slow,
    v.StoreAway: Injector.store_away,
    v.StoreLostAnswer: Injector.store_lost_answer,
    v.StoreLeaderChange: Injector.store_leader_change,
    v.StoreEmpty: Injector.store_empty,
    v.StoreRestoredOld: Injector.store_restored_old,
    v.ReplicaLostForEver: Injector.replica_lost_for_ever,
    v.Zombie: Injector.zombie,
    v.Pause: Injector.pause,
    v.LauncherDelay: Injector.launcher_delay,
}
