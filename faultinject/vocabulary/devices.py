"""Faults of GPUs: they fail, run out of memory, are slow, or compute wrong numbers without a word."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..shape import Host, Rank
from .base import Fault


class UncorrectableEcc(Fault, frozen=True, kw_only=True, tag="uncorrectable_ecc"):
    """An uncorrectable memory error: the next kernel of the rank, a step or an update, fails with it. The
    context is lost, which is local fatal (design 3.4), so the process ends."""

    rank: Rank


class GpuLost(Fault, frozen=True, kw_only=True, tag="gpu_lost"):
    """GPUs fall off the bus: the driver tells the process at once. Local fatal: it ends."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "host")

    rank: Rank | None = None
    host: Host | None = None


class OutOfMemory(Fault, frozen=True, kw_only=True, tag="out_of_memory"):
    """The rank's device memory is used up by something else: its next allocation fails. Local fatal."""

    rank: Rank


class Slow(Fault, frozen=True, kw_only=True, tag="slow"):
    """A straggler: compute or link of a rank, host or replica is ``factor`` times slower.

    period: intermittent: slow in the first half of every so many seconds, and well in the second
    """

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "host", "replica")

    rank: Rank | None = None
    host: Host | None = None
    replica: int | None = None
    part: Literal["compute", "link"] = "compute"
    factor: float
    period: float | None = None
    duration: float


class CorruptGradient(Fault, frozen=True, kw_only=True, tag="corrupt_gradient"):
    """One bit flips, silently, in a gradient that the rank computed, before FTAR sums it.

    It hits the next backward pass, once. No error is raised: only the checker, which knows what the
    devices should have computed, can see it.
    """

    rank: Rank


class NanGradient(Fault, frozen=True, kw_only=True, tag="nan_gradient"):
    """The next backward pass of the rank gives not-a-number, once: its process ends."""

    rank: Rank


class InfGradient(Fault, frozen=True, kw_only=True, tag="inf_gradient"):
    """The next backward pass of the rank overflows, once. The sum is then infinite at all replicas alike, the
    scalars that ride on the vote say so, and everybody leaves the update out. (Fidelity ``fingerprint``,
    whose gradients are digests, sums a digest of its own.)"""

    rank: Rank


class CorruptParameter(Fault, frozen=True, kw_only=True, tag="corrupt_parameter"):
    """One bit flips, silently, in the parameters that the rank holds. Its state is no longer the one that
    its lineage names, until the rank installs another (``docs/guarantees.md``, 4)."""

    rank: Rank


class CorruptOptimizer(Fault, frozen=True, kw_only=True, tag="corrupt_optimizer"):
    """As ``corrupt_parameter``, in the moments of the optimizer: nothing is wrong before the next update."""

    rank: Rank
