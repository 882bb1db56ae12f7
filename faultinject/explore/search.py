"""The search itself: breadth first, so the first violation found has a shortest path.

Two states are one if their rows are equal; rows are kept as 16-byte digests. The path to a state is found by
going back over who was reached from where.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections.abc import Callable
from typing import TypeAlias

from .bounds import Bounds
from .job import Job, Move, Row
from .labels import label
from .liveness import Liveness
from .report import Report, Violation
from .starts import start_world

Progress: TypeAlias = Callable[[int, int, int], None]


class Search:
    """One exploration. ``run`` it once."""

    def __init__(self, bounds: Bounds) -> None:
        self.began = time.perf_counter()
        self.bounds, self.job = bounds, Job(bounds)
        self.liveness = Liveness(self.job)
        self.start = self.job.row(start_world(bounds))
        self.transitions = self.depth = self.beyond = self.at_rest = 0
        self._found: dict[bytes, int] = {}
        self._from, self._by = array("I"), array("I")
        self._moves: dict[Move, int] = {}
        self._names: list[Move] = []
        self._last = self._head_round(self.start) + bounds.rounds
        self.violation: Violation | None = None

    def run(self, progress: Progress | None) -> bool:
        """Explore; True if every state within the bounds was expanded."""
        self._enter(self.start, 0, ("start",))
        layer = [(self.start, 0)]
        while layer and self.violation is None:
            if progress is not None:
                progress(self.depth, len(self._found), len(layer))
            after: list[tuple[Row, int]] = []
            for row, number in layer:
                self._expand(row, number, after)
                if self.violation is not None or len(self._found) > self.bounds.max_states:
                    return False
            layer = after
            self.depth += bool(after)
        return self.violation is None

    @property
    def states(self) -> int:
        return len(self._found)

    def _expand(self, row: Row, number: int, after: list[tuple[Row, int]]) -> None:
        if self._head_round(row) > self._last:
            self.beyond += 1
            return
        job = self.job
        moves, at_rest = job.moves(row)
        for move in moves:
            self.transitions += 1
            new, wrong = job.do(row, move)
            if wrong:
                self._violated(wrong[0], number, (move,))
                return
            entered = self._enter(new, number, move)
            if entered:
                wrong = job.invariants.state(new)
                if wrong:
                    self._violated(wrong[0], entered, ())
                    return
                after.append((new, entered))
        self._live(row, number, at_rest)

    def _live(self, row: Row, number: int, at_rest: bool) -> None:
        self.at_rest += at_rest
        every = self.bounds.liveness_every
        if at_rest or (every and number % every == 0):
            wrong, moves = self.liveness.check(row)
            if wrong:
                self._violated(wrong, number, moves)

    def _head_round(self, row: Row) -> int:
        head = self.job.registers.table[row[self.job.register]].head
        return 0 if head is None else head.round

    def _enter(self, row: Row, source: int, move: Move) -> int:
        """The number of a new state, or 0 for one that is known (and for the start)."""
        name = hashlib.blake2b(array("I", row).tobytes(), digest_size=16).digest()
        number = self._found.setdefault(name, len(self._found))
        if number < len(self._from):
            return 0
        self._from.append(source)
        by = self._moves.setdefault(move, len(self._moves))
        if by == len(self._names):
            self._names.append(move)
        self._by.append(by)
        return number

    # -- paths ---------------------------------------------------------------------------------------

    def _violated(self, invariant: str, number: int, then: tuple[Move, ...]) -> None:
        path: list[Move] = []
        while number:
            path.append(self._names[self._by[number]])
            number = self._from[number]
        self.violation = Violation(invariant, tuple(self._tell((*reversed(path), *then), len(path))))

    def _tell(self, moves: tuple[Move, ...], explored: int) -> list[str]:
        """The path in words; what follows ``explored`` moves is a continuation without faults."""
        row, lines = self.start, []
        for i, move in enumerate(moves):
            lines.append(label(self.job, row, move))
            row, _ = self.job.do(row, move, free=i >= explored)
        return lines


def explore(bounds: Bounds, progress: Progress | None = None) -> Report:
    """Explore every order of events of a small job within ``bounds``.

    progress: called for each layer with (depth, states so far, states in the layer)
    """
    search = Search(bounds)
    return report_of(search, search.run(progress))


def report_of(search: Search, complete: bool) -> Report:
    """What ``search`` has found so far, also of one that was interrupted."""
    return Report(
        bounds=search.bounds,
        states=search.states,
        transitions=search.transitions,
        depth=search.depth,
        beyond=search.beyond,
        at_rest=search.at_rest,
        continued=search.liveness.continued,
        nodes=len(search.job.nodes.table),
        steps=search.job.nodes.steps,
        seconds=time.perf_counter() - search.began,
        complete=complete,
        violation=search.violation,
    )
