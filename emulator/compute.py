"""How long a mock GPU computes: a model of time, and streams that run their work in order."""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ids import Replica, Step

from .mixing import GOLDEN, MASK, ODD, mix


class ComputeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds, and bytes a second. Defaults give FACTS.md's step of about 20 s.

    jitter:        a replica's step takes up to this share more or less, drawn by (seed, replica, step)
    first_step_s:  a throw-away step of a fresh process (warm-up): allocator, compilation, loader
    reduce_bps:    of the fused reduce-and-forward of a chunk, or of its copy
    copy_bps:      between device and host
    """

    forward_s: float = 6.0
    backward_s: float = 12.0
    apply_s: float = 0.2
    jitter: float = 0.02
    first_step_s: float = 120.0
    reduce_bps: float = 200e9
    copy_bps: float = 40e9

    def check(self) -> None:
        """Raises ConfigError naming the first value that cannot be."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least_excluded = name.endswith("_bps")
            if not 0.0 <= value < math.inf or (least_excluded and value == 0.0):
                bound = "above 0" if least_excluded else "0 or more"
                raise ConfigError(f"compute.{name} is {value}; it must be {bound} and finite")
        if self.jitter >= 1.0:
            raise ConfigError(f"compute.jitter is {self.jitter}; it is a share and must be below 1")


class ComputeModel:
    """When gradients are ready: the same for all ranks of a replica, so their events share a time."""

    def __init__(self, config: ComputeConfig, buckets: int, seed: int) -> None:
        config.check()
        self.config, self.buckets, self._seed = config, buckets, seed
        self.ready = lru_cache(maxsize=1024)(self._ready)

    def _ready(self, replica: Replica, step: Step, start: float, slow: float) -> tuple[float, ...]:
        """When each bucket of a step that begins at ``start`` is there, on a device ``slow`` times as
        slow as it should be; they come out of the backward pass evenly."""
        draw = mix(mix(self._seed * GOLDEN + replica) + step * ODD) / (MASK + 1)
        factor = slow * (1.0 + self.config.jitter * (2.0 * draw - 1.0))
        forward, backward = self.config.forward_s * factor, self.config.backward_s * factor
        return tuple(
            start + forward + backward * (bucket + 1) / self.buckets for bucket in range(self.buckets)
        )


class Stream:
    """A queue of work on a device: each piece starts when it is asked for and the one before is done.

    free: when all that was enqueued is done; also what an event recorded now on this stream waits for
    """

    __slots__ = ("free",)

    def __init__(self) -> None:
        self.free = 0.0

    def enqueue(self, now: float, seconds: float) -> float:
        """Returns when the work is done."""
        free = self.free
        self.free = done = (now if now > free else free) + seconds
        return done

    def wait(self, event: float) -> None:
        """What is enqueued from now on starts no sooner than ``event`` (another stream's ``free``)."""
        if event > self.free:
            self.free = event
