"""A small model without torch: least squares on the frequencies of bytes, by a real optimizer step."""

from __future__ import annotations

import time

import numpy as np

ELEMENTS = 96


class Toy:
    """Parameters and momentum of each bucket, and how often each was updated."""

    dtype = "float32"

    def __init__(self, position, buckets=2, elements=ELEMENTS, seed=7, slow_step=0, slow_s=0.0):
        draw = np.random.default_rng(seed * 1000 + position)
        self.position, self.buckets, self.elements = position, buckets, elements
        self.slow_step, self.slow_s = slow_step, slow_s
        self.params = draw.standard_normal((buckets, elements)).astype(np.float32)
        self.momentum = np.zeros_like(self.params)
        self.updates = np.zeros(1, np.int64)

    def state(self):
        return [
            memoryview(part.reshape(-1).view(np.uint8)) for part in (self.params, self.momentum, self.updates)
        ]

    def gradient(self, bucket, tokens):
        """The raw sum over ``tokens``, a function of state and tokens."""
        counts = np.bincount(np.frombuffer(tokens, np.uint8), minlength=256).astype(np.float32)
        wanted = np.roll(counts, self.position * 7 + bucket * 3)
        wanted = np.resize(wanted, self.elements)
        return self.params[bucket] * np.float32(len(tokens)) - wanted

    def apply(self, sums, plan, scalars):
        if self.updates[0] + 1 == self.slow_step:
            time.sleep(self.slow_s)
        for bucket, total in enumerate(sums):
            mean = total.view(np.float32) / np.float32(plan.divisor * 100)
            self.momentum[bucket] = self.momentum[bucket] * np.float32(0.9) + mean
            self.params[bucket] -= np.float32(0.05 * plan.lr_factor) * self.momentum[bucket]
        self.updates += 1

    def installed(self):
        pass

    def warm_up(self):
        self.gradient(0, b"warm")


class Tokens:
    """An endless corpus: 64 bytes for each sample."""

    def tokens(self, stream, index):
        return np.random.default_rng([stream, index]).integers(0, 256, 64, np.uint8).tobytes()
