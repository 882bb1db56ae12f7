"""How far an exploration goes: the size of the job, where it starts, and how many faults it may have."""

from __future__ import annotations

from typing import Literal

import msgspec

from ftruntime.protocol.config import CatchUp, Ftar, JobConfig, check


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything within these bounds is explored, in every order.

    start:         ``training``: all replicas have begun the same round; ``returning``: replica 1 died in it,
                   was started again and has registered, while the others go on
    rounds:        rounds that may open after the one of the start; a state beyond is checked, not expanded
    crashes:       processes that die (all ranks of a replica), at any moment
    restarts:      dead replicas that are started again
    lost_answers:  requests that the store carries out without an answer arriving
    timers:        timers that fire although something else could still happen; when nothing else can, time
                   passes and they fire for free
    lapses:        leases of living members that end, as of one that is cut off from the store for so long;
                   it may take its lease again at any time
    max_states:    give up (the report says so) beyond this many states
    liveness_every:  a fair continuation is tried from every state in which only time can pass, and from
                   every so many-th other state; 0 means from none of the others
    """

    replicas: int = 2
    ranks: int = 1
    min_replicas: int = 1
    mode: Literal["tap", "zeros"] = "tap"
    start: Literal["training", "returning"] = "training"
    rounds: int = 1
    crashes: int = 1
    restarts: int = 0
    lost_answers: int = 1
    timers: int = 1
    lapses: int = 0
    max_states: int = 1_000_000
    liveness_every: int = 1000

    def config(self) -> JobConfig:
        """The smallest job of this shape: one bucket of one chunk, no scalars, no checkpoints."""
        return check(
            JobConfig(
                replicas=self.replicas,
                ranks_per_replica=self.ranks,
                min_replicas=self.min_replicas,
                fan_out=2,
                streams=self.replicas,
                samples_per_step=1,
                scalars=0,
                trail=False,  # footprints of a head's past would make no two states equal
                ftar=Ftar(buckets=(16,), chunk_bytes=1 << 20, slots=2),
                catch_up=CatchUp(mode=self.mode, ranges=1),
            )
        )
