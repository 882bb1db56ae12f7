"""How long a mock GPU computes: a model of time, and streams that run their work in order."""

from __future__ import annotations

from functools import lru_cache

from ftruntime.protocol.ids import Replica, Step

from .hardware import ComputeConfig
from .mixing import GOLDEN, MASK, ODD, mix


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
