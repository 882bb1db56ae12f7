"""The tree over the ranks of a replica: decisions go down it, votes come up.

Position 0 is the root. The shape depends on nothing but the number of ranks and the fan-out, so
every replica folds floating-point scalars in the same order and gets the same bits (design 3.3).
"""

from __future__ import annotations

from .ids import Position


def parent(position: Position, fan_out: int) -> Position | None:
    """The rank that ``position`` reports to, or None for the root."""
    return None if position == 0 else (position - 1) // fan_out


def children(position: Position, ranks: int, fan_out: int) -> range:
    """The ranks that report to ``position``, in ascending order."""
    first = position * fan_out + 1
    return range(min(first, ranks), min(first + fan_out, ranks))


def depth(ranks: int, fan_out: int) -> int:
    """Hops from the last rank to the root."""
    hops, position = 0, ranks - 1
    while position > 0:
        position = (position - 1) // fan_out
        hops += 1
    return hops
