"""What the checks of all twelve invariants have in common: counting, and the first violations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .entries import Entry, Member
from .readable import describe
from .world import World

KEPT = 5  # violations that are kept with their entries; the others are only counted


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: when, in which round, who was involved, and the entries that show it."""

    invariant: str
    message: str
    t: float
    round: int | None = None
    members: tuple[Member, ...] = ()
    entries: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        shown = "".join(f"\n    {entry}" for entry in self.entries)
        return f"t={self.t:.6f} {self.message}{shown}"


class Invariant:
    """Base of all invariants. A method ``on_<kind>`` is called for every entry of that kind.

    Signatures: ``on_head(entry, head)`` before the world adopts the head; ``on_computed``,
    ``on_reused``, ``on_applied``, ``on_dropped``: ``(entry, life, book)`` with book None if the round is
    not known; ``on_installed``, ``on_initial``: ``(entry, life)``; all others ``(entry)``.
    """

    name: ClassVar[str]

    def __init__(self, world: World) -> None:
        self.world = world
        self.checked = 0
        self.violated = 0
        self.violations: list[Violation] = []

    def fail(
        self, message: str, *entries: Entry, round: int | None = None, members: tuple[Member, ...] = ()
    ) -> None:
        """Count a violation, and keep it if it is one of the first."""
        self.violated += 1
        if len(self.violations) < KEPT:
            shown = tuple(describe(entry) for entry in entries)
            t = float(entries[0][1]) if entries else self.world.now
            self.violations.append(Violation(self.name, message, t, round, members, shown))

    def finish(self) -> None:
        """The log is over: judge what only the end can tell."""
