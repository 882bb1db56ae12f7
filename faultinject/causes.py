"""What interrupts a large job, how often, and what each cause does to a rank.

The percentages are those of 678 interruptions of a job of 32K H100 GPUs (second-hand notes on
arXiv 2602.00277; eleven causes, 100 % together). What a cause does is this project's reading,
argued for beside each row: the source counts causes and does not say what the processes saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from .shape import Rank, host_of
from .vocabulary import (
    AnyFault,
    CorruptGradient,
    Crash,
    Fault,
    Hang,
    LauncherDelay,
    LinkFlap,
    NanGradient,
    Pause,
    Slow,
)

# Makes the faults of one interruption: (random numbers, victim, onset in seconds, name of the cause).
Maker: TypeAlias = Callable[[Random, Rank, float, str], tuple[AnyFault, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of the things that a cause does, ``percent`` of the times that it strikes."""

    percent: float
    make: Maker


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the table: ``percent`` of all interruptions, what it does, and why we say so."""

    name: str
    percent: float
    outcomes: tuple[Outcome, ...]
    why: str


def uniform(rng: Random, low: float, high: float) -> float:
    """Seconds or a factor, to three digits: readable in a file, and the same on every machine."""
    return round(rng.uniform(low, high), 3)


def pick(rng: Random, rows: tuple[Cause, ...]) -> Cause:
    """One of the causes, by their percentages (which need not add up to 100)."""
    return rng.choices(rows, weights=[row.percent for row in rows])[0]


def strike(cause: Cause, rng: Random, rank: Rank, at: float) -> tuple[AnyFault, ...]:
    """The faults of one interruption by this cause. Exactly one of them carries the cause's name."""
    outcome = rng.choices(cause.outcomes, weights=[each.percent for each in cause.outcomes])[0]
    return outcome.make(rng, rank, at, cause.name)


def causes_seen(faults: Iterable[Fault]) -> dict[str, int]:
    """How many interruptions each cause of the table made, in its order and with zeros."""
    seen = {cause.name: 0 for cause in CAUSES}
    for fault in faults:
        if fault.cause in seen:
            seen[fault.cause] += 1
    return seen


def _crash_rank(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (Crash(rank=rank, at=at, cause=cause),)


def _crash_host(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (Crash(host=host_of(rank), at=at, cause=cause),)


def _crash_host_and_boot(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    # A booted host allocates cold, 3-5 min, where a warm one takes 20-40 s (see restart.py).
    # The delay comes first so that it is in place when the crash makes the launcher act.
    delay = LauncherDelay(replica=rank[0], seconds=uniform(rng, 150, 260), at=at)
    return (delay, Crash(host=host_of(rank), at=at, cause=cause))


def _stall(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (Hang(rank=rank, variant="joins_and_stalls", at=at, cause=cause),)


def _never_join(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (Hang(rank=rank, variant="never_joins", at=at, cause=cause),)


def _corrupt(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (CorruptGradient(rank=rank, at=at, cause=cause),)


def _nan(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (NanGradient(rank=rank, at=at, cause=cause),)


def _flap(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (LinkFlap(rank=rank, duration=uniform(rng, 0.5, 30), at=at, cause=cause),)


def _slow_link(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    factor, duration = uniform(rng, 1.5, 5), uniform(rng, 30, 300)
    return (Slow(rank=rank, part="link", factor=factor, duration=duration, at=at, cause=cause),)


def _slow_compute(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    factor, duration = uniform(rng, 1.2, 3), uniform(rng, 30, 300)
    return (Slow(rank=rank, part="compute", factor=factor, duration=duration, at=at, cause=cause),)


def _pause(rng: Random, rank: Rank, at: float, cause: str) -> tuple[AnyFault, ...]:
    return (Pause(rank=rank, duration=uniform(rng, 1, 120), at=at, cause=cause),)


CAUSES: tuple[Cause, ...] = (
    Cause(
        "HBM3 memory",
        22.9,
        (Outcome(100, _crash_rank),),
        "An uncorrectable memory error ends the CUDA context: local fatal, the process dies.",
    ),
    Cause(
        "PCIe device",
        18.0,
        (Outcome(100, _crash_rank),),
        "The GPU or NIC falls off the bus: every call fails, and the process dies.",
    ),
    Cause(
        "NCCL time-out",
        9.0,
        (Outcome(80, _stall), Outcome(20, _never_join)),
        "Nobody saw an error: a rank stopped in the middle of a collective, or never came to it.",
    ),
    Cause(
        "faulty GPU compute",
        7.4,
        (Outcome(80, _crash_rank), Outcome(20, _nan)),
        "Mostly found by the device itself, which then raises; otherwise the numbers are plainly wrong.",
    ),
    Cause(
        "software",
        7.1,
        (Outcome(100, _crash_rank),),
        "An exception or a segmentation fault ends one process.",
    ),
    Cause(
        "other",
        7.2,
        (Outcome(50, _pause), Outcome(50, _slow_compute)),
        "Unexplained: read as what leaves no error behind, a process that stands still or limps for a while.",
    ),
    Cause(
        "host maintenance",
        6.2,
        (Outcome(100, _crash_host),),
        "The host is taken away with its 8 GPUs. The notice that may precede it is not made use of.",
    ),
    Cause(
        "kernel",
        5.8,
        (Outcome(100, _crash_host),),
        "A kernel panic ends every process of the host.",
    ),
    Cause(
        "reboot",
        5.6,
        (Outcome(100, _crash_host_and_boot),),
        "The host ends and boots, so that its replica comes back later than after a crash.",
    ),
    Cause(
        "silent data corruption",
        5.5,
        (Outcome(100, _corrupt),),
        "A wrong bit in a result, and no error: the one cause that only a checker can see.",
    ),
    Cause(
        "network",
        5.3,
        (Outcome(70, _flap), Outcome(30, _slow_link)),
        "A link flaps, or loses bandwidth for minutes; the processes at its ends are well.",
    ),
)
