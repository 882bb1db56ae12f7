"""The story of a violation: what a person needs to read of a log to understand it, and no more."""

from __future__ import annotations

from collections.abc import Iterable

from .entries import Entry
from .invariant import Violation
from .readable import describe

ROUNDS_BEFORE = 2
SECONDS_BEFORE = 60.0
LINES = 40
LIFE = ("start", "register", "crash", "exit", "fenced")
JOB = ("fault", "heal", "checkpoint")
WORK = ("computed", "reused", "applied", "dropped")


def narrate(entries: Iterable[Entry], violation: Violation, lines: int = LINES) -> list[str]:
    """The story of ``violation`` in at most ``lines`` lines, in the order of the log.

    Heads of the rounds around it, the lives of the members involved, the faults before it; what many
    ranks did alike is one line with their number. ``entries`` is read once and may be a LogReader.
    """
    story: list[str] = []
    crowd = _Crowd()
    for entry in entries:
        if entry[1] > violation.t:
            break
        if entry[0] in WORK or entry[0] == "installed":
            if _of_interest(entry, violation):
                story.extend(crowd.add(entry))
        elif _tells(entry, violation):
            story.extend(crowd.leave())
            story.append(describe(entry))
    story.extend(crowd.leave())
    kept = story if len(story) <= lines - 2 else ["...", *story[3 - lines :]]
    return [*kept, f"=> {violation.invariant}: {violation.message}"]


def _of_interest(entry: Entry, violation: Violation) -> bool:
    if violation.members and (entry[2], entry[3]) not in violation.members:
        return False
    if violation.round is None or entry[0] == "installed":
        return bool(entry[1] >= violation.t - SECONDS_BEFORE)
    return bool(violation.round - ROUNDS_BEFORE <= entry[5] <= violation.round)


def _tells(entry: Entry, violation: Violation) -> bool:
    kind, t = entry[0], entry[1]
    if kind == "head":
        if violation.round is not None:
            return bool(violation.round - ROUNDS_BEFORE <= entry[4] <= violation.round + 1)
        return bool(t >= violation.t - SECONDS_BEFORE)
    if t < violation.t - SECONDS_BEFORE:
        return False
    if kind in LIFE:
        return not violation.members or any(entry[2] == replica for replica, _ in violation.members)
    return kind in JOB


class _Crowd:
    """Ranks of one life that did the same thing, one after another."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._ranks: list[int] = []
        self._t = 0.0

    def add(self, entry: Entry) -> list[str]:
        key = (entry[0], entry[2], entry[3], entry[5])
        told = self.leave() if key != self._key else []
        if not self._ranks:
            self._key, self._t = key, entry[1]
        self._ranks.append(entry[4])
        return told

    def leave(self) -> list[str]:
        if not self._ranks:
            return []
        kind, replica, incarnation, round = self._key
        n = len(self._ranks)
        who = f"rank {self._ranks[0]}" if n == 1 else f"{n} ranks, {min(self._ranks)} to {max(self._ranks)},"
        what = f"install step {round}" if kind == "installed" else f"{kind} round {round}"
        self._ranks = []
        return [f"t={self._t:.6f} {replica}.{incarnation}: {who} {what}"]
