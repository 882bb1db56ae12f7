"""What drawn schedules did not catch is looked for in every order of the events of a few small jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from faultinject.explore import Bounds, explore


def small_jobs(states: int) -> Iterator[Bounds]:
    """Cheap ones first, each of at most ``states`` states."""

    def job(rounds: int, **bounds: Any) -> Bounds:
        return Bounds(**{"lost_answers": 0, "timers": 0, **bounds}, rounds=rounds, max_states=states)

    yield job(1, crashes=0, timers=1)
    yield job(0, crashes=1, lost_answers=1)
    yield job(1, crashes=1, start="returning")
    yield job(1, crashes=1, start="returning", mode="zeros")
    yield job(1, crashes=1, restarts=1, lapses=1)
    yield job(0, crashes=1, timers=1, replicas=3)


def caught_by_exploring(most: int) -> tuple[int, str]:
    """How many states were seen, at most ``most`` of each job, and what was violated, or ""."""
    states = 0
    for bounds in small_jobs(most):
        report = explore(bounds)
        states += report.states
        if report.violation is not None:
            return states, report.violation.invariant
    return states, ""
