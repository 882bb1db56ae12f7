"""One rank's data plane: slots, the queue of operations, and the kernels that carry them out (docs/ftar.md).

The protocol says which chunk to take and which to give (``Post``), and goes on as if that were done. It is
not yet: the kernel does it later, and what follows from it (the transfer, the acknowledgement) waits here for
the kernel. To everyone else this looks like a slower link, which the protocol is made for.

A launch serves one bucket and ends with it. Operations of a later bucket may be asked for while the last
chunks of an earlier one still come; they are kept until the earlier bucket has all of its own, since a launch
needs numbers without a gap. An earlier bucket never waits for a later one, so this cannot block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import triton.language as tl

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.layout import Layout, layout

from . import kernels
from .flags import ABSENT, SENT, UNIT, shared
from .stream import Stream

DTYPES: Final = {
    "float32": (torch.float32, 4, tl.uint32),
    "bfloat16": (torch.bfloat16, 2, tl.uint16),
    "float16": (torch.float16, 2, tl.uint16),
}
TILE_BYTES: Final = 32 << 10  # what a block of 512 threads takes at a time: 4 vectors of 16 bytes a thread


class Engine:
    """Buffers and kernels of one rank, made once and used for every round.

    slots, chunk_bytes:  C and S of the ring; a chunk is a multiple of 16 bytes
    first:               of the round: the number of each bucket's first operation, and of the end
    sent, received:      the slots, bytes [C, S] on the device, which the wire reads and writes
    checker:             a stream for checking what arrives; chunks have checksums if there is one
    Raises ConfigError for sizes and types that the kernels cannot do.
    """

    def __init__(
        self,
        stream: Stream,
        slots: int,
        chunk_bytes: int,
        dtype: str = "float32",
        *,
        device: Any = "cpu",
        blocks: int = 2,
        threads: int = 512,
        tile_bytes: int = TILE_BYTES,
        checker: Stream | None = None,
    ) -> None:
        _check(slots, chunk_bytes, dtype)
        self.slots, self.chunk_bytes, self.blocks = slots, chunk_bytes, blocks
        self.dtype, self.item, word = DTYPES[dtype]
        self._stream = stream
        capacity = 1 << (4 * slots).bit_length()  # each slot is one give and one take, at both neighbours
        self.flags, self._memory = shared(capacity, blocks, stream.pinned)
        self.sent = torch.zeros(slots, chunk_bytes, dtype=torch.uint8, device=device)
        self.received = torch.zeros(slots, chunk_bytes, dtype=torch.uint8, device=device)
        self._constants = {
            "QUEUE": capacity, "BLOCKS": blocks, "TILE": tile_bytes // self.item, "UNIT": UNIT // self.item,
            "THREADS": threads, "WORD": word, "BFLOAT": dtype == "bfloat16",
        }  # fmt: skip
        self._slot_units = chunk_bytes // UNIT
        self._checker = checker
        if checker is not None:
            self._checks, self._check_memory = shared(capacity, 1, checker.pinned)
            self._check_constants = {**self._constants, "BLOCKS": 1}
        self._epoch = 0
        self._kept: list[deque[tuple[int, ...]]] = []
        self._open = False

    @property
    def checked(self) -> bool:
        """Chunks carry checksums."""
        return self._checker is not None

    @property
    def broken(self) -> BaseException | None:
        """Why kernels cannot go on, if one failed."""
        return self._stream.failure or (self._checker.failure if self._checker is not None else None)

    # -- a round ------------------------------------------------------------------------------

    def begin(
        self, geometry: Geometry, index: int, grads: Sequence[torch.Tensor], sums: Sequence[torch.Tensor]
    ) -> None:
        """A round as ring member ``index``. ``grads`` and ``sums`` are bytes, a tensor a bucket, padded to
        16; who contributes nothing gives zeros."""
        assert not self._open, "the round before has not ended"
        assert (geometry.slots, geometry.chunk_bytes) == (self.slots, self.chunk_bytes), "another geometry"
        assert _fits(grads, geometry) and _fits(sums, geometry), "buckets are padded to 16 bytes"
        self._geometry, self._layout = geometry, layout(geometry, index)
        self._grads, self._sums = list(grads), list(sums)
        self._epoch += 1
        self._open = True
        self._launched = self._current = 0
        self.first = [self.flags.published]
        for count in operations(geometry):
            self.first.append(self.first[-1] + count)
        self._asked = list(self.first[:-1])
        self._kept = [deque() for _ in geometry.buckets]

    def ready(self, bucket: int, event: Any = None) -> None:
        """The gradient of ``bucket`` is there, or will be after ``event`` of the device."""
        assert bucket == self._launched, "buckets are launched in order"
        self._launched += 1
        if self.first[bucket] == self.first[bucket + 1]:
            return
        if event is not None:
            self._stream.after(event)
        elements = [t.view(self.dtype) for t in (self.received, self.sent)]
        own, kept = self._grads[bucket].view(self.dtype), self._sums[bucket].view(self.dtype)
        numbers = (self.first[bucket], self.first[bucket + 1], self._epoch)
        arguments = (*self._memory, *elements, own, kept, *numbers)
        self._stream.launch(kernels.reduce_bucket, self.blocks, arguments, self._constants)

    def put(self, take: int, give: int) -> int:
        """Have chunk ``take`` consumed and chunk ``give`` made (-1: none); returns the operation's number."""
        bucket = self._bucket(take, give)
        number = self._asked[bucket]
        self._asked[bucket] = number + 1
        assert number < self.first[bucket + 1], "more operations than the bucket has"
        words = operation(self._layout, self._geometry, self.item, take, give, self.checked)
        self._kept[bucket].append(words)
        return number

    def publish(self, is_free: Callable[[int], bool]) -> None:
        """Hand to the kernel what was put, as far as the send slots that it fills are free."""
        while self._current < len(self._kept):
            waiting = self._kept[self._current]
            while waiting:
                slot = waiting[0][SENT]
                if slot >= 0 and not is_free(slot // self._slot_units):
                    return
                self.flags.publish(waiting.popleft())
            if self.flags.published < self.first[self._current + 1]:
                return
            self._current += 1

    def is_done(self, number: int) -> bool:
        """What operation ``number`` stores can be seen by all."""
        return number < self.flags.published and number < self.flags.done

    def checksum(self, number: int) -> int:
        """Of the chunk that operation ``number`` gave."""
        return self.flags.checksum(number)

    @property
    def complete(self) -> bool:
        """Every operation of the round is done."""
        return self.is_done(self.first[-1] - 1) or self.first[0] == self.first[-1]

    def other_slots(self, spare: torch.Tensor | None) -> torch.Tensor:
        """Receive with ``spare`` from the next round on, or with fresh memory; returns what was in use."""
        assert not self._open or self._launched == 0, "kernels read the slots that they were launched with"
        old, self.received = self.received, torch.zeros_like(self.received) if spare is None else spare
        return old

    # -- what has arrived -----------------------------------------------------------------------

    def check(self, slot: int, size: int) -> int:
        """Have the checksum of ``size`` bytes in receive slot ``slot`` worked out; returns its number."""
        source = slot * self._slot_units
        number = self._checks.publish((source, ABSENT, ABSENT, ABSENT, size // self.item, 1))
        received, sent = self.received.view(self.dtype), self.sent.view(self.dtype)
        arguments = (*self._check_memory, received, sent, sent, sent, number, number + 1, 1)
        assert self._checker is not None, "chunks have no checksums here"
        self._checker.launch(kernels.reduce_bucket, 1, arguments, self._check_constants)
        return number

    def is_checked(self, number: int) -> bool:
        return self._checks.done > number

    def checked_sum(self, number: int) -> int:
        return self._checks.checksum(number)

    def _bucket(self, take: int, give: int) -> int:
        spot = self._layout.received[take] if take >= 0 else self._layout.sent[give]
        return spot.bucket

    # -- the end of a round ---------------------------------------------------------------------

    def abort(self) -> None:
        """The round is over, complete or not. Kernels end by themselves; ``ended`` says when they have."""
        self.flags.abort(self._epoch)

    @property
    def ended(self) -> bool:
        """No kernel touches slots, gradients or sums any more: they may be used again."""
        return self._stream.idle and (self._checker is None or self._checker.idle)

    def finish(self) -> None:
        """After ``ended``: ready for the next round."""
        assert self.ended, "a kernel still runs"
        self.flags.skip()
        self._open = False

    def close(self) -> None:
        """End; a round that is open is aborted."""
        self.abort()
        self._stream.close()
        if self._checker is not None:
            self._checker.close()


def operations(geometry: Geometry) -> list[int]:
    """How many operations each bucket takes at a member: its own shares, and every chunk that comes."""
    counts = [0] * len(geometry.buckets)
    if geometry.members > 1:
        for piece in geometry.pieces:
            counts[piece.bucket] += piece.per_step * (1 + geometry.steps)
    return counts


def operation(
    table: Layout, geometry: Geometry, item: int, take: int, give: int, checked: bool
) -> tuple[int, ...]:
    """The words of an operation in the queue (``flags.py``)."""
    slot_units = geometry.chunk_bytes // UNIT
    if take < 0:
        spot = table.sent[give]
        received, own, kept = ABSENT, spot.start // UNIT, ABSENT
    else:
        spot = table.received[take]
        received = (take % geometry.slots) * slot_units
        own = spot.start // UNIT if spot.step <= geometry.members - 2 else ABSENT
        kept = spot.start // UNIT if spot.step >= geometry.members - 2 else ABSENT
    sent = ABSENT if give < 0 else (give % geometry.slots) * slot_units
    return received, own, sent, kept, (spot.end - spot.start) // item, int(checked and give >= 0)


def _fits(tensors: Sequence[torch.Tensor], geometry: Geometry) -> bool:
    """A tensor of bytes for each bucket, padded to whole units."""
    sizes = [-(-size // UNIT) * UNIT for size in geometry.buckets]
    return [len(t) >= size for t, size in zip(tensors, sizes, strict=True)] == [True] * len(sizes)


def _check(slots: int, chunk_bytes: int, dtype: str) -> None:
    if dtype not in DTYPES:
        raise ConfigError(f"gradients of {dtype} cannot be summed; choose one of {', '.join(DTYPES)}")
    if slots < 1:
        raise ConfigError(f"slots is {slots}: a ring needs at least 1")
    if chunk_bytes < UNIT or chunk_bytes % UNIT:
        raise ConfigError(f"chunk_bytes is {chunk_bytes}: make it a multiple of {UNIT}, at least {UNIT}")
