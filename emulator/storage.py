"""The storage of checkpoints: a shard for each position, with the checksum that it was written with."""

from __future__ import annotations

from typing import Any

from ftruntime.protocol.ids import Position

from .device import FingerprintDevice

Shard = tuple[Any, int]  # (state, or None when it cannot be read whole; its checksum)


class Storage(dict[str, dict[Position, Shard]]):
    """Checkpoints by name, the oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self._to_damage: list[tuple[Position, str]] = []
        self._missing: set[tuple[str, Position]] = set()

    def save(self, name: str, position: Position, device: FingerprintDevice) -> None:
        """The shard of ``position`` is durable, unless a fault waits for it."""
        self.setdefault(name, {})[position] = (device.snapshot(), device.digest())
        for place, damage in [each for each in self._to_damage if each[0] == position]:
            self._to_damage.remove((place, damage))
            self._spoil(name, position, damage, device)

    def damage(self, position: Position, damage: str, device: FingerprintDevice | None) -> None:
        """Spoil the shard of ``position`` in the newest checkpoint; if there is none, in the next one.

        ``device``: any one, which knows how to tear a state; without one, it is cut short
        """
        names = [name for name, shards in self.items() if position in shards]
        if names:
            self._spoil(names[-1], position, damage, device)
        else:
            self._to_damage.append((position, damage))

    def _spoil(self, name: str, position: Position, damage: str, device: FingerprintDevice | None) -> None:
        state, checksum = self[name][position]
        torn = damage == "torn" and state is not None and device is not None
        self[name][position] = (device.flipped(state, "parameter") if torn else None, checksum)
        if damage == "missing":
            self._missing.add((name, position))

    def read(self, name: str, position: Position, device: FingerprintDevice) -> tuple[Any, str]:
        """(state, "") of a shard, or (None, what is wrong with it)."""
        shard = self.get(name, {}).get(position)
        if shard is None or (name, position) in self._missing:
            return None, "has no such shard"
        state, checksum = shard
        if state is None:
            return None, "has a shard that is too short"
        if device.digest_of(state) != checksum:
            return None, "has a shard that does not fit its checksum"
        return state, ""

    def delete(self, name: str) -> None:
        """The checkpoint is gone, with all that is known of it."""
        del self[name]
        self._missing = {(other, position) for other, position in self._missing if other != name}
