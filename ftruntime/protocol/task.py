"""What a plan asks of one replica: the same for all of its ranks, so its leader works it out once."""

from __future__ import annotations

import enum

import msgspec

from .ids import Lineage, MemberId
from .ledger import SampleRange
from .plan import Plan


class Part(enum.IntEnum):
    """The part that a replica plays in a round."""

    BYSTANDER = 0
    CONTRIBUTE = 1  # compute, reduce, vote
    ZEROS = 2  # catching up as a member of the ring that sends zeros
    LEARN = 3  # catching up beside the ring, by a tap


class Task(msgspec.Struct, frozen=True, array_like=True):
    """One replica's share of a plan.

    members, index:  size of the ring, and this replica's place in it (-1: not in it)
    left, right:     neighbours in the ring
    ranges:          samples to train
    tap:             for LEARN: whose ranks forward finished chunks
    learners:        members that tap this replica's ranks
    wanted:          states to keep frozen, and which catchers may fetch each
    """

    part: Part
    members: int
    index: int = -1
    left: MemberId | None = None
    right: MemberId | None = None
    ranges: tuple[SampleRange, ...] = ()
    tap: MemberId | None = None
    learners: tuple[MemberId, ...] = ()
    wanted: tuple[tuple[Lineage, tuple[MemberId, ...]], ...] = ()


def task_of(plan: Plan, me: MemberId) -> Task:
    """What ``plan`` asks of ``me``."""
    ring, catcher = plan.ring(), plan.catcher(me)
    wanted = _wanted(plan, me)
    if me in ring:
        index = ring.index(me)
        contributing = me in plan.contributors
        return Task(
            part=Part.CONTRIBUTE if contributing else Part.ZEROS,
            members=len(ring),
            index=index,
            left=ring[index - 1],
            right=ring[(index + 1) % len(ring)],
            ranges=plan.ranges_of(me) if contributing else (),
            learners=tuple(c.member for c in plan.catchers if c.tap == me),
            wanted=wanted,
        )
    if catcher is not None and catcher.tap is not None:
        return Task(Part.LEARN, len(ring), tap=catcher.tap, wanted=wanted)
    return Task(Part.BYSTANDER, len(ring), wanted=wanted)


def _wanted(plan: Plan, me: MemberId) -> tuple[tuple[Lineage, tuple[MemberId, ...]], ...]:
    wanted: dict[Lineage, tuple[MemberId, ...]] = {}
    for c in plan.catchers:
        if c.fetch is not None and me in c.donors:
            wanted[c.fetch.lineage] = (*wanted.get(c.fetch.lineage, ()), c.member)
    return tuple(sorted(wanted.items()))
