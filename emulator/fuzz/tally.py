"""What a campaign has seen so far, added up from verdicts in order of their numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faultinject import KINDS, POINTS

from .run import Verdict

YEAR = 365.25 * 24 * 3600.0
WHOLE = 3_000  # schedules of a campaign that must have reached every point, and drawn every kind


class Tally:
    """``failures``: every verdict with something wrong, in order."""

    def __init__(self) -> None:
        self.schedules = 0
        self.virtual_seconds = 0.0
        self.checked: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.failures: list[Verdict] = []

    def add(self, verdict: Verdict) -> None:
        """The next verdict."""
        self.schedules += 1
        self.virtual_seconds += verdict.virtual_seconds
        self.checked.update(verdict.checked)
        self.faults.update(verdict.faults)
        self.phases.update(verdict.phases)
        self.points.update(verdict.points)
        self.struck.update(verdict.struck)
        self.events.update(verdict.events)
        if verdict.labels:
            self.failures.append(verdict)

    @property
    def not_reached(self) -> list[str]:
        """Fault points that nothing has reached, where the campaign was long enough to reach them all."""
        return [name for name in POINTS if not self.points[name]] if self.schedules >= WHOLE else []

    @property
    def not_drawn(self) -> list[str]:
        """Kinds of faults that never took effect, likewise."""
        return [kind for kind in KINDS if not self.faults[kind]] if self.schedules >= WHOLE else []

    @property
    def virtual_years(self) -> float:
        return self.virtual_seconds / YEAR

    def as_json(self) -> dict[str, Any]:
        """The part of a report that is the same for a seed, whatever the machine and the number of jobs."""
        return {
            "schedules": self.schedules,
            "faults_by_kind": dict(sorted(self.faults.items())),
            "faults_by_phase": dict(sorted(self.phases.items())),
            "points": {name: self.points[name] for name in POINTS},
            "faults_by_point": dict(sorted(self.struck.items())),
            "points_not_reached": self.not_reached,
            "kinds_not_drawn": self.not_drawn,
            "events": dict(sorted(self.events.items())),
            "invariants": dict(self.checked),
            "virtual_years": round(self.virtual_years, 6),
            "failures": [{"number": f.number, "what": list(f.labels)} for f in self.failures],
        }
