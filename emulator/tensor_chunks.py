"""The data plane of FTAR in tensor fidelity: a chunk is a slice of a bucket's tensor.

Every chunk of a finished sum has one place among the pieces of the rank's gradient, so what is finished
is kept as it came and put together once, when somebody asks. Tensors that were given out or taken in
are never changed in place: a chunk in flight may be a view of the sender's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ftruntime.protocol.geometry import Geometry

Tensor = torch.Tensor


class Bucket(NamedTuple):
    """Where a bucket's pieces are among places, and ``turns[k, e]``: whose share of element e comes k-th."""

    first: int
    end: int
    turns: Tensor


class Layout(NamedTuple):
    """What ring member ``index`` does with each number; a place is the index of a piece.

    own:       number -> place of a first share, else -1
    received:  number -> (place, whether the own share is added, whether it is finished by this)
    finished:  in the order of finishing -> place
    sizes:     place -> elements of the piece; pieces of all buckets, in the order of elements
    buckets:   what all ring members share
    """

    own: list[int]
    received: list[tuple[int, bool, bool]]
    finished: list[int]
    sizes: list[int]
    buckets: list[Bucket]


@lru_cache(maxsize=256)
def layout(geometry: Geometry, index: int, elements: int) -> Layout:
    """The table of one ring index. ``geometry`` must be the shared object (compared by identity)."""
    places, sizes = _places(geometry, elements)
    finish, own, received, finished = geometry.members - 2, [], [], []
    for number in range(geometry.total):
        bucket, _, step, chunk = geometry.locate(number)
        own.append(places[bucket, index, chunk] if step == 0 else -1)
        place = places[bucket, geometry.received_partition(index, step), chunk]
        received.append((place, step <= finish, step >= finish))
    for number in range(geometry.finished_total):
        bucket, _, step, chunk = geometry.locate_finished(number)
        finished.append(places[bucket, geometry.received_partition(index, step), chunk])
    return Layout(own, received, finished, sizes, _buckets(geometry, elements))


