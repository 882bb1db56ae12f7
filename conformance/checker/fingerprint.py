"""The arithmetic of fidelity ``fingerprint``, computed here a second time and on its own.

A shard is one 64-bit number and so is a bucket of gradients; sums are exact, so that every
invariant is checked bit for bit. All arithmetic is modulo 2**64. Source: the event log's schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

MASK = 0xFFFF_FFFF_FFFF_FFFF
GOLDEN = 0x9E37_79B9_7F4A_7C15
BUCKET = 0xD1B5_4A32_D192_ED03
MUL_1 = 0xBF58_476D_1CE4_E5B9
MUL_2 = 0x94D0_49BB_1331_11EB


def mix(x: int) -> int:
    """The finalizer that makes neighbouring inputs unlike."""
    x &= MASK
    x ^= x >> 30
    x = x * MUL_1 & MASK
    x ^= x >> 27
    x = x * MUL_2 & MASK
    return x ^ x >> 31


def initial(seed: int, position: int) -> int:
    """Digest of the shard at ``position`` before the first step."""
    return mix(seed * GOLDEN + position + 1)


def gradients(state: int, corpus: int, position: int, buckets: int) -> list[int]:
    """The raw gradient sums over own samples, one a bucket."""
    seed = corpus + position * GOLDEN + 1
    return [mix(state ^ mix(seed + bucket * BUCKET)) for bucket in range(buckets)]


def all_gradients(
    states: Sequence[int], corpora: Sequence[int], positions: Sequence[int], bucket: int
) -> int | None:
    """``gradients`` of many ranks at once, for one bucket, packed as by ``pack``; None if a number is
    not one of 64 bits.

    Every rank of every step passes here. One long integer holds a number in every other 64 bits, so
    that a multiplication by a constant multiplies them all and none runs over into the next.
    """
    ones, mask = _lanes(len(states))
    packed = [pack(values) for values in (states, corpora, positions)]
    if None in packed:
        return None
    state, corpus, position = (value or 0 for value in packed)
    seeds = corpus + position * GOLDEN + ones * ((1 + bucket * BUCKET) & MASK) & mask
    return _mix_all(state ^ _mix_all(seeds, mask), mask)


def pack(values: Sequence[int]) -> int | None:
    """``values`` as one integer, 128 bits apart; None if one is not a number of 64 bits."""
    spread = [0] * (2 * len(values))
    spread[::2] = values
    try:
        return int.from_bytes(struct.pack(f"<{len(spread)}Q", *spread), "little")
    except struct.error:
        return None


def _mix_all(x: int, mask: int) -> int:
    x = ((x ^ x >> 30) & mask) * MUL_1 & mask
    x = ((x ^ x >> 27) & mask) * MUL_2 & mask
    return (x ^ x >> 31) & mask


@lru_cache(maxsize=4)
def _lanes(n: int) -> tuple[int, int]:
    ones = int.from_bytes((b"\1" + bytes(15)) * n, "little")
    return ones, ones * MASK


def scalar(last_buckets: Iterable[int]) -> float:
    """The one scalar of a round: a sum of small integers, exact in any order of positions."""
    return float(sum(bucket >> 40 for bucket in last_buckets))


def after(
    state: int, reduced: Sequence[int], divisor: int, lr_factor: float, scalars: Sequence[float]
) -> int:
    """Digest of the shard once the optimizer has applied ``reduced`` (modulo 2**64, one a bucket)."""
    total = divisor * GOLDEN + _bits(lr_factor) + (_bits(scalars[0]) if scalars else 0)
    for bucket, value in enumerate(reduced):
        total += value * (2 * bucket + 1)
    return mix(state ^ mix(total))


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")
