"""The head: the one register on which a job agrees (design 3.2). This file says what it is;
``advance.py``, ``recovery.py`` and ``registry.py`` hold the pure functions that change it."""

from __future__ import annotations

import enum
import hashlib

import msgspec

from .ids import Incarnation, Lineage, MemberId, Round, Step
from .ledger import Ledger
from .plan import Plan

TRAIL = 64  # heads that a head remembers to come from


class Status(enum.IntEnum):
    RUNNING = 1
    RECOVERING = 2  # the road to a rollback: members promise, then one plan is made of promises
    LOST = 3  # the store came back older than a member remembers: nothing moves until rebuilt


class Fate(enum.IntEnum):
    """What became of a round. There is no third answer: a round commits once or is closed for ever."""

    OPEN = 0
    COMMITTED = 1
    CLOSED = 2


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """One link of the chain: the state after ``round``, and who contributed to it."""

    step: Step
    lineage: Lineage
    round: Round
    contributors: tuple[MemberId, ...]


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A recorded checkpoint: the manifest of all ranks' shards of one (step, lineage)."""

    name: str
    step: Step
    lineage: Lineage
    ledger: Ledger


class Penalty(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An accused member stays out of plans before round ``until``; each strike doubles the time."""

    member: MemberId
    until: Round
    strikes: int


class Rollback(msgspec.Struct, frozen=True, array_like=True):
    """The last rollback, on record: from which end of the chain to which state, and why that one."""

    round: Round
    from_step: Step
    to_step: Step
    to_lineage: Lineage
    source: str  # live | initial | the name of a checkpoint


class Footprint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An earlier head that this one came from: its order, and a digest of all that it said."""

    order: tuple[int, int]
    mark: str


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The register. ``round`` is the open round, and ``plan.round == round`` while RUNNING.

    chain:      commits from the oldest rollback target to the end; chain[0] is the genesis, the
                state lineage(0) with round 0, which is always a rollback target
    incarnations: (latest incarnation, nonce of its registration) of each replica, 0 if none yet
    job:        digest of the configuration that every member must share
    closes:     consecutive closes of a step; doubles the durations of the next plan
    fruitless:  consecutive catch-up-only rounds whose whole time brought nobody nearer
    until:      the step with which the job ends: the last that any of its lives was asked for; 0: it has none
    trail:      footprints of the last heads before this one, so that a head of another branch (a store that
                came back older and was written to since) is known as such; None where a job keeps none
    """

    version: int
    epoch: int
    round: Round
    status: Status
    plan: Plan
    chain: tuple[Commit, ...]
    incarnations: tuple[tuple[Incarnation, str], ...]
    job: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()
    penalties: tuple[Penalty, ...] = ()
    closes: int = 0
    fruitless: int = 0
    rollback: Rollback | None = None
    trail: tuple[Footprint, ...] | None = None
    by: MemberId | None = None  # who made this change, for people and for the checker
    until: Step = 0

    @property
    def end(self) -> Commit:
        """The end of the chain: the only state that a plan may be based on."""
        return self.chain[-1]

    @property
    def finished(self) -> bool:
        """The chain has reached its last step: nothing is committed or cut any more (!)."""
        return 0 < self.until <= self.end.step

    @property
    def order(self) -> tuple[int, int]:
        """Heads are totally ordered by this: a read that goes back is a read of a stale replica."""
        return self.epoch, self.version

    @property
    def known(self) -> tuple[int, int]:
        """``order`` of the newest change to the job that this head knows: suspending it was none (!)."""
        return self.epoch, self.version - (self.status is Status.LOST)

    def current(self, member: MemberId) -> bool:
        """Whether ``member`` is the latest life of its replica."""
        return self.incarnations[member.replica][0] == member.incarnation

    def commit_of(self, round: Round) -> Commit | None:
        for commit in reversed(self.chain):
            if commit.round == round:
                return commit if round > 0 else None
            if commit.round < round:
                return None
        return None

    def fate(self, round: Round) -> Fate:
        """What became of ``round``, as this head shows it."""
        if round >= self.round:
            return Fate.OPEN
        return Fate.CLOSED if self.commit_of(round) is None else Fate.COMMITTED

    def fate_of(self, plan: Plan) -> Fate:
        """What became of the round of exactly ``plan``. In a store that came back older a round may have been
        opened again with another plan: then this one is closed, whatever became of the other."""
        if plan.round >= self.round:
            same = plan.round == self.round and plan.lineage_after == self.plan.lineage_after
            return Fate.OPEN if same else Fate.CLOSED
        commit = self.commit_of(plan.round)
        same = commit is not None and commit.lineage == plan.lineage_after
        return Fate.COMMITTED if same else Fate.CLOSED

    def on_chain(self, lineage: Lineage) -> bool:
        """Whether ``lineage`` is a prefix of the chain (design 3.2: nothing else is ever a base)."""
        return any(commit.lineage == lineage for commit in self.chain)

    def stored(self, lineage: Lineage) -> str:
        """Where the state is when no member has it: the name of a checkpoint, "initial", or "" (lost)."""
        for checkpoint in self.checkpoints:
            if checkpoint.lineage == lineage:
                return checkpoint.name
        return "initial" if self.chain[0].lineage == lineage else ""


def mark(head: Head) -> str:
    """Digest of all that ``head`` says."""
    return hashlib.blake2b(msgspec.msgpack.encode(head), digest_size=8).hexdigest()


def successor(head: Head, **changes: object) -> Head:
    """The head that follows ``head``: every compare-and-set increments the version and leaves a footprint."""
    trail = head.trail
    if trail is not None:
        trail = (*trail, Footprint(head.order, mark(head)))[-TRAIL:]
    changes = {"version": head.version + 1, "trail": trail, **changes}
    return msgspec.structs.replace(head, **changes)


def descends(head: Head, older: Head) -> bool:
    """Whether ``head`` came from ``older`` as far as its trail goes back. A later epoch was rebuilt from what
    all members knew, and stands for all of them."""
    if head.trail is None or head.epoch > older.epoch:
        return True
    if head.order == older.order:
        return mark(head) == mark(older)
    steps = {footprint.order: footprint.mark for footprint in head.trail}
    if not steps or older.order < min(steps):
        return True
    return steps.get(older.order) == mark(older)
