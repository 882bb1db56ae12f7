"""The faults that are still to come, as far as a run that folds must know them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from faultinject import AnyFault, JobShape, Schedule
from faultinject.targets import ranks_of
from ftruntime.protocol.ids import Position

Interruption = tuple[AnyFault, ...]
SINGLE = ("rank", "host", "rack", "link")  # targets that are some positions of a replica
MOST_DRAWN = 8  # interruptions drawn ahead for each fault that is looked for: not all touch single positions


class Drawn(Iterator[Interruption]):
    """An endless iterator of interruptions that can be looked at before they come, and begun anew.

    due: what was taken last and has not happened yet
    """

    def __init__(self, source: Iterator[Interruption]) -> None:
        self._source = source
        self._ahead: deque[Interruption] = deque()
        self._taken: list[Interruption] = []
        self.due: list[AnyFault] = []

    def __next__(self) -> Interruption:
        found = self._ahead.popleft() if self._ahead else next(self._source)
        self._taken.append(found)
        self.due = list(found)
        return found

    def coming(self, number: int) -> list[Interruption]:
        """The next ``number`` of them, which stay to come."""
        while len(self._ahead) < number:
            drawn = next(self._source, None)
            if drawn is None:
                break
            self._ahead.append(drawn)
        return list(self._ahead)[:number]

    def anew(self) -> Drawn:
        """From the beginning: what was taken comes once more."""
        other = Drawn(self._source)
        other._ahead.extend((*self._taken, *self._ahead))
        return other


class Coming:
    """What is still to happen, in the order in which it is expected: by time, or by step."""

    def __init__(self, faults: Schedule | Drawn, step_seconds: float, shape: JobShape) -> None:
        self._drawn = faults if isinstance(faults, Drawn) else None
        self._shape = shape
        self._left: list[AnyFault] = []
        if isinstance(faults, Schedule):
            self._left = sorted(faults.faults, key=lambda fault: _expected(fault, step_seconds))

    def happened(self, fault: AnyFault) -> None:
        """``fault`` is not to come any more."""
        if self._drawn is None:
            self._left = [other for other in self._left if other is not fault]
        else:
            self._drawn.due = [other for other in self._drawn.due if other is not fault]

    def touching(self, number: int) -> list[AnyFault]:
        """The next ``number`` faults that touch single positions."""
        found = [fault for fault in self._soon(number) if positions_of(fault, self._shape)]
        return found[:number]

    def _soon(self, number: int) -> list[AnyFault]:
        if self._drawn is None:
            return self._left
        coming = self._drawn.coming(MOST_DRAWN * number)
        return [*self._drawn.due, *(fault for faults in coming for fault in faults)]


def positions_of(fault: AnyFault, shape: JobShape) -> frozenset[Position]:
    """The single positions that ``fault`` touches; none where it touches all ranks of a replica alike."""
    position = getattr(fault, "position", None)
    if position is not None:
        return frozenset({position})
    if all(getattr(fault, name, None) is None for name in SINGLE):
        return frozenset()
    return frozenset(position for _, position in ranks_of(fault, shape))


def _expected(fault: AnyFault, step_seconds: float) -> float:
    if fault.at is not None:
        return fault.at
    return (fault.step or 0) * step_seconds
