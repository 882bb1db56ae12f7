"""A mock GPU in tensor fidelity whose numbers are rows of its team's blocks (tensor_pool.py).

It does what ``TensorDevice`` does, to the last bit, and computes it together with the other ranks of its
life of the replica. States are ``Row`` here, and go into storage and out of ranges as copies of their own,
so that nothing keeps a block for one row of it longer than the ranks of the block do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftruntime.protocol.ids import Lineage, Position, Replica, Round
from ftruntime.seams import Corpus

from .device import Shared, State
from .device_tensor import Tensor, TensorDevice, cut, skipped
from .tensor_pool import Team, Update, alone


class PooledDevice(TensorDevice):
    """One rank's device, of ``team``. ``state`` is a Row."""

    __slots__ = ("team",)

    def __init__(
        self, team: Team, replica: Replica, position: Position, shared: Shared, lineage: Lineage
    ) -> None:
        self.team = team
        super().__init__(replica, position, shared, lineage)
        team.join(self)

    def initial_state(self) -> State:
        return self.team.pool.initial(self.position)

    def digest(self) -> int:
        digest: int = self.state.digest
        return digest

    def _gradients(self, corpus: Corpus) -> Any:
        return self._poisoned(self.team.gradients(self, corpus))

    def _updated(
        self, round: Round, reduced: Any, divisor: int, lr_factor: float, scalars: Sequence[float]
    ) -> State:
        if skipped(scalars):
            return self.state
        return self.team.updated(self, reduced, Update(round, divisor, lr_factor, tuple(scalars)))

    def sums(self, round: Round) -> Tensor | None:
        """The sums of ``round`` if all of them are here and not applied yet."""
        buffer: Any = self._rounds.get(round)
        return buffer.reduced() if buffer is not None and buffer.complete else None

    def _cut(self, state: State, index: int) -> Any:
        return cut(state.tensor, index, self.shared.ranges)

    def _join(self, parts: dict[int, Any]) -> State:
        return alone(super()._join(parts))

    def digest_of(self, state: State) -> int:
        digest: int = state.digest
        return digest

    def flipped(self, state: State, part: str) -> State:
        return alone(super().flipped(state.tensor, part))

    def snapshot(self) -> State:
        return alone(self.state.tensor.clone())

    def close(self) -> None:
        super().close()
        self.team.leave(self)
