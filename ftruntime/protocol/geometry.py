"""How the gradient buckets of a round are cut into chunks, and which number each chunk has.

A bucket is cut into N partitions, one per member of the ring, and each partition into chunks of at
most S bytes. The ring all-reduce runs *piece* by piece, a piece being at most ``max(1, C // 2)``
chunks of every partition. All chunks of a round form one sequence 0 .. total-1, the same on every
link, so the whole control plane of FTAR is a handful of integers (design 3.4).

In a piece with p chunks per partition, ring step t in 0 .. 2(N-1)-1 and chunk c in 0 .. p-1::

    number = piece.first + t * p + c
    member i sends at step t partition (i - t) mod N, and receives partition (i - t - 1) mod N

    received at step t          becomes
    t <  N-1                    local share added, forwarded as number + p (reduce-scatter)
    t == N-2                    ... and the sum is finished, so it is output as well
    N-1 <= t < 2N-3             output, forwarded as number + p (all-gather)
    t == 2N-3                   output

Geometries are immutable and shared between all ranks of a process: get them from ``geometry``.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from typing import Final, NamedTuple

from .errors import ConfigError

# Partitions begin at multiples of this (if S allows), so that no element is cut in two.
ALIGNMENT: Final = 16


class Piece(NamedTuple):
    """Chunks ``chunk`` .. ``chunk + per_step - 1`` of every partition of ``bucket``.

    first:     number of its first chunk on every link
    finished:  index of its first finished chunk, in the order of finishing
    """

    bucket: int
    chunk: int
    per_step: int
    first: int
    finished: int


class Place(NamedTuple):
    """What a number means: ring step ``step``, chunk ``chunk`` of the step's partition of ``bucket``."""

    bucket: int
    piece: int
    step: int
    chunk: int


class Geometry:
    """The chunks of one round.

    buckets:          bytes of each bucket
    members:          N, members of the ring
    chunk_bytes:      S, the most bytes that a chunk has
    slots:            C, send slots and receive slots of a link
    pieces:           in order of their numbers
    total:            chunks on each link in a round; 0 when N == 1
    bucket_end:       per bucket, how many chunks a member has consumed when the bucket is complete
    finished_total:   chunks that finish at a member in a round: every chunk of every partition
    finished_end:     per bucket, how many of them have finished when the bucket is complete
    needs_completions: a single slot must be reused before the neighbour can acknowledge it, so the
                      driver has to report ``Sent``: see ``ring_flow``
    """

    __slots__ = (
        "_finished",
        "_firsts",
        "bucket_end",
        "buckets",
        "chunk_bytes",
        "finished_end",
        "finished_total",
        "members",
        "needs_completions",
        "pieces",
        "slots",
        "steps",
        "total",
    )

    def __init__(self, buckets: tuple[int, ...], members: int, chunk_bytes: int, slots: int) -> None:
        _check(buckets, members, chunk_bytes, slots)
        self.buckets: Final = buckets
        self.members: Final = members
        self.chunk_bytes: Final = chunk_bytes
        self.slots: Final = slots
        self.steps: Final = 2 * (members - 1)
        self.needs_completions: Final = slots < 2
        pieces: list[Piece] = []
        ends: list[tuple[int, int]] = []
        first = finished = 0
        for bucket in range(len(buckets)):
            for chunk, per_step in _cut(self.chunks_per_partition(bucket), max(1, slots // 2)):
                pieces.append(Piece(bucket, chunk, per_step, first, finished))
                first += self.steps * per_step
                finished += members * per_step
            ends.append((first, finished))
        self.pieces: Final = tuple(pieces)
        self.total: Final = first
        self.finished_total: Final = finished
        self.bucket_end: Final = tuple(end for end, _ in ends)
        self.finished_end: Final = tuple(end for _, end in ends)
        self._firsts: Final = tuple(piece.first for piece in pieces)
        self._finished: Final = tuple(piece.finished for piece in pieces)

    def partition_bytes(self, bucket: int) -> int:
        """Bytes of a whole partition; the last ones of a bucket may be shorter or empty."""
        align = math.gcd(ALIGNMENT, self.chunk_bytes)
        share = -(-self.buckets[bucket] // self.members)
        return -(-share // align) * align

    def chunks_per_partition(self, bucket: int) -> int:
        """P: equal for all partitions; an empty bucket still has one (empty) chunk."""
        return max(1, -(-self.partition_bytes(bucket) // self.chunk_bytes))

    def byte_range(self, bucket: int, partition: int, chunk: int) -> tuple[int, int]:
        """Bytes [start, end) of chunk ``chunk`` of ``partition`` within ``bucket``; may be empty."""
        size = self.partition_bytes(bucket)
        last = min((partition + 1) * size, self.buckets[bucket])
        start = min(partition * size + chunk * self.chunk_bytes, last)
        return start, min(start + self.chunk_bytes, last)

    def sent_partition(self, index: int, step: int) -> int:
        return (index - step) % self.members

    def received_partition(self, index: int, step: int) -> int:
        return (index - step - 1) % self.members

    def locate(self, number: int) -> Place:
        """What chunk ``number`` is. Raises IndexError outside 0 .. total-1."""
        if not 0 <= number < self.total:
            raise IndexError(f"chunk {number} of a round that has {self.total}")
        at = bisect_right(self._firsts, number) - 1
        piece = self.pieces[at]
        step, chunk = divmod(number - piece.first, piece.per_step)
        return Place(piece.bucket, at, step, piece.chunk + chunk)

    def locate_finished(self, index: int) -> Place:
        """What finished chunk ``index`` is; its partition at member i is ``received_partition(i, step)``.

        A ring of one finishes its own chunks, at step -1. Raises IndexError outside 0 .. finished_total-1.
        """
        if not 0 <= index < self.finished_total:
            raise IndexError(f"finished chunk {index} of a round that has {self.finished_total}")
        at = bisect_right(self._finished, index) - 1
        piece = self.pieces[at]
        step, chunk = divmod(index - piece.finished, piece.per_step)
        return Place(piece.bucket, at, self.members - 2 + step, piece.chunk + chunk)


def _cut(chunks: int, most: int) -> list[tuple[int, int]]:
    """(first chunk, count) of each piece of a partition of ``chunks`` chunks."""
    return [(chunk, min(most, chunks - chunk)) for chunk in range(0, chunks, most)]


def _check(buckets: tuple[int, ...], members: int, chunk_bytes: int, slots: int) -> None:
    for name, value in (("members", members), ("chunk_bytes", chunk_bytes), ("slots", slots)):
        if value < 1:
            raise ConfigError(f"{name} is {value}: a ring needs at least 1")
    for bucket, size in enumerate(buckets):
        if size < 0:
            raise ConfigError(f"bucket {bucket} has {size} bytes: a size cannot be negative")


@functools.lru_cache(maxsize=256)
def geometry(buckets: tuple[int, ...], members: int, chunk_bytes: int, slots: int) -> Geometry:
    """The shared geometry of these sizes. Raises ConfigError for sizes that cannot be."""
    return Geometry(buckets, members, chunk_bytes, slots)
