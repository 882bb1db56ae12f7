"""Running all twelve checks over a log, in one pass, and saying what came of it.

An invariant that was never checked, though the run should have exercised it, has failed: a checker
that saw nothing has shown nothing. What a run should have exercised is read off the log itself.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .agreement import Agreement
from .atomicity import Atomicity
from .blast_radius import BlastRadius
from .convergence import Convergence
from .durability import Durability
from .entries import ARITY, TYPES, BadEntry, Entry, Meta, typed
from .equality import Equality
from .exactly_once import ExactlyOnce
from .fencing import Fencing
from .gradient import Gradient
from .invariant import Invariant, Violation
from .lives import Life
from .progress import Progress
from .reader import LogReader
from .resources import Resources
from .single_lineage import SingleLineage
from .world import HeadView, World

ALL: tuple[type[Invariant], ...] = (
    Agreement, Atomicity, SingleLineage, Equality, ExactlyOnce, Gradient,
    Convergence, Progress, Fencing, BlastRadius, Durability, Resources,
)  # fmt: skip
WORK = ("computed", "reused", "applied", "dropped")  # entries of one rank about one round
STATE = ("installed", "initial", "shard", "over")  # entries of one rank about its state


@dataclass
class InvariantResult:
    """How often one invariant was checked and violated, and the first violations."""

    checked: int = 0
    violated: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def first(self) -> list[str]:
        return [str(violation) for violation in self.violations]


@dataclass
class Result:
    """What the checker found.

    expected: invariants that this run should have exercised
    failures: one line for each violated invariant, each that was expected and never checked, and
              for a log that does not reach its end
    corruptions_seen: injected silent corruptions of gradients and states that show in what devices did
    """

    invariants: dict[str, InvariantResult]
    expected: frozenset[str] = frozenset()
    failures: list[str] = field(default_factory=list)
    entries: int = 0
    steps_committed: int = 0
    lost_steps: int = 0
    corruptions_seen: int = 0
    truncated: str = ""

    @property
    def ok(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, dict[str, int]]:
        """The map that reports carry: name -> {checked, violated}."""
        return {
            name: {"checked": found.checked, "violated": found.violated}
            for name, found in self.invariants.items()
        }


class Checker:
    """All invariants over one log. Feed it entries in order, then ask for the result."""

    def __init__(self, first: Entry) -> None:
        meta = typed(first, 1)
        if not isinstance(meta, Meta):
            raise BadEntry(f"entry 1: a log begins with 'meta', not {first[0]!r}")
        if meta.config.schema != 1:
            raise BadEntry(f"entry 1: schema {meta.config.schema}; this checker reads schema 1")
        self.world = World(meta.config)
        self.invariants = [kind(self.world) for kind in ALL]
        self.entries = 1
        self._fencing = next(v for v in self.invariants if isinstance(v, Fencing))
        self._table = {kind: (ARITY[kind], self._route(kind)) for kind in TYPES}

    def _route(self, kind: str) -> Callable[[Entry], None]:
        handlers = [h for v in self.invariants if (h := getattr(v, f"on_{kind}", None)) is not None]
        if kind in WORK:
            return self._work(handlers)
        if kind in STATE:
            return self._state(handlers)
        if kind == "head":
            return self._head(handlers)
        told = getattr(self.world, f"on_{kind}", None)
        return self._plain(([told] if told else []) + handlers)

    def _work(self, handlers: list[Callable[[Entry, Life, Any], None]]) -> Callable[[Entry], None]:
        lives, book_of, named = self.world.lives, self.world.books.get, self._named

        def route(entry: Entry) -> None:
            life = lives.get((entry[2], entry[3]))
            if life is None and (life := named(entry)) is None:
                return
            if entry[4] < 0:
                raise IndexError(entry[4])
            book = book_of(entry[5])
            for handler in handlers:
                handler(entry, life, book)

        return route

    def _state(self, handlers: list[Callable[[Entry, Life], None]]) -> Callable[[Entry], None]:
        def route(entry: Entry) -> None:
            life = self._named(entry)
            if life is None:
                return
            if entry[4] < 0:
                raise IndexError(entry[4])
            for handler in handlers:
                handler(entry, life)

        return route

    def _named(self, entry: Entry) -> Life | None:
        """The life that ``entry`` speaks of; a life that is over has no business in the log any more."""
        self.world.now = entry[1]
        life = self.world.life(entry[2], entry[3])
        if life is None:
            self._fencing.ghost(entry)
        return life

    def _head(self, handlers: list[Callable[[Entry, HeadView], None]]) -> Callable[[Entry], None]:
        def route(entry: Entry) -> None:
            typed(entry, self.entries)
            self.world.now = entry[1]
            head = HeadView(entry, self.world)
            for handler in handlers:
                handler(entry, head)
            self.world.adopt(head)

        return route

    def _plain(self, handlers: list[Callable[[Entry], None]]) -> Callable[[Entry], None]:
        def route(entry: Entry) -> None:
            typed(entry, self.entries)
            self.world.now = entry[1]
            for handler in handlers:
                handler(entry)

        return route

    def observe(self, entry: Entry) -> None:
        """One entry. Raises BadEntry if it is not of the schema."""
        self.entries += 1
        try:
            arity, route = self._table[entry[0]]
            if len(entry) != arity:
                typed(entry, self.entries)
            route(entry)
        except (TypeError, IndexError, KeyError, AttributeError, ValueError):
            typed(entry, self.entries)  # says what is wrong with it, if anything is
            self._in_range(entry)
            raise

    def _in_range(self, entry: Entry) -> None:
        """Raises BadEntry if a number in ``entry`` names a replica or position that the job has not."""
        config = self.world.config
        if entry[0] == "head":
            return self._members_in_range(entry)
        limits = ((2, "replica", config.replicas), (4, "position", config.ranks_per_replica))
        for place, what, limit in limits:
            named = TYPES[entry[0]].__struct_fields__[place - 1 : place]
            if named == (what,) and not 0 <= entry[place] < limit:
                raise BadEntry(f"entry {self.entries}: {what} {entry[place]} is not below {limit}") from None

    def _members_in_range(self, entry: Entry) -> None:
        head = typed(entry)
        named = [] if head.by is None else [head.by]
        if head.plan is not None:
            named += [*head.plan.contributors, *head.plan.catchers]
        for replica, *_ in named:
            if not 0 <= replica < self.world.config.replicas:
                message = f"replica {replica} is not below {self.world.config.replicas}"
                raise BadEntry(f"entry {self.entries}: {message}") from None

    def finish(self, truncated: str = "") -> Result:
        """The log is over. ``truncated``: what the reader says if it was cut off, else empty."""
        for invariant in self.invariants:
            invariant.finish()
        found = {v.name: InvariantResult(v.checked, v.violated, v.violations) for v in self.invariants}
        durability = next(v for v in self.invariants if isinstance(v, Durability))
        result = Result(found, self.expected(), [], self.entries, self.world.commits, durability.lost_steps)
        gradient = next(v for v in self.invariants if isinstance(v, Gradient))
        result.corruptions_seen = gradient.corruptions_seen + self.world.corrupt.seen
        result.truncated = truncated
        result.failures = self._failures(result)
        return result

    def expected(self) -> frozenset[str]:
        """What this run should have exercised."""
        world, names = self.world, set()
        disturbed = world.faults.seen > 0 or world.crashes > 0
        if world.commits:
            names |= {"agreement", "atomicity", "single_lineage", "exactly_once", "gradient"}
            if world.config.replicas >= 2:
                names.add("equality")
        if disturbed and world.ended:
            names.add("blast_radius")
        if any(incarnation >= 2 for incarnation in world.registered):
            names.add("fencing")
        if world.rollbacks or (world.crashes and world.commits_after_crash):
            names.add("durability")
        for invariant in self.invariants:
            if isinstance(invariant, (Convergence, Progress, Resources)) and invariant.due:
                names.add(invariant.name)
        return frozenset(names)

    def _failures(self, result: Result) -> list[str]:
        lines = []
        for name, found in result.invariants.items():
            if found.violated:
                lines.append(f"{name}: violated {found.violated} times in {found.checked} checks")
            elif name in result.expected and not found.checked:
                lines.append(f"{name}: never checked, though this run should have exercised it")
        if result.truncated:
            lines.append(f"the log is cut off: {result.truncated}")
        elif not self.world.ended:
            lines.append("the log has no 'end': the run was killed or is still going")
        return lines


def check(entries: Iterable[Entry]) -> Result:
    """Check a log given as entries. Raises BadEntry, CorruptLog."""
    stream = iter(entries)
    first = next(stream, None)
    if first is None:
        raise BadEntry("the log is empty")
    checker = Checker(first)
    for entry in stream:
        checker.observe(entry)
    return checker.finish(entries.truncated if isinstance(entries, LogReader) else "")


def check_file(path: str | Path) -> Result:
    """Check the log at ``path``, block by block. Raises BadEntry, CorruptLog, OSError.

    The cyclic garbage collector rests meanwhile: entries are lists of lists without cycles, and going
    through them again and again would cost more than checking them.
    """
    resting = gc.isenabled()
    gc.disable()
    try:
        return check(LogReader(path))
    finally:
        if resting:
            gc.enable()
