"""The data plane of FTAR in fingerprint fidelity: one integer for each chunk.

Chunk k of a bucket (k counts partitions and chunks) of a rank with bucket gradient g is ``g * w[k]``,
and summing chunks sums gradients: the finished chunk is ``G * w[k]`` with G the sum of all members' g,
modulo 2**64. The bucket's digest comes back from all finished chunks together:
``G = sum(out[k] * v[k]) / sum(w[k] * v[k])``, whose divisor is made odd and so has an inverse.
The weights w and v are fixed and differ for each k: a chunk that is missing, doubled, delivered to
the wrong place or out of another round gives another G, as it would spoil the tensor.

Weights have 30 bits, one digit of Python's integers: a multiplication costs a third of a full one.
Tables are shared by all ranks of one ring index.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import Any, NamedTuple

from ftruntime.protocol.geometry import Geometry

from .mixing import MASK, ODD, mix

_WEIGHT = (1 << 30) - 1


class Layout(NamedTuple):
    """What ring member ``index`` does with each number.

    own:       number -> (bucket, w) of a first share, else (-1, 0)
    sent:      number -> (bucket, w, members whose shares are in it: this one and those before it)
    received:  number -> (bucket, w, whether it is finished by this); w is 0 when it came finished
    finished:  in the order of finishing -> (bucket, w)
    finishers: bucket -> v of its finished chunks, in the order of finishing
    inverse:   bucket -> what the weighted sum of finished chunks is multiplied by
    """

    own: list[tuple[int, int]]
    sent: list[tuple[int, int, int]]
    received: list[tuple[int, int, bool]]
    finished: list[tuple[int, int]]
    finishers: list[list[int]]
    inverse: list[int]


def weights(bucket: int, partition: int, chunk: int) -> tuple[int, int]:
    """(w, v) of a chunk: odd numbers of 30 bits."""
    seed = mix(mix(bucket * ODD + partition) + chunk * ODD + 1)
    return seed & _WEIGHT | 1, seed >> 34 & _WEIGHT | 1


@lru_cache(maxsize=64)
def layout(geometry: Geometry, index: int) -> Layout:
    """The tables of one ring index. ``geometry`` must be the shared object (compared by identity)."""
    finish = geometry.members - 2
    even = _even_places(geometry)

    def pair(bucket: int, partition: int, chunk: int) -> tuple[int, int]:
        w, v = weights(bucket, partition, chunk)
        return w, v ^ 1 if (bucket, partition, chunk) in even else v

    own, sent, received, finished = [], [], [], []
    for number in range(geometry.total):
        bucket, _, step, chunk = geometry.locate(number)
        own.append((bucket, pair(bucket, index, chunk)[0]) if step == 0 else (-1, 0))
        w, _ = pair(bucket, geometry.sent_partition(index, step), chunk)
        sent.append((bucket, w, min(step + 1, geometry.members)))
        w, _ = pair(bucket, geometry.received_partition(index, step), chunk)
        received.append((bucket, w if step <= finish else 0, step >= finish))
    finishers: list[list[int]] = [[] for _ in geometry.buckets]
    divisor = [0] * len(geometry.buckets)
    for number in range(geometry.finished_total):
        bucket, _, step, chunk = geometry.locate_finished(number)
        w, v = pair(bucket, geometry.received_partition(index, step), chunk)
        finished.append((bucket, w))
        finishers[bucket].append(v)
        divisor[bucket] += w * v
    return Layout(own, sent, received, finished, finishers, [pow(total, -1, 1 << 64) for total in divisor])


def _even_places(geometry: Geometry) -> frozenset[tuple[int, int, int]]:
    """The chunk of each bucket whose v is even, so that an odd number of products is odd."""
    counts = [geometry.members * geometry.chunks_per_partition(b) for b in range(len(geometry.buckets))]
    return frozenset((bucket, 0, 0) for bucket, count in enumerate(counts) if count % 2 == 0)


def _sums(table: Layout, chunks: list[int]) -> list[int]:
    """The digest of each bucket from its finished chunks, in the order of finishing."""
    sums, at = [], 0
    for finishers, inverse in zip(table.finishers, table.inverse, strict=True):
        end = at + len(finishers)
        sums.append(sum(map(mul, chunks[at:end], finishers)) * inverse & MASK)
        at = end
    sums[-1] = (sums[-1] + sum(chunks[at:])) & MASK  # a chunk too many must not go unseen
    return sums


class RingShares:
    """What the members of a ring put in, by index in the ring: all chunks of a round follow from it."""

    __slots__ = ("_gradients", "_members", "_sent", "_totals")

    def __init__(self, geometry: Geometry) -> None:
        self._members = geometry.members
        self._sent = [layout(geometry, index).sent for index in range(geometry.members)]
        self._gradients: list[Any] = [None] * geometry.members
        self._totals: list[int] | None = None

    def put(self, index: int, gradients: Sequence[int]) -> None:
        """Member ``index`` puts in ``gradients``, by bucket."""
        self._gradients[index], self._totals = gradients, None

    def totals(self) -> list[int]:
        """What each bucket sums to, when all members have put in theirs."""
        if self._totals is None:
            self._totals = [sum(shares) & MASK for shares in zip(*self._gradients, strict=True)]
        return self._totals

    def passed(self, index: int, number: int) -> int:
        """Chunk ``number`` as member ``index`` sends it."""
        bucket, w, terms = self._sent[index % self._members][number]
        total = 0
        for i in range(index - terms + 1, index + 1):  # its own share, and those of the members before it
            total += self._gradients[i % self._members][bucket]
        return total * w & MASK


class Exchange:
    """One round of FTAR at one rank: its own gradients go in, the sums come out.

    The own gradients are only read; the sums lie in a buffer of their own (design 3.3).
    tapped: learners will ask for finished chunks, also after the round was applied
    """

    __slots__ = (
        "tapped",
        "_members",
        "_layout",
        "_own",
        "_received",
        "_grads",
        "_done",
        "_finish",
        "_result",
    )
    learned = False
    shares = RingShares

    def __init__(
        self, geometry: Geometry, index: int, grads: Sequence[int] | None, tapped: bool = False
    ) -> None:
        """``grads`` None: this member sends zeros."""
        table = layout(geometry, index)
        self.tapped = tapped
        self._members = geometry.members
        self._layout = table
        self._own, self._received = table.own, table.received
        self._grads = [0] * len(geometry.buckets) if grads is None else grads
        self._done: list[int] = []
        self._finish = self._done.append
        self._result: list[int] | None = None

    def produce(self, number: int) -> int:
        """This rank's own share of chunk ``number``, a first share."""
        bucket, w = self._own[number]
        assert bucket >= 0, "only a first share is made from the own gradient alone"
        return self._grads[bucket] * w & MASK

    def take(self, number: int, data: int) -> int:
        """Consume received chunk ``number``; numbers come in order. Returns what is passed on, if
        anything is: the fused reduce-and-forward, or the finished chunk."""
        bucket, w, finished = self._received[number]
        if w:
            data = data + self._grads[bucket] * w & MASK
        if finished:
            self._finish(data)
        return data

    @property
    def gradients(self) -> Sequence[int]:
        """The own gradients, per bucket."""
        return self._grads

    @property
    def done(self) -> int:
        """How many finished chunks there are."""
        return len(self._done)

    def finish(self, count: int, totals: Sequence[int]) -> None:
        """Have ``count`` finished chunks, of buckets that sum to ``totals``: what taking each would leave."""
        self._done += [
            totals[bucket] * w & MASK for bucket, w in self._layout.finished[len(self._done) : count]
        ]

    def finished(self, index: int) -> int:
        """Finished chunk ``index``, in the order of finishing, for a learner."""
        if self._members == 1:
            bucket, w = self._layout.finished[index]
            return self._grads[bucket] * w & MASK
        return self._done[index]

    def reduced(self) -> list[int]:
        """The digest of each bucket's sum. Ask once all chunks were taken: the answer stays."""
        if self._result is None:
            alone = self._members == 1
            self._result = list(self._grads) if alone else _sums(self._layout, self._done)
        return self._result


class HeldRound:
    """The sums of one round as a learner gets them: finished chunks of the tapped member ``index``."""

    __slots__ = ("_layout", "_done")
    tapped = False
    learned = True

    def __init__(self, geometry: Geometry, index: int) -> None:
        self._layout = layout(geometry, index)
        self._done: list[int] = []

    def store(self, index: int, data: int) -> None:
        """Keep finished chunk ``index``, in the tapped member's order of finishing."""
        assert index == len(self._done), "finished chunks come in order, each once"
        self._done.append(data)

    def reduced(self) -> list[int]:
        return _sums(self._layout, self._done)
