"""One life of one replica, as the log shows it: the walk of states that its ranks make.

Within a replica every rank must pass through the same states in the same order; a rank may be
behind the others for as long as a decision takes to come down the tree, but it may never be
elsewhere. So a life keeps one walk, and for each rank only how far along it the rank is. What all
ranks have passed is forgotten: memory is a few words a rank, whatever the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .entries import Member

if TYPE_CHECKING:
    from .rounds import Book

State = tuple[int, str]  # (step, lineage)
MAX_SPREAD = 4096  # states that the last rank of a life may be behind the first


class Life:
    """(replica, incarnation), and where its ranks are.

    positions: of the ranks that are run; ``width`` of them
    at_top:    how many ranks have reached the newest state of the walk
    decided:   round -> "applied" or "dropped", of recent rounds
    retained:  for each rank the book of the last round that it computed, and the gradients
    """

    __slots__ = (
        "at_top", "base", "base_round", "crashed", "decided", "exited", "fenced", "index", "key",
        "offset", "positions", "retained_book", "retained_grads", "since", "strays", "walk", "width",
    )  # fmt: skip

    def __init__(self, key: Member, ranks: int, positions: Sequence[int], since: float) -> None:
        self.key = key
        self.positions, self.width = positions, len(positions)
        self.since = since
        self.index = [-1] * ranks
        self.walk: list[State] = []
        self.offset = 0
        self.at_top = 0
        self.strays: dict[int, State] = {}
        self.base_round = -1
        self.base = ""
        self.decided: dict[int, str] = {}
        self.retained_book: list[Book | None] = [None] * ranks
        self.retained_grads: list[Any] = [None] * ranks
        self.crashed: float | None = None
        self.exited: float | None = None
        self.fenced: float | None = None

    def state_of(self, position: int) -> State | None:
        """What the rank at ``position`` holds, or None while it has not said so."""
        if self.strays and position in self.strays:
            return self.strays[position]
        i = self.index[position]
        return None if i < 0 else self.walk[i - self.offset]

    def move(self, position: int, state: State) -> State | None:
        """The rank at ``position`` now holds ``state``. Returns what it should hold instead, if so."""
        at = self.index[position] + 1
        self.index[position] = at
        k = at - self.offset
        walk = self.walk
        if k == len(walk):
            walk.append(state)
            self.at_top = 0
        expected = walk[k]
        if k == len(walk) - 1:
            self.at_top += 1
            if self.at_top == self.width:
                self.walk = [expected]
                self.offset = at
        if expected != state:
            self.strays[position] = state
            return expected
        if self.strays:
            self.strays.pop(position, None)
        return None

    def leads(self, position: int) -> bool:
        """Whether no rank of this life has gone further than the one at ``position``."""
        return self.index[position] - self.offset == len(self.walk) - 1

    @property
    def level(self) -> State | None:
        """The state that all ranks hold, or None while they are on their way."""
        return self.walk[-1] if self.at_top == self.width and not self.strays else None

    def states(self) -> set[State | None]:
        """Every state that some rank holds."""
        return {self.state_of(position) for position in self.positions}

    def reseat(self, positions: Sequence[int]) -> None:
        """Other ranks are run from here on. Those that were not are where all of the others are."""
        top = self.offset + len(self.walk) - 1
        self.index = [-1] * len(self.index)
        for position in positions:
            self.index[position] = top
        self.positions, self.width = positions, len(positions)
        self.at_top = self.width

    def forget(self) -> None:
        """Free what is kept for each rank: this life is over."""
        self.retained_book, self.retained_grads, self.index = [], [], []
        self.decided, self.walk, self.strays = {}, [], {}

    def __str__(self) -> str:
        return f"{self.key[0]}.{self.key[1]}"
