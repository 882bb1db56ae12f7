"""The record that each member keeps in the store: what its replica holds now (design 3.2)."""

from __future__ import annotations

import enum

import msgspec

from .head import Head
from .ids import Lineage, MemberId, Replica, Round, Step
from .ledger import Ledger
from .plan import Target


class Stance(enum.IntEnum):
    """What a member says of the open round."""

    RUNNING = 1
    YES = 2
    NO = 3  # advice: it helps to close the round early, and is never taken for absence


class Held(msgspec.Struct, frozen=True, array_like=True):
    """The state of a replica: the same at every one of its ranks."""

    step: Step
    lineage: Lineage
    ledger: Ledger


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One member's word, keyed by (replica, incarnation) and overwritten in place.

    held:      what the replica holds now, never what it expects
    as_of:     the highest head round such that every rank has carried out (applied or dropped)
               the outcome of every earlier round; reading a head does not move it
    round:     the round that ``stance`` is about
    ready:     may be a contributor: warm, and connected to its future neighbours
    accuses:   replicas that this member could not talk to in ``round``
    fetching:  the state from which the member's way to the end of the chain starts, while it is
               under way: an unfinished fetch, or held gradients that wait to be applied
    unreadable: recorded checkpoints that some rank of this member could not restore
    seen:      the newest head that the member has seen; only while the store has lost its own
    leaving:   it goes as soon as a round is planned without it
    """

    member: MemberId
    held: Held
    as_of: Round
    round: Round
    stance: Stance
    ready: bool
    accuses: tuple[Replica, ...] = ()
    fetching: Target | None = None
    unreadable: tuple[str, ...] = ()
    seen: Head | None = None
    leaving: bool = False

    def holds(self, lineage: Lineage) -> bool:
        return self.held.lineage == lineage
