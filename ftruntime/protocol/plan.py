"""The plan of a round: who trains what on which state, and who catches up from whom.

A plan is immutable and complete: two members that hold the same plan need no further word to
do the same thing. ``planner.py`` makes plans; this file says what one is.
"""

from __future__ import annotations

import enum
import hashlib

import msgspec

from .ids import Lineage, MemberId, Replica, Round, Step
from .ledger import Ledger, SampleRange, advance


class Kind(enum.IntEnum):
    TRAIN = 1
    CATCH_UP = 2  # too few holders to train: no contributors, can only be closed (design 3.2)


class Base(msgspec.Struct, frozen=True, array_like=True):
    """The state that a round starts from."""

    step: Step
    lineage: Lineage
    ledger: Ledger


class Target(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state that one fetch brings. All its ranges carry this one name (design 3.5)."""

    step: Step
    lineage: Lineage


class Catcher(msgspec.Struct, frozen=True, array_like=True):
    """A member that is not (yet) a contributor, and how it gets there.

    fetch:   the state to fetch; None when the member is level or goes on by held gradients alone
    donors:  members that keep a frozen copy of ``fetch`` while they are named here
    tap:     the contributor whose ranks forward finished chunks; None without contributors
    zeros:   it is a member of the ring, and sends zeros
    """

    member: MemberId
    fetch: Target | None = None
    donors: tuple[MemberId, ...] = ()
    tap: MemberId | None = None
    zeros: bool = False

    @property
    def holds(self) -> bool:
        """Whether the reduced gradients of the round come to it, one way or the other."""
        return self.zeros or self.tap is not None


class Durations(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Seconds, counted from what the observer itself saw, never absolute times (design 3.2)."""

    close_after: float


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """One round. ``ranges[i]`` belongs to ``contributors[i]``; both are in ring order.

    divisor:        what the sum of gradients is divided by when it is applied
    lr_factor:      what the learning rate is multiplied by when it is applied
    restore:        "", or the name of the recorded checkpoint that catchers load, or "initial"
    lineage_after:  lineage of the state if the round commits; "" for a plan of kind CATCH_UP
    reason:         one line for people
    """

    round: Round
    kind: Kind
    base: Base
    contributors: tuple[MemberId, ...]
    ranges: tuple[tuple[SampleRange, ...], ...]
    catchers: tuple[Catcher, ...]
    divisor: int
    lr_factor: float
    durations: Durations
    restore: str = ""
    lineage_after: Lineage = ""
    reason: str = ""

    def ring(self) -> tuple[MemberId, ...]:
        """Members of the ring in order: contributors first, so that zeros never part them."""
        return self.contributors + tuple(c.member for c in self.catchers if c.zeros)

    def catcher(self, member: MemberId) -> Catcher | None:
        for c in self.catchers:
            if c.member == member:
                return c
        return None

    def ranges_of(self, member: MemberId) -> tuple[SampleRange, ...]:
        return self.ranges[self.contributors.index(member)]

    def ranges_by_replica(self) -> dict[Replica, tuple[SampleRange, ...]]:
        return {m.replica: r for m, r in zip(self.contributors, self.ranges, strict=True)}

    def result(self) -> Base:
        """The state that committing this round leads to."""
        ledger = advance(self.base.ledger, self.ranges_by_replica())
        return Base(self.base.step + 1, self.lineage_after, ledger)

    def gist(self) -> object:
        """What the plan makes anyone do, less its number."""
        return self.kind, self.base.lineage, self.contributors, self.catchers, self.restore


def lineage_root(job: str, initial_digest: str) -> Lineage:
    """Lineage of the state before any commit: the job and its initial state (design 3.1)."""
    content = f"{job}\0{initial_digest}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def lineage_after(
    base: Lineage,
    round: Round,
    contributors: tuple[MemberId, ...],
    ranges: tuple[tuple[SampleRange, ...], ...],
    divisor: int,
    lr_factor: float,
    zeros: tuple[MemberId, ...] = (),
) -> Lineage:
    """Lineage of the state after committing these contributions onto ``base`` (design 3.1).

    ``zeros``: other members of the ring. They add nothing, but the length of the ring decides how buckets
    are cut, and so in which order floating-point sums are made.
    """
    content = msgspec.msgpack.encode((base, round, contributors, ranges, divisor, lr_factor, zeros))
    return hashlib.blake2b(content, digest_size=16).hexdigest()
