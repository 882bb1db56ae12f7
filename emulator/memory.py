"""Memory of a mock GPU and of its share of the host: limits, and errors that carry the numbers.

What a rank holds is counted when a whole buffer is taken or given back, a few times a step, never
for each chunk. Sizes are the same for all ranks of a job (``MemoryConfig``); a rank keeps two sums.
"""

from __future__ import annotations

import msgspec

from ftruntime.protocol.errors import ConfigError


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of one rank. Gradients, reduced and held buffers have the bytes of all buckets.

    hbm, host:    limits: of the device, and of this rank's share of its host
    params, optimizer, activations:  on the device; activations only while a step is computed
    """

    hbm: int = 80 << 30
    host: int = 128 << 30
    params: int = 2 << 30
    optimizer: int = 12 << 30
    activations: int = 24 << 30

    def check(self) -> None:
        """Raises ConfigError naming the first value that cannot be."""
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"memory.{name} is {getattr(self, name)} bytes; it must be at least 1")

    @property
    def state(self) -> int:
        """Bytes of a TrainState: what a frozen copy or a staged one takes on the host."""
        return self.params + self.optimizer


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
