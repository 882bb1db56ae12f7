"""The data plane of FTAR in tensor fidelity: a chunk is a slice of a bucket's tensor.

Every chunk of a finished sum has one place among the pieces of the rank's gradient, so what is finished
is kept as it came and put together once, when somebody asks. Tensors that were given out or taken in
are never changed in place: a chunk in flight may be a view of the sender's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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
    sent:      number -> (place, members whose shares are in it: this one and those before it)
    received:  number -> (place, whether the own share is added, whether it is finished by this)
    finished:  in the order of finishing -> place
    sizes:     place -> elements of the piece; pieces of all buckets, in the order of elements
    buckets:   what all ring members share
    """

    own: list[int]
    sent: list[tuple[int, int]]
    received: list[tuple[int, bool, bool]]
    finished: list[int]
    sizes: list[int]
    buckets: list[Bucket]


@lru_cache(maxsize=256)
def layout(geometry: Geometry, index: int, elements: int) -> Layout:
    """The table of one ring index. ``geometry`` must be the shared object (compared by identity)."""
    places, sizes = _places(geometry, elements)
    finish, own, sent, received, finished = geometry.members - 2, [], [], [], []
    for number in range(geometry.total):
        bucket, _, step, chunk = geometry.locate(number)
        own.append(places[bucket, index, chunk] if step == 0 else -1)
        sent.append(
            (places[bucket, geometry.sent_partition(index, step), chunk], min(step + 1, geometry.members))
        )
        place = places[bucket, geometry.received_partition(index, step), chunk]
        received.append((place, step <= finish, step >= finish))
    for number in range(geometry.finished_total):
        bucket, _, step, chunk = geometry.locate_finished(number)
        finished.append(places[bucket, geometry.received_partition(index, step), chunk])
    return Layout(own, sent, received, finished, sizes, _buckets(geometry, elements))


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


class TensorShares:
    """As ``chunks.RingShares``. A partition is summed from the member of its index on, in the order of the
    ring: floating point to the last bit."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self._gradients: list[Any] = [None] * geometry.members
        self._totals: Sequence[Tensor] = ()
        self._pieces: dict[int, Sequence[Tensor]] = {}

    def put(self, index: int, gradients: Tensor) -> None:
        """Member ``index`` puts in ``gradients``, flat."""
        self._gradients[index], self._totals = gradients, ()
        self._pieces.pop(index, None)

    def _layout(self, index: int) -> Layout:
        known = next(grads for grads in self._gradients if grads is not None)
        return layout(self._geometry, index, len(known) // len(self._geometry.buckets))

    def totals(self) -> Sequence[Tensor]:
        """The finished pieces, by place, when all members have put in theirs."""
        if not self._totals:
            table = self._layout(0)
            rows = torch.stack(self._gradients).view(self._geometry.members, len(table.buckets), -1)
            summed = [_sum_in_turns(rows[:, b], bucket.turns) for b, bucket in enumerate(table.buckets)]
            self._totals = torch.cat(summed).split(table.sizes)
        return self._totals

    def passed(self, index: int, number: int) -> Tensor:
        """Chunk ``number`` as member ``index`` sends it."""
        members, index = self._geometry.members, index % self._geometry.members
        place, terms = self._layout(index).sent[number]
        if terms == members:
            return self.totals()[place]
        total = self._piece(index - terms + 1, place)
        for i in range(index - terms + 2, index + 1):
            total = total + self._piece(i, place)
        return total

    def _piece(self, index: int, place: int) -> Tensor:
        index %= self._geometry.members
        if index not in self._pieces:
            self._pieces[index] = self._gradients[index].split(self._layout(index).sizes)
        return self._pieces[index][place]


def _sum_in_turns(shares: Tensor, turns: Tensor) -> Tensor:
    """``shares[i, e]`` of member i, added up for each element e in the order of ``turns``."""
    total, *others = shares.gather(0, turns).unbind()
    for share in others:
        total = total + share
    return total


class TensorExchange:
    """As ``chunks.Exchange``. ``grads``: the flat gradient of all buckets; None sends zeros."""

    __slots__ = ("tapped", "_grads", "_index", "_layout", "_shares", "_sums")
    learned = False
    shares = TensorShares

    def __init__(self, geometry: Geometry, index: int, grads: Tensor, tapped: bool) -> None:
        self.tapped, self._index, self._grads = tapped, index, grads
        self._layout = layout(geometry, index, len(grads) // len(geometry.buckets))
        self._shares: tuple[Tensor, ...] = ()
        self._sums = Sums(self._layout, grads)
        if geometry.members == 1:
            self._sums.fill(self._split())

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

    def finished(self, index: int) -> Tensor:
        piece = self._sums.pieces[self._layout.finished[index]]
        assert piece is not None, "a chunk is tapped once it is finished"
        return piece

    def reduced(self) -> Tensor:
        return self._sums.whole()

    @property
    def gradients(self) -> Tensor:
        """The own gradient, flat."""
        return self._grads

    @property
    def done(self) -> int:
        """How many finished chunks there are."""
        return self._sums.count

    def finish(self, count: int, totals: Sequence[Tensor]) -> None:
        """Have ``count`` finished chunks: ``totals`` by place. What taking each would leave."""
        if self.done == 0 and count == len(totals):
            self._sums.fill(totals)
            return
        for place in self._layout.finished[self.done : count]:
            self._sums.put(place, totals[place])

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

    def fill(self, pieces: Sequence[Tensor]) -> None:
        """All pieces, of which none has come."""
        self.pieces = list(pieces)
        self._left, self._whole = 0, None

    @property
    def count(self) -> int:
        return len(self.pieces) - self._left

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
