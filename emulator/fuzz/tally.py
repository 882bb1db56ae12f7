"""What a campaign has seen so far, added up from verdicts in order of their numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .run import Verdict

YEAR = 365.25 * 24 * 3600.0


class Tally:
    """``failures``: every verdict with something wrong, in order."""

    def __init__(self) -> None:
        self.schedules = 0
        self.virtual_seconds = 0.0
        self.checked: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.failures: list[Verdict] = []

    def add(self, verdict: Verdict) -> None:
        """The next verdict."""
        self.schedules += 1
        self.virtual_seconds += verdict.virtual_seconds
        self.checked.update(verdict.checked)
        self.faults.update(verdict.faults)
        self.phases.update(verdict.phases)
        self.events.update(verdict.events)
        if verdict.labels:
            self.failures.append(verdict)

    @property
    def virtual_years(self) -> float:
        return self.virtual_seconds / YEAR

    def as_json(self) -> dict[str, Any]:
        """The part of a report that is the same for a seed, whatever the machine and the number of jobs."""
        return {
            "schedules": self.schedules,
            "faults_by_kind": dict(sorted(self.faults.items())),
            "faults_by_phase": dict(sorted(self.phases.items())),
            "events": dict(sorted(self.events.items())),
            "invariants": dict(self.checked),
            "virtual_years": round(self.virtual_years, 6),
            "failures": [{"number": f.number, "what": list(f.labels)} for f in self.failures],
        }
