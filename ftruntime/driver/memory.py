"""Host memory that is used again: what was touched once need not be touched by the kernel again.

A block goes back to the pool when the last view of it is gone, wherever that view is: in a frame that
waits to be sent, in a copy that another thread makes. So nothing can be overwritten that somebody still
reads, and in particular no chunk of a round that was given up can change while it is on its way (!).
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Block = bytearray | mmap.mmap
MAPPED = 1 << 20  # bytes from which a block is mapped


class Pool:
    """Blocks by size. It keeps no more free bytes than were ever in use at once.

    used, most:  bytes in use now, and at most so far
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Block]] = {}
        self._lock = threading.Lock()
        self.used = self.most = self.free = 0

    def take(self, size: int) -> Bytes:
        """``size`` bytes of anything, as uint8. Raises MemoryError."""
        with self._lock:
            blocks = self._free.get(size)
            block = blocks.pop() if blocks else None
            self.free -= size if block is not None else 0
            self.used += size
            self.most = max(self.most, self.used)
        if block is None:
            block = _fresh(size)
        lease = (ctypes.c_char * size).from_buffer(block)
        weakref.finalize(lease, self._give, block).atexit = False
        return np.frombuffer(lease, np.uint8)

    def reserve(self, size: int) -> None:
        """Have a block of ``size`` bytes ready, so that who takes it waits for no page.

        Raises MemoryError.
        """
        self.take(size)[:] = 0

    def _give(self, block: Block) -> None:
        size = len(block)
        with self._lock:
            self.used -= size
            if self.free + size <= self.most:
                self.free += size
                self._free.setdefault(size, []).append(block)


def _fresh(size: int) -> Block:
    """A bytearray is zeroed with the interpreter held, a gigabyte in most of a second (!); pages that are
    mapped come one by one, to who writes them."""
    if size < MAPPED:
        return bytearray(size)
    try:
        return mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"{size} bytes of host memory: {error.strerror}") from None
