"""Faults of the consensus store: slow, away, forgetful, or silent."""

from __future__ import annotations

from .base import Fault


class StoreSlow(Fault, frozen=True, kw_only=True, tag="store_slow"):
    """The consensus store answers ``factor`` times slower."""

    factor: float
    duration: float


class StoreAway(Fault, frozen=True, kw_only=True, tag="store_away"):
    """The consensus store answers nobody, and keeps what it has."""

    duration: float


class StoreRestart(Fault, frozen=True, kw_only=True, tag="store_restart"):
    """The store ends and starts again after ``duration``, with all that it had. Answers and news that were on
    their way are lost: connections were reset, so even a watch has missed what it was not told yet."""

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
