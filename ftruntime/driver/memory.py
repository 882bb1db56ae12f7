"""Host memory that is used again: what was touched once need not be touched by the kernel again.

A block goes back to the pool when the last view of it is gone, wherever that view is: in a frame that
waits to be sent, in a copy that another thread makes. So nothing can be overwritten that somebody still
reads, and in particular no chunk of a round that was given up can change while it is on its way (!).
"""

from __future__ import annotations

import ctypes
import threading
import weakref

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Pool:
    """Blocks by size. It keeps no more free bytes than were ever in use at once.

    used, most:  bytes in use now, and at most so far
    """

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
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
            block = bytearray(size)
        lease = (ctypes.c_char * size).from_buffer(block)
        weakref.finalize(lease, self._give, block).atexit = False
        return np.frombuffer(lease, np.uint8)

    def _give(self, block: bytearray) -> None:
        size = len(block)
        with self._lock:
            self.used -= size
            if self.free + size <= self.most:
                self.free += size
                self._free.setdefault(size, []).append(block)
