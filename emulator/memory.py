"""Memory of a mock GPU and of its share of the host: limits, and errors that carry the numbers.

What a rank holds is counted when a whole buffer is taken or given back, a few times a step, never
for each chunk. Sizes are the same for all ranks of a job (``hardware.MemoryConfig``); a rank keeps two sums.
"""

from __future__ import annotations


class OutOfMemory(Exception):
    """An allocation beyond the limit: as on the device, it fails and changes nothing.

    where: "hbm" or "host"; name, wanted: what was asked for and its bytes; used, limit: bytes
    """

    def __init__(self, where: str, name: str, wanted: int, used: int, limit: int) -> None:
        super().__init__(
            f"out of memory ({where}): {name} wants {wanted:,} bytes, "
            f"{used:,} of {limit:,} are in use; lower it or raise memory.{where}"
        )
        self.where, self.name, self.wanted, self.used, self.limit = where, name, wanted, used, limit


class Memory:
    """One memory: a sum and its limit, in bytes."""

    __slots__ = ("where", "limit", "used", "peak")

    def __init__(self, where: str, limit: int) -> None:
        self.where, self.limit = where, limit
        self.used = self.peak = 0

    def take(self, name: str, size: int) -> None:
        """Raises OutOfMemory when ``size`` bytes are not left."""
        used = self.used + size
        if used > self.limit:
            raise OutOfMemory(self.where, name, size, self.used, self.limit)
        self.used = used
        if used > self.peak:
            self.peak = used

    def give(self, size: int) -> None:
        assert size <= self.used, "more memory given back than was taken"
        self.used -= size
