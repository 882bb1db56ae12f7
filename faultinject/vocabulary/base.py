"""What every fault has, and the words that several kinds share."""

from __future__ import annotations

import enum
from typing import ClassVar, Literal, TypeAlias

import msgspec

from ..shape import Rank

Party: TypeAlias = int | Literal["store"]  # who can be cut off: a replica, or the consensus store
Group: TypeAlias = tuple[Party, ...]
Link: TypeAlias = tuple[Rank, Rank]  # what two ranks say to each other

PLACES = ("rank", "host", "rack", "replica", "building")  # targets that are processes


class Phase(enum.StrEnum):
    """Where in a step (design 3.3), or on its way back into the job (3.5), a replica is."""

    PLAN = "plan"  # the plan of the round goes down the tree
    FORWARD = "forward"
    BACKWARD = "backward"
    FTAR = "ftar"  # the first bucket's all-reduce has begun
    VOTE = "vote"  # the ranks answer whether they have every bucket
    COMMIT = "commit"  # all said yes; the leader writes to consensus
    APPLY = "apply"  # the decision is known; the optimizer has not run yet
    FETCH = "fetch"  # a catcher fetches the state
    JOIN = "join"  # a catcher is ready and about to become a contributor


class Fault(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
):
    """What every fault has: its onset, and what it is said to come from.

    at: onset in virtual seconds from the start of the job; or else
    step, phase: onset when the target's replica (for a fault without one: any replica) first
        reaches that phase in that step, or in a later step if it is not there in that one; or else
    point: onset when a rank that the fault hits (for a fault that hits none: any rank) reaches this
        named point (``faultinject.points``), in ``step`` or later if one is given.
    cause: the row of the cause table that it was drawn from, for reports. Empty for a fault
        written by hand and for one that only accompanies another.
    """

    ONE_OF: ClassVar[tuple[str, ...]] = ()  # fields of which exactly one names the target

    at: float | None = None
    step: int | None = None
    phase: Phase | None = None
    point: str | None = None
    cause: str = ""
