"""An undisturbed run of the rounds that a real run committed, in one process: what the states must be."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np

from ftruntime.protocol.geometry import geometry

from .test_ring_bytes import reduce_all
from .toy import Tokens, Toy


def digest_of(toy):
    digest = hashlib.blake2b(digest_size=8)
    for view in toy.state():
        digest.update(view)
    return int.from_bytes(digest.digest(), "little")


def replay(log, config):
    """{(round, position): digest of the state after it}, for every committed round of ``log``."""
    toys = [Toy(position, len(config.ftar.buckets)) for position in range(config.ranks_per_replica)]
    plans, digests = {}, {}
    for _, _, _, _, round, _, _, closed, plan, rollback in (e for e in log if e[0] == "head"):
        assert rollback is None, "a replay goes forward only"
        if closed is not None and closed["outcome"] == "committed":
            for position, toy in enumerate(toys):
                _train(toy, plans[closed["round"]], config)
                digests[closed["round"], position] = digest_of(toy)
        plans[round] = plan
    return digests


def _train(toy, plan, config):
    """One step: what each contributor computes, summed in the order of the ring, and applied."""
    grads = []
    for owned in plan["ranges"]:
        samples = [(stream, i) for stream, start, count in owned for i in range(start, start + count)]
        tokens = b"".join(Tokens().tokens(*sample) for sample in samples)
        grads.append([toy.gradient(b, tokens).astype(np.float32).view(np.uint8) for b in range(toy.buckets)])
    ftar = config.ftar
    shape = geometry(ftar.buckets, len(grads), ftar.chunk_bytes, ftar.slots)
    sums = reduce_all(grads, shape)[0].sums
    toy.apply(sums, SimpleNamespace(divisor=plan["divisor"], lr_factor=plan["lr_factor"]), ())
