"""What a rank of the tree has heard from its subtree: answers come up once, votes may change.

Only ranks with children keep any of this; a leaf answers for itself alone.
"""

from __future__ import annotations

import copy

from .errors import ErrorReport
from .ids import Position
from .messages import Scalars


def fold(parts: list[Scalars]) -> Scalars:
    """Add scalars in the order of the list, which depends on the shape of the tree alone (design 3.3)."""
    total = parts[0]
    for part in parts[1:]:
        total = tuple(a + b for a, b in zip(total, part, strict=True))
    return total


class Ballot:
    """The votes (or answers to a seal) of a subtree on one round.

    ``cast`` returns what to pass on: True with scalars when all of the subtree says yes, False at
    the first no, None when there is nothing new to say. A later yes overwrites a no.
    """

    __slots__ = ("_said_no", "_voters", "_yes", "report")

    def __init__(self, voters: tuple[Position, ...]) -> None:
        self._voters = voters  # this rank itself first, then its children in ascending order
        self._yes: dict[Position, Scalars] = {}
        self._said_no = False
        self.report: ErrorReport | None = None

    def clone(self) -> Ballot:
        other = copy.copy(self)
        other._yes = dict(self._yes)
        return other

    def cast(self, voter: Position, yes: bool, scalars: Scalars, report: ErrorReport | None) -> bool | None:
        """Count a vote; what to pass on of it, as the class says."""
        if not yes:
            self._yes.pop(voter, None)
            if self._said_no:
                return None
            self._said_no, self.report = True, report
            return False
        self._yes[voter] = scalars
        return True if len(self._yes) == len(self._voters) else None

    def scalars(self) -> Scalars:
        """The fold over the whole subtree. Only after all have said yes."""
        return fold([self._yes[voter] for voter in self._voters])


class RollCall:
    """Who of a subtree has answered a question that has one answer."""

    __slots__ = ("_missing",)

    def __init__(self, voters: tuple[Position, ...]) -> None:
        self._missing = frozenset(voters)

    def clone(self) -> RollCall:
        return copy.copy(self)

    @property
    def missing(self) -> frozenset[Position]:
        return self._missing

    def answer(self, voter: Position) -> bool:
        """Whether this was the last answer that was missing."""
        if voter not in self._missing:
            return False
        self._missing -= {voter}
        return not self._missing
