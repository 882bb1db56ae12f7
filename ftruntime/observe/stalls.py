"""Where the time goes, live at a leader: the same phases and the same rule as ``docs/how-to/stalls.md``.

What the emulator works out of a whole event log is worked out here commit by commit: the time between two
commits, beyond the step that was due, belongs to the phase that it falls in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final

from ftruntime.protocol.ids import MemberId, Round

PHASES: Final = ("detect", "reconfigure", "retry", "join", "other")
TOLERANCE: Final = 0.1  # share of a step by which a gap may be longer before its excess counts as lost
REMEMBERED: Final = 64  # undisturbed steps whose median is the expected one
MARKS: Final = 256  # of one gap; a job that fails this often between two commits is lost to the first of them


class StallClock:
    """Told in the order of happening; all times in seconds of one clock.

    lost:     seconds by phase, all gaps together
    expected: seconds of an undisturbed step, 0 before the first
    """

    def __init__(self) -> None:
        self.lost = dict.fromkeys(PHASES, 0.0)
        self.expected = 0.0
        self._quiet_steps: deque[float] = deque(maxlen=REMEMBERED)
        self._begin: float | None = None
        self._marks: list[tuple[float, str, Round]] = []
        self._quiet = True
        self._before: frozenset[MemberId] = frozenset()
        self._known: frozenset[MemberId] = frozenset()
        self._carried = False  # a fault of the gap before, whose effect may come in this one

    def fault(self, now: float) -> None:
        """A peer, a lease or the own device was lost."""
        self._mark(now, "fault", -1)

    def close(self, now: float, round: Round) -> None:
        """``round`` was closed or given up: nobody commits it."""
        self._mark(now, "close", round)

    def work(self, now: float, round: Round) -> None:
        """A gradient of ``round`` is there."""
        if self._marks:
            self._mark(now, "work", round)

    def _mark(self, now: float, kind: str, round: Round) -> None:
        self._quiet = False
        if len(self._marks) < MARKS:
            self._marks.append((now, kind, round))

    def commit(self, now: float, contributors: Iterable[MemberId]) -> float | None:
        """A step was committed; returns the seconds since the one before, None for the first."""
        who = frozenset(contributors)
        seconds = None if self._begin is None else now - self._begin
        if seconds is not None:
            if self._quiet and who == self._before:
                self._quiet_steps.append(seconds)
            self.expected = median(self._quiet_steps or [seconds])
            for phase, lost in self._parts(now, bool(self._known) and not who <= self._known):
                self.lost[phase] += lost
        kinds = {kind for _, kind, _ in self._marks}
        self._carried = "fault" in kinds and "close" not in kinds
        self._begin, self._marks, self._quiet, self._before = now, [], True, who
        self._known |= who
        return seconds

    def _parts(self, end: float, joining: bool) -> Iterator[tuple[str, float]]:
        assert self._begin is not None, "a gap begins with a commit"
        due = self._begin + self.expected
        if end - self._begin <= self.expected * (1 + TOLERANCE):
            return
        struck = self._carried or any(kind == "fault" for _, kind, _ in self._marks)
        if joining and not struck:
            yield "join", end - due
            return
        for begin, until, phase in self._segments(end):
            if until > max(begin, due):
                yield phase, until - max(begin, due)

    def _segments(self, end: float) -> Iterator[tuple[float, float, str]]:
        assert self._begin is not None, "a gap begins with a commit"
        phase, since, closed = ("detect" if self._carried else "other"), self._begin, -1
        for time, kind, round in self._marks:
            after = phase
            if kind == "fault" and phase in ("other", "retry"):
                after = "detect"
            elif kind == "close" and round > closed:
                after, closed = "reconfigure", round
            elif kind == "work" and phase == "reconfigure" and round > closed:
                after = "retry"
            if after != phase:
                yield since, time, phase
                phase, since = after, time
        yield since, end, phase
