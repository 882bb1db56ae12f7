"""What the host and the kernel tell each other: a few words of pinned host memory (docs/ftar.md).

Each word is written by one side alone and only ever grows, over rounds and launches, so that neither side has
to put anything back, and what is late can be seen to be late:

    word          written by  means
    ------------  ----------  ---------------------------------------------------------------------
    TAIL          host        operations 0 .. n-1 stand in the queue, and their data is in place
    ABORT         host        kernels of launches up to epoch n shall end
    HEAD[block]   kernel      the block has done its part of operations 0 .. n-1
    SUM[op,block] kernel      the block's part of the checksum of an operation, where one was asked for

Nothing the host writes may be changed by an atomic operation of the kernel: over PCIe it would be a read and
a write, and could undo what the host wrote in between. So the kernel loads those words, and stores its own.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import numpy.typing as npt

LINE: Final = 16  # words of a cache line of 128 bytes, which no two writers share
TAIL: Final = 0
ABORT: Final = 1
HEADS: Final = LINE  # of block 0; each block has a line

FIELDS: Final = 8  # words of an operation in the queue
UNIT: Final = 16  # bytes: offsets in the queue count these, so that the kernel may load whole vectors

RECEIVED, OWN, SENT, KEPT, ELEMENTS, CHECK = range(6)  # the words of an operation
ABSENT: Final = -1  # an offset that an operation does not have

Words = npt.NDArray[np.int64]


def words_of_flags(blocks: int) -> int:
    """How many words TAIL, ABORT and the heads of ``blocks`` thread blocks take."""
    return HEADS + blocks * LINE


class Flags:
    """The host's side of ``flags``, ``queue`` and ``sums``, all of them memory that the kernel sees.

    flags:  int64[words_of_flags(blocks)];  queue: int64[slots, FIELDS];  sums: int64[slots, blocks]
    """

    def __init__(self, flags: Words, queue: Words, sums: Words, blocks: int) -> None:
        assert len(flags) == words_of_flags(blocks), "flags are of another number of blocks"
        assert len(queue) == len(sums) and queue.shape[1] == FIELDS and sums.shape[1] == blocks
        assert len(queue) & (len(queue) - 1) == 0, "the kernel finds an operation's place by its low bits"
        self._flags, self._queue, self._sums, self._blocks = flags, queue, sums, blocks
        self._heads = flags[HEADS::LINE]
        self._fence = threading.Lock()
        self._over = 0  # operations 0 .. n-1 were of rounds that are over
        self.published = 0

    @property
    def capacity(self) -> int:
        """Operations that may be published and not done."""
        return len(self._queue)

    @property
    def done(self) -> int:
        """Operations 0 .. n-1 are done by all blocks, or belong to kernels that were aborted."""
        return max(self._over, int(self._heads.min()))

    def publish(self, fields: tuple[int, ...]) -> int:
        """Hand the next operation to the kernel; returns its number."""
        number = self.published
        assert number - self.done < len(self._queue), "the queue is full: an operation would be overwritten"
        self._queue[number % len(self._queue), : len(fields)] = fields
        self._order()
        self.published = number + 1
        self._flags[TAIL] = number + 1
        return number

    def checksum(self, number: int) -> int:
        """Of operation ``number``, which is done; valid until ``capacity`` more were published."""
        assert number < self.done and self.published - number <= len(self._queue)
        return int(self._sums[number % len(self._queue)].sum()) & 0xFFFFFFFF

    def abort(self, epoch: int) -> None:
        """Have kernels of ``epoch`` and before end: they look between operations and while they wait."""
        assert epoch >= self._flags[ABORT], "an abort cannot be taken back"
        self._flags[ABORT] = epoch

    def skip(self) -> None:
        """No kernel runs any more: what was published and is not done never will be."""
        self._over = self.published

    def _order(self) -> None:
        """What was written before is visible before what is written after, on any processor."""
        for _ in range(2):
            with self._fence:
                pass


def shared(capacity: int, blocks: int, pin: bool) -> tuple[Flags, tuple[Any, Any, Any]]:
    """Fresh flags for ``blocks`` thread blocks, and the tensors (queue, flags, sums) for the kernel."""
    import torch

    def words(count: int) -> Any:
        return torch.zeros(count, dtype=torch.int64, pin_memory=pin)

    queue = words(capacity * FIELDS).view(capacity, FIELDS)
    flags, sums = words(words_of_flags(blocks)), words(capacity * blocks).view(capacity, blocks)
    return Flags(flags.numpy(), queue.numpy(), sums.numpy(), blocks), (queue, flags, sums)
