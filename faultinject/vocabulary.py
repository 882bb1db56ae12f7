"""The vocabulary of faults: every kind, its target, its onset, and what it does.

A kind is a class here and nowhere else: JSON, validation and strategies read its fields. A new
kind is a class and a place in ``AnyFault``; a new field is also a row in ``fields.py``.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Literal, TypeAlias, get_args

import msgspec

from .shape import Host, Rank

Party: TypeAlias = int | Literal["store"]  # who can be cut off: a replica, or the consensus store
Group: TypeAlias = tuple[Party, ...]


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
        reaches that phase in that step, or in a later step if it is not there in that one.
    cause: the row of the cause table that it was drawn from, for reports. Empty for a fault
        written by hand and for one that only accompanies another.
    """

    ONE_OF: ClassVar[tuple[str, ...]] = ()  # fields of which exactly one names the target

    at: float | None = None
    step: int | None = None
    phase: Phase | None = None
    cause: str = ""


class Crash(Fault, frozen=True, kw_only=True, tag="crash"):
    """The process of one rank, or of all ranks of one host, ends at once; its connections are reset."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "host")

    rank: Rank | None = None
    host: Host | None = None


class Hang(Fault, frozen=True, kw_only=True, tag="hang"):
    """The rank never completes its round, and its process lives on until someone ends it.

    ``never_joins``: it opens no connection of the round. ``joins_and_stalls``: it joins the ring,
    forwards some chunks, and stops. The two differ in what the neighbours see, and so in whom
    a time-out must name (design 3.4).
    """

    rank: Rank
    variant: Literal["never_joins", "joins_and_stalls"] = "joins_and_stalls"


class Slow(Fault, frozen=True, kw_only=True, tag="slow"):
    """A straggler: compute or link of a rank, or of all ranks of a replica, is ``factor`` times slower."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "replica")

    rank: Rank | None = None
    replica: int | None = None
    part: Literal["compute", "link"] = "compute"
    factor: float
    duration: float


class CorruptGradient(Fault, frozen=True, kw_only=True, tag="corrupt_gradient"):
    """One bit flips, silently, in a gradient that the rank computed, before FTAR sums it.

    It hits the next backward pass, once. No error is raised: only the checker, which knows what the
    devices should have computed, can see it.
    """

    rank: Rank


class NanGradient(Fault, frozen=True, kw_only=True, tag="nan_gradient"):
    """The next backward pass of the rank gives not-a-number, once; found-inf must travel in the vote."""

    rank: Rank


class Partition(Fault, frozen=True, kw_only=True, tag="partition"):
    """Messages between different groups are lost for a time. A party that is in no group reaches all.

    ``one_way``: there are two groups, and only what the first sends to the second is lost.
    """

    groups: tuple[Group, ...]
    one_way: bool = False
    duration: float


class LinkFlap(Fault, frozen=True, kw_only=True, tag="link_flap"):
    """The rank's network link goes away and comes back: its transfers fail with retries exceeded."""

    rank: Rank
    duration: float


class StoreSlow(Fault, frozen=True, kw_only=True, tag="store_slow"):
    """The consensus store answers ``factor`` times slower."""

    factor: float
    duration: float


class StoreAway(Fault, frozen=True, kw_only=True, tag="store_away"):
    """The consensus store answers nobody, and keeps what it has."""

    duration: float


class StoreLostAnswer(Fault, frozen=True, kw_only=True, tag="store_lost_answer"):
    """The next ``count`` writes take effect, and their answers are lost."""

    count: int = 1


class StoreLeaderChange(Fault, frozen=True, kw_only=True, tag="store_leader_change"):
    """The store elects: writes fail for a time, reads may be older than ones already seen."""

    duration: float


class StoreEmpty(Fault, frozen=True, kw_only=True, tag="store_empty"):
    """The store comes back without anything: no head, no records, no leases."""


class StoreRestoredOld(Fault, frozen=True, kw_only=True, tag="store_restored_old"):
    """The store comes back from a backup whose head is ``versions`` versions behind."""

    versions: int


class ReplicaLostForEver(Fault, frozen=True, kw_only=True, tag="replica_lost_for_ever"):
    """All ranks of the replica end, and no successor ever starts."""

    replica: int


class Zombie(Fault, frozen=True, kw_only=True, tag="zombie"):
    """The replica freezes and is taken for dead, so its successor starts; ``delay`` seconds after the
    onset the old processes go on as if nothing had been. Nothing that they do may have an effect."""

    replica: int
    delay: float


class Pause(Fault, frozen=True, kw_only=True, tag="pause"):
    """A rank, or all ranks of a replica, stand still and then go on where they were (SIGSTOP, SIGCONT).

    Shorter than the lease it is a straggler; longer, its lease runs out meanwhile.
    """

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "replica")

    rank: Rank | None = None
    replica: int | None = None
    duration: float


class LauncherDelay(Fault, frozen=True, kw_only=True, tag="launcher_delay"):
    """The next restart of the replica begins ``seconds`` later than it would have."""

    replica: int
    seconds: float


AnyFault: TypeAlias = (
    Crash
    | Hang
    | Slow
    | CorruptGradient
    | NanGradient
    | Partition
    | LinkFlap
    | StoreSlow
    | StoreAway
    | StoreLostAnswer
    | StoreLeaderChange
    | StoreEmpty
    | StoreRestoredOld
    | ReplicaLostForEver
    | Zombie
    | Pause
    | LauncherDelay
)


def kind_of(fault: Fault) -> str:
    """The name of a fault's kind, as JSON has it."""
    return str(fault.__struct_config__.tag)


KINDS: dict[str, type[AnyFault]] = {
    str(cls.__struct_config__.tag): cls for cls in get_args(AnyFault)
}  # in the order above
