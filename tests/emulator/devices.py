"""Devices for tests: small, fast, with round numbers."""

from __future__ import annotations

from emulator.compute import ComputeConfig, ComputeModel
from emulator.device import Shared, TensorConfig
from emulator.hardware import MemoryConfig
from ftruntime.protocol.ledger import SampleRange
from ftruntime.seams import Corpus

BUCKETS = (40, 96)
RANGES = (SampleRange(0, 0, 2),)
MEMORY = MemoryConfig(hbm=4000, host=4000, params=100, optimizer=200, activations=500)
TIMES = ComputeConfig(
    forward_s=1.0, backward_s=2.0, apply_s=0.5, jitter=0.0, first_step_s=9.0, reduce_bps=100.0, copy_bps=100.0
)
GRADS = sum(BUCKETS)


def shared(memory=MEMORY, times=TIMES, retention="device", tensor=None, seed=7):
    model = ComputeModel(times, len(BUCKETS), seed)
    return Shared(seed, BUCKETS, 64, 3, retention, memory, model, tensor or TensorConfig())


def corpus(text=b"some tokens", digest=99):
    return Corpus(digest, lambda: text)
