"""The agenda of a run: which faults of a schedule fall due now. Each falls due once.

The driver asks by time when its clock moves, and by phase at its hooks; turning a fault into
what the emulator does is the driver's work.
"""

from __future__ import annotations

from collections import deque

from .schedule import Schedule
from .targets import replica_of
from .vocabulary import AnyFault, Phase


class Agenda:
    """Faults by time and by phase, in an order that depends on the schedule alone.

    Faults of one time, or of one phase, fall due in the order in which the schedule lists them.
    At a phase for which no fault waits, asking costs one look into a dict.
    """

    def __init__(self, schedule: Schedule) -> None:
        timed = [fault for fault in schedule.faults if fault.at is not None]
        self._timed = deque(sorted(timed, key=_onset))
        self._by_phase: dict[Phase, list[AnyFault]] = {}
        for fault in schedule.faults:
            if fault.phase is not None:
                self._by_phase.setdefault(fault.phase, []).append(fault)

    def next_time(self) -> float | None:
        """Virtual seconds at which the next fault by time falls due; None when there is none left."""
        return _onset(self._timed[0]) if self._timed else None

    def due(self, now: float) -> tuple[AnyFault, ...]:
        """Takes off the faults whose time has come by ``now``."""
        taken: list[AnyFault] = []
        while self._timed and _onset(self._timed[0]) <= now:
            taken.append(self._timed.popleft())
        return tuple(taken)

    def at_phase(self, replica: int, step: int, phase: Phase) -> tuple[AnyFault, ...]:
        """Takes off the faults that fall due because ``replica`` has reached ``phase`` of ``step``.

        ``step`` is the number of updates before this one. A fault waits for its own replica, or, if it
        has none (one of the store, a partition), for any; and it waits for its step or a later one.
        """
        waiting = self._by_phase.get(phase)
        if not waiting:
            return ()
        taken = tuple(fault for fault in waiting if _is_due(fault, replica, step))
        if taken:
            self._by_phase[phase] = [fault for fault in waiting if not _is_due(fault, replica, step)]
        return taken

    def waits_for(self, phase: Phase) -> bool:
        """Whether a fault waits for ``phase``."""
        return bool(self._by_phase.get(phase))

    def pending(self) -> tuple[AnyFault, ...]:
        """What has not fallen due: by time first, then by phase. At the end of a run: what never happened."""
        return (*self._timed, *(fault for phase in Phase for fault in self._by_phase.get(phase, ())))


def _onset(fault: AnyFault) -> float:
    assert fault.at is not None
    return fault.at


def _is_due(fault: AnyFault, replica: int, step: int) -> bool:
    assert fault.step is not None
    return fault.step <= step and replica_of(fault) in (None, replica)