def _places(geometry: Geometry, elements: int) -> tuple[dict[tuple[int, int, int], int], list[int]]:
    """(bucket, partition, chunk) -> place, and the sizes: bytes of a bucket scaled to its elements."""
    places: dict[tuple[int, int, int], int] = {}
    sizes: list[int] = []
    for bucket, length in enumerate(geometry.buckets):
        for partition in range(geometry.members):
            for chunk in range(geometry.chunks_per_partition(bucket)):
                start, end = geometry.byte_range(bucket, partition, chunk)
                places[bucket, partition, chunk] = len(sizes)
                sizes.append(end * elements // max(length, 1) - start * elements // max(length, 1))
    return places, sizes


@lru_cache(maxsize=64)
def _buckets(geometry: Geometry, elements: int) -> list[Bucket]:
    places, sizes = _places(geometry, elements)
    found, members = [], geometry.members
    for bucket in range(len(geometry.buckets)):
        chunks = geometry.chunks_per_partition(bucket)
        first, end = places[bucket, 0, 0], places[bucket, 0, 0] + members * chunks
        starts = torch.tensor([place // chunks for place in range(members * chunks)])
        starts = starts.repeat_interleave(torch.tensor(sizes[first:end]))
        found.append(Bucket(first, end, (starts + torch.arange(members).unsqueeze(1)) % members))
    return found


class TensorExchange:
    """As ``chunks.Exchange``. ``grads``: the flat gradient of all buckets; None sends zeros."""

    __slots__ = ("tapped", "_grads", "_index", "_layout", "_shares", "_slots", "_sums")
    learned = False

    def __init__(self, geometry: Geometry, index: int, grads: Tensor, tapped: bool) -> None:
        self.tapped, self._index, self._grads = tapped, index, grads
        self._layout = layout(geometry, index, len(grads) // len(geometry.buckets))
        self._shares: tuple[Tensor, ...] = ()
        self._sums = Sums(self._layout, grads)
        self._slots: dict[int, Tensor] = {}
        if geometry.members == 1:
            self._sums.fill(0, self._split(), grads)

    def produce(self, number: int) -> Tensor:
        """This rank's own share of chunk ``number``, a first share."""
        place = self._layout.own[number]
        assert place >= 0, "only a first share is made from the own gradient alone"
        return (self._shares or self._split())[place]

    def _split(self) -> tuple[Tensor, ...]:
        """The own gradient as pieces, made for who needs one."""
        self._shares = self._grads.split(self._layout.sizes)
        return self._shares

    def take(self, number: int, data: Tensor) -> Tensor:
        """Consume received chunk ``number``; returns what is passed on, if anything is."""
        place, adds, finishes = self._layout.received[number]
        if adds:
            data = data + (self._shares or self._split())[place]
        if finishes:
            self._sums.put(place, data)
        return data

    def park(self, number: int, data: Tensor) -> None:
        self._slots[number] = data

    def parked(self, number: int) -> Tensor:
        return self._slots.pop(number)

    def finished(self, index: int) -> Tensor:
        piece = self._sums.pieces[self._layout.finished[index]]
        assert piece is not None, "a chunk is tapped once it is finished"
        return piece

    def reduced(self) -> Tensor:
        return self._sums.whole()

    @staticmethod
    def finish_together(exchanges: Sequence[TensorExchange], bucket: int) -> None:
        """All members of a ring have summed ``bucket``: what their taking each chunk would leave. A
        partition is summed from the member of its index on, in the order of the ring."""
        ring = sorted(exchanges, key=lambda exchange: exchange._index)
        first, end, turns = ring[0]._layout.buckets[bucket]
        assert len(ring) == len(turns), "a sum is of all members"
        elements = turns.shape[1]
        own = torch.stack([x._grads[bucket * elements : (bucket + 1) * elements] for x in ring])
        total, *others = own.gather(0, turns).unbind()
        for share in others:
            total = total + share
        pieces = total.split(ring[0]._layout.sizes[first:end])
        for exchange in ring:
            exchange._sums.fill(first, pieces, total)

    @property
    def complete(self) -> bool:
        return self._sums.complete


class TensorHeld:
    """As ``chunks.HeldRound``. ``like``: a flat tensor of the size and type of the sums."""

    __slots__ = ("_layout", "_sums")
    learned = True
    tapped = False

    def __init__(self, geometry: Geometry, index: int, like: Tensor) -> None:
        self._layout = layout(geometry, index, len(like) // len(geometry.buckets))
        self._sums = Sums(self._layout, like)

    def store(self, index: int, data: Tensor) -> None:
        self._sums.put(self._layout.finished[index], data)

    def reduced(self) -> Tensor:
        return self._sums.whole()

    @property
    def complete(self) -> bool:
        return self._sums.complete


class Sums:
    """The finished pieces of a gradient. What has not come is not a number."""

    __slots__ = ("pieces", "_left", "_like", "_sizes", "_whole")

    def __init__(self, table: Layout, like: Tensor) -> None:
        self.pieces: list[Tensor | None] = [None] * len(table.sizes)
        self._left, self._sizes, self._like = len(table.sizes), table.sizes, like
        self._whole: Tensor | None = None

    def put(self, place: int, data: Tensor) -> None:
        if self.pieces[place] is None:
            self._left -= 1
        self.pieces[place] = data
        self._whole = None

    def fill(self, first: int, pieces: Sequence[Tensor], total: Tensor) -> None:
        """All pieces of a bucket, of which none has come: the parts of ``total``."""
        self.pieces[first : first + len(pieces)] = pieces
        self._left -= len(pieces)
        self._whole = total if len(pieces) == len(self.pieces) else None

    @property
    def complete(self) -> bool:
        return not self._left

    def whole(self) -> Tensor:
        """All pieces as one flat tensor: the same object each time, until another piece comes."""
        if self._whole is None:
            pairs = zip(self.pieces, self._sizes, strict=True)
            self._whole = torch.cat([self._missing(size) if p is None else p for p, size in pairs])
        return self._whole

    def _missing(self, size: int) -> Tensor:
        return self._like.new_full((size,), math.nan)
