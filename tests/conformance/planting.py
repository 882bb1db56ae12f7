"""Tools to plant a fault in a log: find entries, change them, and say which invariants see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.checker import Result, check

Entry = list[Any]
Log = list[Entry]


def broken(log: Log) -> set[str]:
    """Names of the invariants that ``log`` violates."""
    return {name for name, found in check(log).invariants.items() if found.violated}


def where(log: Log, kind: str, test: Callable[[Entry], bool] = lambda e: True) -> list[int]:
    """Numbers of the entries of ``kind`` that pass ``test``."""
    return [i for i, e in enumerate(log) if e[0] == kind and test(e)]


def pick(log: Log, kind: str, test: Callable[[Entry], bool] = lambda e: True, n: int = 0) -> Entry:
    return log[where(log, kind, test)[n]]


def of(replica: int, incarnation: int, position: int | None = None) -> Callable[[Entry], bool]:
    """Entries of one life, or of one rank of it."""
    return lambda e: e[2:4] == [replica, incarnation] and position in (None, e[4] if len(e) > 4 else None)


def later(log: Log, start: int, seconds: float) -> None:
    """Everything from entry ``start`` on happens ``seconds`` later."""
    for entry in log[start:]:
        entry[1] += seconds


def heads(log: Log) -> Log:
    return [e for e in log if e[0] == "head"]


def rollback_head(log: Log) -> Entry:
    return next(e for e in heads(log) if e[9])


def first_failures(result: Result) -> str:
    """Everything that a failed assertion should show."""
    lines = list(result.failures)
    for name, found in result.invariants.items():
        lines += [f"{name}: {text}" for text in found.first]
    return "\n".join(lines)
