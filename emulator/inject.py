"""Carries out the faults of ``faultinject`` and notes them; ``strikes`` has what each does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from faultinject import AnyFault, Fault
from faultinject.targets import ranks_of, replicas_of
from ftruntime.protocol.ids import Position, Replica

from .process import Process
from .strikes import devices, network, operation, processes, store, transfer

if TYPE_CHECKING:
    from .emulation import Emulation
    from .hub import Hub

MANY = ("building", "link")  # targets whose replicas the log names besides


class Injector:
    """Carries faults out and notes them.

    happened:    every fault that took effect, as the schedule has it
    lasting:     those that have not ended yet; some never do
    last_ended:  when the last of them had ended, seconds
    careful:     positions at which messages of a ring may end in a no, though no link fails
    """

    def __init__(self, job: Emulation) -> None:
        self.job = job
        self.happened: list[AnyFault] = []
        self.lasting: list[AnyFault] = []
        self.last_ended = 0.0
        self.careful: frozenset[Position] = frozenset()
        self._till_restart: dict[Replica, list[AnyFault]] = {}

    def inject(self, fault: AnyFault, now: float) -> None:
        """``fault`` takes effect now."""
        if self.job.folds is not None:
            self.job.folds.happens(fault)
        self.noted(fault, now)
        if self.job.hub is not None or not isinstance(fault, OF_THE_HUB):
            DO[type(fault)](self, fault, now)

    def noted(self, fault: AnyFault, now: float) -> None:
        """``fault`` happens now, whoever carries it out."""
        self.happened.append(fault)
        self._log("fault", fault, now)
        ends = now + getattr(fault, "duration", 0.0)
        self.last_ended = max(self.last_ended, ends)

    def _log(self, kind: str, fault: AnyFault, now: float) -> None:
        """Each fault is logged once, however many processes it touches."""
        if self.job.hub is not None:
            self.job.log([kind, now, self._entry(fault)])

    def _entry(self, fault: AnyFault) -> dict[str, Any]:
        entry: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(fault))  # lists, as a file has them
        if any(getattr(fault, name, None) is not None for name in MANY):
            entry["replicas"] = sorted(replicas_of(fault, self.job.shape))
        return entry

    # -- what strikes ask for ----------------------------------------------------------------------

    def later(self, seconds: float, fault: AnyFault, act: Callable[[float], object] | None = None) -> None:
        """When the fault ends: undo it and say so."""
        self.lasting.append(fault)

        def heal(_: object, now: float) -> None:
            if act is not None:
                act(now)
            self._healed(fault, now)

        self.job.kernel.at(self.job.kernel.now + seconds, heal, None)

    def _healed(self, fault: AnyFault, now: float) -> None:
        self.lasting.remove(fault)
        self.last_ended = max(self.last_ended, now)
        self._log("heal", fault, now)

    def until_next_end(self, replica: Replica, fault: AnyFault) -> None:
        """The fault lasts until the life of ``replica`` that comes next is ended."""
        self.lasting.append(fault)
        self._till_restart.setdefault(replica, []).append(fault)

    def life_ended(self, replica: Replica, now: float) -> None:
        """A life of ``replica`` that a fault was about has been ended by its launcher."""
        for fault in self._till_restart.pop(replica, ()):
            self._healed(fault, now)

    def for_good(self, fault: AnyFault) -> None:
        """What the fault did to a position is never undone."""
        self.lasting.append(fault)

    @property
    def hub(self) -> Hub:
        """Only where it is; ``job.hub`` says whether it is here."""
        return self.job.the_hub

    def carefully(self, fault: AnyFault) -> None:
        """Lanes of the ranks that it hits run instant by instant from here on, wherever they are run."""
        self.careful |= {position for _, position in ranks_of(fault, self.job.shape)}

    def targets(self, fault: AnyFault) -> list[Process]:
        """Living processes that the fault hits; a fault of a replica that is down hits nobody."""
        found = [self.job.processes.get(rank) for rank in ranks_of(fault, self.job.shape)]
        return [process for process in found if process is not None and process.alive]

    def registered(self, fault: AnyFault) -> list[Process]:
        """Targets that may compute gradients: whoever is not registered yet has no part in the job."""
        return [process for process in self.targets(fault) if process.member.incarnation]


OF_THE_HUB = (*store.DO, *operation.DO)  # happen where the hub is; others wherever ranks are run
DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    **processes.DO,
    **devices.DO,
    **network.DO,
    **store.DO,
    **transfer.DO,
    **operation.DO,
}
