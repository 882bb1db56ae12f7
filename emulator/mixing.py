"""The 64-bit mixing function of the fingerprint arithmetic, and its inverse.

``mix`` is a bijection on 0 .. 2**64-1 (the finalizer of splitmix64), so a digest made with it loses
nothing: two states that differ stay different, and a range of a shard gives its state back.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ODD = 0xD1B54A32D192ED03
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FIRST_INVERSE = pow(_FIRST, -1, 1 << 64)
_SECOND_INVERSE = pow(_SECOND, -1, 1 << 64)


def mix(x: int) -> int:
    x &= MASK
    x = (x ^ x >> 30) * _FIRST & MASK
    x = (x ^ x >> 27) * _SECOND & MASK
    return x ^ x >> 31


def unmix(x: int) -> int:
    """The y with mix(y) == x."""
    x = _unshift(x, 31) * _SECOND_INVERSE & MASK
    x = _unshift(x, 27) * _FIRST_INVERSE & MASK
    return _unshift(x, 30)


def _unshift(x: int, bits: int) -> int:
    """The y with y ^ y >> bits == x."""
    return x ^ x >> bits ^ x >> 2 * bits
