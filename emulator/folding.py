"""Which positions do the same, and which of them is run for all: arithmetic on the tree of a replica.

The positions of a replica are coloured by all that makes them differ: their links, what is about to happen
to them, how they stand. A *class* is a set of positions of one colour whose parents are of one class, and
whose children fall into the same classes as often (colour refinement; on a tree, once up and once down is
all of it). Then what one position of a class sends and hears, the others send and hear, too: one is run and
counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from ftruntime.protocol.ids import Position
from ftruntime.protocol.tree import children, parent

from .network import Topology


class Route(NamedTuple):
    """``hearer``, which is run, hears it as from ``speaker``; it stands for ``times`` messages of the
    sender."""

    speaker: Position
    hearer: Position
    times: int


def classes(colours: Sequence[int], fan_out: int) -> list[int]:
    """The coarsest partition that refines ``colours`` and that no message can tell apart: class by position.

    Up the tree a position is named by its colour and the names of its children, so equal names mean equal
    subtrees; down the tree, by that name and its parent's class.
    """
    ranks = len(colours)
    names: dict[object, int] = {}
    below = [0] * ranks
    for position in range(ranks - 1, -1, -1):
        kids = children(position, ranks, fan_out)
        key = (colours[position], tuple(sorted(below[kids.start : kids.stop])))
        below[position] = names.setdefault(key, len(names))
    found: dict[object, int] = {}
    result = [0] * ranks
    for position in range(ranks):
        above = parent(position, fan_out)
        key = (below[position], -1 if above is None else result[above])
        result[position] = found.setdefault(key, len(found))
    return result


def link_colours(topology: Topology, fan_out: int) -> list[int]:
    """Colours by the links of a position: to its parent, and to its like in replicas of one building.
    Position 0 has its own: the leader is there."""
    firsts = range(0, topology.replicas, topology.config.buildings)  # the others stand as one of these does
    pairs = [(a, b) for a in firsts for b in firsts if a < b]
    names: dict[object, int] = {}
    colours = []
    for position in range(topology.ranks):
        above = parent(position, fan_out)
        up = None if above is None else tuple(topology.tier((r, position), (r, above)) for r in firsts)
        across = tuple(topology.tier((a, position), (b, position)) for a, b in pairs)
        colours.append(names.setdefault((up, across), len(names)))
    return colours


def combined(ranks: int, *shades: Sequence[Hashable] | dict[Position, Hashable]) -> list[int]:
    """One colour for each position from several: equal only where all are."""
    names: dict[object, int] = {}
    found = []
    for position in range(ranks):
        key = tuple(s.get(position) if isinstance(s, dict) else s[position] for s in shades)
        found.append(names.setdefault(key, len(names)))
    return found


class Seating:
    """Who is run.

    positions:  those that are run, in ascending order
    stands_in:  by position: who is run for it
    counts:     by position that is run: for how many
    """

    def __init__(self, of_class: Sequence[int], fan_out: int, preferred: Iterable[Position] = ()) -> None:
        """``of_class``: as ``classes`` gives it. ``preferred``: run these where there is a choice."""
        first: dict[int, Position] = {}
        for position in (*sorted(preferred), *range(len(of_class))):
            first.setdefault(of_class[position], position)
        self.ranks, self.fan_out = len(of_class), fan_out
        self.stands_in = [first[name] for name in of_class]
        self.positions: tuple[Position, ...] = tuple(sorted(first.values()))
        self.counts = dict.fromkeys(self.positions, 0)
        for position in self.stands_in:
            self.counts[position] += 1
        self._routes: dict[tuple[Position, Position], Route] = {}

    @cached_property
    def sizes(self) -> list[int]:
        """``counts`` in the order of ``positions``."""
        return [self.counts[position] for position in self.positions]

    def alone(self, position: Position) -> bool:
        """Whether ``position`` is run, and for itself only."""
        return self.counts[self.stands_in[position]] == 1

    def family(self, position: Position) -> tuple[Position, ...]:
        """The children whom ``position``, which is run, tells and hears: the first of each class."""
        first: dict[Position, Position] = {}
        for child in self._children(position):
            first.setdefault(self.stands_in[child], child)
        return tuple(sorted(first.values()))

    def route(self, source: Position, target: Position) -> Route:
        """What becomes of a message from ``source``, which is run, to its parent, or a child of its
        family."""
        found = self._routes.get((source, target))
        if found is None:
            up = target == parent(source, self.fan_out)
            found = self._up(source, target) if up else self._down(source, target)
            self._routes[source, target] = found
        return found

    def _children(self, position: Position) -> range:
        return children(position, self.ranks, self.fan_out)

    def _up(self, source: Position, target: Position) -> Route:
        hearer = self.stands_in[target]
        speaker = next(x for x in self._children(hearer) if self.stands_in[x] == source)
        return Route(speaker, hearer, 1)

    def _down(self, source: Position, target: Position) -> Route:
        hearer = self.stands_in[target]
        above = parent(hearer, self.fan_out)
        assert above is not None
        times = sum(self.stands_in[x] == hearer for x in self._children(source))
        return Route(above, hearer, times)
