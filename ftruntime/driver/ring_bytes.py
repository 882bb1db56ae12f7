"""The data plane of FTAR on the host: chunks are bytes of real gradients (design 3.4, docs/driver.md).

No chunk is copied that need not be. A first share is sent from the gradient itself; what arrives to be summed
lands in a block of the pool, is summed in place and sent on from there; a finished chunk is summed, or lands,
where it belongs among the sums, and is sent on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.layout import Spot, layout

from .memory import Bytes, Pool

Add = Callable[[Bytes, Bytes, Bytes], None]  # (received, own, where to): in the type of the gradients
ITEM: Final = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}


def adder(dtype: str) -> Add:
    """How two chunks of ``dtype`` are summed. Raises ConfigError for a type that cannot be."""
    if dtype == "bfloat16":
        return _bfloat16_adder()
    if dtype not in ITEM:
        raise ConfigError(f"gradients of {dtype} cannot be summed; choose one of {', '.join(ITEM)}")
    kind = np.dtype(dtype)

    def add(received: Bytes, own: Bytes, out: Bytes) -> None:
        np.add(received.view(kind), own.view(kind), out=out.view(kind))

    return add


def _bfloat16_adder() -> Add:
    import torch  # only who trains in bfloat16 has such gradients, and torch already

    def add(received: Bytes, own: Bytes, out: Bytes) -> None:
        if not len(out):
            return  # torch cannot see bytes as something wider where there are none
        one, other, total = (torch.from_numpy(x).view(torch.bfloat16) for x in (received, own, out))
        torch.add(one, other, out=total)

    return add


def blocks(pool: Pool, geometry: Geometry) -> list[Bytes]:
    """Memory for the sums of a round, a block for each bucket."""
    return [pool.take(size) for size in geometry.buckets]


class RingBytes:
    """One round at one member of the ring.

    grads:  own gradient of each bucket; None for a member that sends zeros
    sums:   the sums, complete once every chunk was taken; with one member, the own gradients
    """

    learned = False

    def __init__(
        self, pool: Pool, geometry: Geometry, index: int, grads: Sequence[Bytes] | None, add: Add
    ) -> None:
        self._pool, self._add = pool, add
        self._sums_at = geometry.members - 2  # the ring step at which a chunk becomes a sum
        self._table = layout(geometry, index)
        self.grads = [_zeros(pool, size) for size in geometry.buckets] if grads is None else list(grads)
        self.sums = self.grads if geometry.members == 1 else blocks(pool, geometry)
        self._landed: dict[int, Bytes] = {}

    def produce(self, number: int) -> Bytes:
        """The own share of chunk ``number``, a first share."""
        spot = self._table.sent[number]
        return self.grads[spot.bucket][spot.start : spot.end]

    def landing(self, number: int) -> Bytes:
        """Where chunk ``number`` is to be received."""
        spot = self._table.received[number]
        if spot.step > self._sums_at:
            return self._sum(spot)
        landed = self._landed.get(number)
        if landed is None:
            landed = self._landed[number] = self._pool.take(spot.end - spot.start)
        return landed

    def take(self, number: int) -> Bytes:
        """Consume chunk ``number``, which has landed; returns what is passed on, if anything is."""
        spot = self._table.received[number]
        if spot.step > self._sums_at:
            return self._sum(spot)
        landed = self._landed.pop(number, None)
        if landed is None:
            landed = self._pool.take(0)  # an empty chunk has no payload that could land
        own = self.grads[spot.bucket][spot.start : spot.end]
        out = self._sum(spot) if spot.step == self._sums_at else landed
        self._add(landed, own, out)
        return out

    def _sum(self, spot: Spot) -> Bytes:
        return self.sums[spot.bucket][spot.start : spot.end]

    def finished(self, index: int) -> Bytes:
        """Finished chunk ``index``, in the order of finishing."""
        return self._sum(self._table.finished[index])


class HeldBytes:
    """The sums of a round as a learner gets them, from ring member ``index``."""

    learned = True

    def __init__(self, pool: Pool, geometry: Geometry, index: int) -> None:
        self._table = layout(geometry, index)
        self.sums = blocks(pool, geometry)

    def landing(self, index: int) -> Bytes:
        """Where finished chunk ``index`` is to be received."""
        spot = self._table.finished[index]
        return self.sums[spot.bucket][spot.start : spot.end]


def _zeros(pool: Pool, size: int) -> Bytes:
    block = pool.take(size)
    block.fill(0)
    return block


def square_norm(sums: Sequence[Bytes], dtype: str) -> float:
    """Of all buckets, in float64 and in a fixed order: equal bytes give equal bits."""
    total = 0.0
    for block in sums:
        values = _as_floats(block, dtype)
        for start in range(0, len(values), 1 << 20):  # a part at a time, since it is a copy
            part: npt.NDArray[Any] = values[start : start + (1 << 20)].astype(np.float64)
            total += float(np.add.reduce(part * part))
    return total


def _as_floats(block: Bytes, dtype: str) -> npt.NDArray[Any]:
    if dtype == "bfloat16":
        return (block.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return block.view(np.dtype(dtype))


def as_lists(blocks_of_floats: Sequence[Bytes], dtype: str) -> list[list[float]]:
    """What an audit writes down of gradients or sums."""
    return [_as_floats(block, dtype).tolist() for block in blocks_of_floats]
