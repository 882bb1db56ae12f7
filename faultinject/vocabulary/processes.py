"""Faults of processes: they end, stand still, hang, come back as zombies, or have a wrong clock."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..shape import Host, Rack, Rank
from .base import PLACES, Fault


class Crash(Fault, frozen=True, kw_only=True, tag="crash"):
    """The processes of a rank, host, rack, replica or building end at once; connections are reset.

    Of a rack or a building it is correlated loss, as when power fails: every replica in it is hit at
    the same instant.
    """

    ONE_OF: ClassVar[tuple[str, ...]] = PLACES

    rank: Rank | None = None
    host: Host | None = None
    rack: Rack | None = None
    replica: int | None = None
    building: int | None = None


class Hang(Fault, frozen=True, kw_only=True, tag="hang"):
    """The rank never completes its round, and its process lives on until someone ends it.

    ``never_joins``: it opens no connection of the round. ``joins_and_stalls``: it joins the ring,
    forwards some chunks, and stops. The two differ in what the neighbours see, and so in whom
    a time-out must name (design 3.4).
    """

    rank: Rank
    variant: Literal["never_joins", "joins_and_stalls"] = "joins_and_stalls"


class HangAtStart(Fault, frozen=True, kw_only=True, tag="hang_at_start"):
    """The rank's process ends, and the next one in its place hangs as soon as it has started."""

    rank: Rank


class ReplicaLostForEver(Fault, frozen=True, kw_only=True, tag="replica_lost_for_ever"):
    """All ranks of the replica end, and no successor ever starts."""

    replica: int


class Zombie(Fault, frozen=True, kw_only=True, tag="zombie"):
    """The replica freezes and is taken for dead, so its successor starts; ``delay`` seconds after the
    onset the old processes go on as if nothing had been. Nothing that they do may have an effect."""

    replica: int
    delay: float


class Pause(Fault, frozen=True, kw_only=True, tag="pause"):
    """Ranks stand still and then go on where they were (SIGSTOP, SIGCONT).

    Shorter than the lease it is a straggler; longer, its lease runs out meanwhile.
    """

    ONE_OF: ClassVar[tuple[str, ...]] = PLACES

    rank: Rank | None = None
    host: Host | None = None
    rack: Rack | None = None
    replica: int | None = None
    building: int | None = None
    duration: float


class ClockSkew(Fault, frozen=True, kw_only=True, tag="clock_skew"):
    """The clocks of a rank or host run ``rate`` times as fast: what they are told of the time, and when their
    timers fire. No decision may depend on two clocks that agree."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "host")

    rank: Rank | None = None
    host: Host | None = None
    rate: float
    duration: float


class ClockJump(Fault, frozen=True, kw_only=True, tag="clock_jump"):
    """The clocks of a rank or host jump by ``jump`` seconds, back if it is negative, and stay there."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("rank", "host")

    rank: Rank | None = None
    host: Host | None = None
    jump: float
