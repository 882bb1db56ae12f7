"""What an exploration found."""

from __future__ import annotations

import msgspec

from .bounds import Bounds

LINES = 240  # of a path that are printed: its start and its end


class Violation(msgspec.Struct, frozen=True):
    """``path``: what happened, in order, one line each, from the start to the violation."""

    invariant: str
    path: tuple[str, ...]

    def text(self) -> str:
        """The violation for people to read."""
        told = [f"  {i + 1:3} {line}" for i, line in enumerate(self.path)]
        if len(told) > LINES:
            told = [*told[: LINES // 2], "  ...", *told[-LINES // 2 :]]
        return "\n".join([f"violated: {self.invariant}", f"after {len(self.path)} moves:", *told])


class Report(msgspec.Struct, frozen=True):
    """Counts of one exploration.

    states, transitions:  distinct states reached, and moves taken between them
    depth:       length of the longest shortest path
    beyond:      states whose round lies beyond the bound: checked, not expanded
    at_rest:     states in which only time can pass
    continued:   states from which a fair continuation was followed to a new commit by all replicas
    complete:    every state within the bound was expanded
    nodes:       distinct states of single ranks; the protocol code ran only for new pairs of (one, event)
    """

    bounds: Bounds
    states: int
    transitions: int
    depth: int
    beyond: int
    at_rest: int
    continued: int
    nodes: int
    steps: int
    seconds: float
    complete: bool
    violation: Violation | None = None

    @property
    def states_per_second(self) -> float:
        return self.states / max(self.seconds, 1e-9)

    def text(self) -> str:
        """The report for people to read."""
        end = "complete for its bounds" if self.complete else "NOT complete"
        lines = [
            f"{self.states} states, {self.transitions} transitions, depth {self.depth}: {end}",
            f"{self.beyond} beyond the bound, {self.at_rest} at rest",
            f"{self.continued} continued to a commit by all replicas",
            f"{self.nodes} states of single ranks, {self.steps} steps of the protocol",
            f"{self.seconds:.1f} s, {self.states_per_second:.0f} states/s",
        ]
        return "\n".join([*lines, self.violation.text() if self.violation else "no violation"])
