"""Faults of data on its way or at rest: chunks of FTAR, ranges of a fetch, checkpoints, samples."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..shape import Host, Rank
from .base import Fault


class CorruptChunk(Fault, frozen=True, kw_only=True, tag="corrupt_chunk"):
    """One bit flips in the next ``count`` chunks of FTAR that the rank sends, on their way. Their checksums
    do not fit, so they are never consumed: the receiver's connection counts as broken (transient)."""

    rank: Rank
    count: int = 1


class CorruptRange(Fault, frozen=True, kw_only=True, tag="corrupt_range"):
    """One bit flips in the next ``count`` ranges of its state that the rank hands to a catcher. Their
    checksums do not fit, and the catcher asks again, another donor if there is one."""

    rank: Rank
    count: int = 1


class DonorLost(Fault, frozen=True, kw_only=True, tag="donor_lost"):
    """The next time that this rank asks a donor for a range, the donor's rank dies on hearing it."""

    rank: Rank


class DonorSlow(Fault, frozen=True, kw_only=True, tag="donor_slow"):
    """Ranges that the rank or replica hands out take ``factor`` times as long."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "replica")

    rank: Rank | None = None
    replica: int | None = None
    factor: float
    duration: float


class CheckpointDamaged(Fault, frozen=True, kw_only=True, tag="checkpoint_damaged"):
    """The shard at ``position`` of the newest checkpoint in storage, or of the next one if there is none, is
    torn (its content does not fit its checksum), truncated, or missing."""

    position: int
    damage: Literal["torn", "truncated", "missing"] = "torn"


class DiskFull(Fault, frozen=True, kw_only=True, tag="disk_full"):
    """What a rank or host saves of a checkpoint cannot be written: the checkpoint never comes on record."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "host")

    rank: Rank | None = None
    host: Host | None = None
    duration: float


class LoaderStuck(Fault, frozen=True, kw_only=True, tag="loader_stuck"):
    """The loader of a rank or replica gives nothing for ``duration``: a step that begins meanwhile waits."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "replica")

    rank: Rank | None = None
    replica: int | None = None
    duration: float


class LoaderSlow(Fault, frozen=True, kw_only=True, tag="loader_slow"):
    """Every step that begins within ``duration`` waits ``seconds`` for its samples."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "replica")

    rank: Rank | None = None
    replica: int | None = None
    seconds: float
    duration: float


class LoaderKilled(Fault, frozen=True, kw_only=True, tag="loader_killed"):
    """The worker of the rank's loader is killed: what it had prefetched is gone, and the next step waits
    ``seconds`` until a new worker has read the same samples again."""

    rank: Rank
    seconds: float
