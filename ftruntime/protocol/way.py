"""A catcher's way to the end of the chain, seen by its leader (design 3.5).

A way starts at the state that the replica holds, or at one that it fetches, and goes on by the
reduced gradients of the rounds since, which the ranks hold. It is used only where it has no gap:
a held round is applied onto exactly its own base, complete at every rank, and on the chain (!).
"""

from __future__ import annotations

import copy
import enum

import msgspec

from .head import Fate, Head
from .ids import Lineage, Round
from .messages import Scalars
from .plan import Base, Plan


class Holding(enum.IntEnum):
    RECEIVING = 1
    COMPLETE = 2  # every rank of the replica holds every bucket
    BROKEN = 3  # some rank never will


class HeldRound(msgspec.Struct, frozen=True):
    plan: Plan
    holding: Holding = Holding.RECEIVING
    scalars: Scalars = ()


class Way:
    """``target`` is the state being fetched (None: start from what is held); ``staged``: all ranks
    have it; ``rounds``: the rounds whose reduced gradients the ranks hold, oldest first."""

    __slots__ = ("rounds", "staged", "target")

    def __init__(self) -> None:
        self.target: Base | None = None
        self.staged = False
        self.rounds: dict[Round, HeldRound] = {}

    def clone(self) -> Way:
        other = copy.copy(self)
        other.rounds = dict(self.rounds)
        return other

    def begin(self, plan: Plan) -> None:
        """The ranks start to hold the reduced gradients of ``plan.round``."""
        self.rounds[plan.round] = HeldRound(plan)

    def fetch(self, target: Base) -> None:
        self.target, self.staged = target, False

    def stop_fetch(self) -> None:
        self.target, self.staged = None, False

    def vote(self, round: Round, yes: bool, scalars: Scalars) -> None:
        """The ranks' word on a held round. Complete and broken are both final."""
        held = self.rounds.get(round)
        if held is None or held.holding is not Holding.RECEIVING:
            return
        holding = Holding.COMPLETE if yes else Holding.BROKEN
        self.rounds[round] = msgspec.structs.replace(held, holding=holding, scalars=scalars)

    def broken(self, round: Round) -> bool:
        """Whether ``round`` is held and some rank will never have all of it: that is a no to it."""
        held = self.rounds.get(round)
        return held is not None and held.holding is Holding.BROKEN

    def done(self, round: Round) -> None:
        del self.rounds[round]

    def start(self, held: Lineage) -> Lineage:
        return self.target.lineage if self.target is not None else held

    def gap(self, head: Head, held: Lineage) -> str:
        """Why this way does not lead to the end of the chain, or "" if it does or still may."""
        lineage = self.start(held)
        links = [c.lineage for c in head.chain]
        if lineage not in links:
            return f"{lineage[:8]} is not on the chain"
        for commit in head.chain[links.index(lineage) + 1 :]:
            round = self.rounds.get(commit.round)
            if round is None:
                return f"round {commit.round} was missed"
            if round.holding is Holding.BROKEN:
                return f"round {commit.round} is not complete at every rank"
            if round.plan.base.lineage != lineage or round.plan.lineage_after != commit.lineage:
                return f"the chain between {lineage[:8]} and round {commit.round} is forgotten"
            lineage = commit.lineage
        return ""

    def applicable(self, head: Head, held: Lineage) -> HeldRound | None:
        """A held round that may be applied onto ``held`` now."""
        for entry in self.rounds.values():
            ready = entry.plan.base.lineage == held and entry.holding is Holding.COMPLETE
            if ready and head.fate_of(entry.plan) is Fate.COMMITTED:
                return entry
        return None

    def pending(self, head: Head, held: Lineage) -> Round | None:
        """The committed round onto ``held`` that is still being received, if there is one."""
        for round, entry in self.rounds.items():
            receiving = entry.plan.base.lineage == held and entry.holding is Holding.RECEIVING
            if receiving and head.fate_of(entry.plan) is Fate.COMMITTED:
                return round
        return None

    def useless(self, head: Head, held_step: int) -> Round | None:
        """A held round that will never be applied: closed, cut off, broken, or already contained."""
        for round, entry in self.rounds.items():
            fate = head.fate_of(entry.plan)
            past = entry.plan.base.step < held_step or entry.holding is Holding.BROKEN
            if fate is Fate.CLOSED or (fate is Fate.COMMITTED and past):
                return round
        return None

    def oldest_settled(self, head: Head) -> Round | None:
        """The oldest held round whose outcome is known and not yet carried out."""
        settled = [r for r, e in self.rounds.items() if head.fate_of(e.plan) is not Fate.OPEN]
        return min(settled) if settled else None
