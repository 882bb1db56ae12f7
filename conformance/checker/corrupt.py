"""Whose state is not the one that its lineage names, because a fault has said so.

A bit that flips in a state (``corrupt_parameter``, ``corrupt_optimizer``) makes a rank differ from its peers
from then on, until it installs another state. Nothing in the protocol looks for that (guarantee 4), so it
spreads to whoever fetches the state from that rank, or restores a checkpoint that it wrote. The checker holds
such a rank's states against nobody's, and counts each that it has seen to differ; a state that differs where
no fault explains it is a violation.
"""

from __future__ import annotations

from typing import Any

from .entries import Member

KINDS = ("corrupt_parameter", "corrupt_optimizer")


class Corrupt:
    """Ranks whose states are corrupt, by life and position. ``seen``: how many were seen to differ."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[Member, int], bool] = {}  # -> whether it was seen
        self._positions: set[int] = set()
        self.seen = 0

    def plant(self, fault: dict[str, Any], registered: list[int]) -> None:
        """``fault`` takes effect on the life that is there."""
        if fault.get("kind") in KINDS and isinstance(fault.get("rank"), list):
            replica, position = fault["rank"]
            self._positions.add(position)
            self._ranks.setdefault(((replica, registered[replica]), position), False)

    def has(self, life: Member, position: int) -> bool:
        return bool(self._ranks) and (life, position) in self._ranks

    def may_spread(self, position: int) -> bool:
        """Whether some state of this position is, or was, corrupt: who copies one may have got that."""
        return position in self._positions

    def differs(self, life: Member, position: int) -> None:
        """The state of this rank is seen to be another than its peers'; it is corrupt, if it was not yet."""
        if not self._ranks.get((life, position), False):
            self.seen += 1
        self._ranks[life, position] = True

    def mended(self, life: Member, position: int) -> None:
        """The rank has installed what its peers have."""
        self._ranks.pop((life, position), None)

    def forget(self, life: Member) -> None:
        """The life is over."""
        for rank in [rank for rank in self._ranks if rank[0] == life]:
            del self._ranks[rank]
