"""The tensors of all ranks of a replica as ``[ranks, n]`` blocks, and one torch call for what they do alike.

A driver calls one rank after the other, and each wants its result at once, for the log. What a rank
computes is a function of things at hand, though: gradients of its state and the samples, a new state
of the old one and a round's sums. So whichever rank of a life of a replica asks first, its team computes
for all that stand like it, and keeps the results for the others. A result is given only to a rank
whose inputs are the very objects that it was computed from: a rank that differs in anything, or that
never asks, costs work and changes nothing. Nothing here knows of retries, lives or faults.

Blocks of states are never changed in place. A state is a row of one (``Row``), and its digest is
computed with those of the whole block when first asked for: one copy to bytes, then BLAKE2b over each
row, which takes half of the time of a hash made of vectorised operations. Ranks that go on together
stay one block; states that come from elsewhere (ranges of donors, a checkpoint) are stacked once. Rows of
gradients belong to the rank that asked for them, whose faults may spoil them.

What stays: the blocks that states, frozen copies and gradients of a life are rows of, and results that
were not asked for, at most one block of each kind until the next is computed. All initial states are one
block for the whole job. ``leave`` lets go of all that the team keeps for a rank.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ftruntime.protocol.ids import Position, Replica, Round
from ftruntime.seams import Corpus

from .device import Shared
from .device_tensor import count_bytes, initial_state, shift
from .tensor_optimizer import mean, update

if TYPE_CHECKING:
    from .device_pooled import PooledDevice

Tensor = torch.Tensor


class Block:
    """States of several ranks, as rows; ``digests`` on demand."""

    __slots__ = ("states", "_digests", "__weakref__")

    def __init__(self, states: Tensor) -> None:
        self.states = states
        self._digests: list[int] | None = None

    @property
    def digests(self) -> list[int]:
        """Of each row what ``TensorDevice.digest`` is of one state."""
        if self._digests is None:
            raw, width = self.states.numpy().tobytes(), self.states.shape[1] * self.states.element_size()
            rows = (raw[start : start + width] for start in range(0, len(raw), width))
            hashes = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
            self._digests = [int.from_bytes(digest, "little") for digest in hashes]
        return self._digests


class Row(NamedTuple):
    """The state of one rank."""

    block: Block
    place: int

    @property
    def tensor(self) -> Tensor:
        return self.block.states[self.place]

    @property
    def digest(self) -> int:
        return self.block.digests[self.place]


def alone(state: Tensor) -> Row:
    """A state that lies with no other rank's."""
    return Row(Block(state.unsqueeze(0)), 0)


class Update(NamedTuple):
    """What all ranks of a replica apply alike."""

    round: Round
    divisor: int
    lr_factor: float
    scalars: tuple[float, ...]


class Ahead:
    """Results that wait for their ranks to ask; each is given once."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._results: dict[Position, tuple[tuple[Any, ...], Any]] = {}

    def take(self, key: Hashable, position: Position, *inputs: Any) -> Any:
        """The result computed for ``position`` from ``key`` and these very ``inputs``, else None."""
        if key != self._key or position not in self._results:
            return None
        old, result = self._results.pop(position)
        return result if all(a is b for a, b in zip(old, inputs, strict=True)) else None

    def keep(self, key: Hashable, results: dict[Position, tuple[tuple[Any, ...], Any]]) -> None:
        self._key, self._results = key, results

    def forget(self, position: Position) -> None:
        self._results.pop(position, None)


class Pool:
    """What the teams of a job share: the initial states, and what each rank's parameters are to fit."""

    def __init__(self, shared: Shared, ranks: int) -> None:
        self.shared = shared
        self._ranks = ranks
        self._teams: dict[Replica, Team] = {}
        self._initial: Block | None = None
        self._places: Tensor | None = None

    def team(self, replica: Replica, fresh: bool) -> Team:
        """The ranks of the present life of ``replica``; ``fresh``: a life begins."""
        if fresh:
            self._teams[replica] = Team(self)
        return self._teams[replica]

    def initial(self, position: Position) -> Row:
        """The initial state of a rank: drawn once, for all replicas and lives."""
        if self._initial is None:
            states = [initial_state(self.shared, each) for each in range(self._ranks)]
            self._initial = Block(torch.stack(states))
        return Row(self._initial, position)

    def places(self, positions: Sequence[Position]) -> Tensor:
        """For each of ``positions`` (in order) and each element, the byte whose frequency it is to fit."""
        if self._places is None:
            self._places = torch.stack([self._places_of(each) for each in range(self._ranks)])
        everyone = len(positions) == self._ranks
        return self._places if everyone else self._places[list(positions)]

    def _places_of(self, position: Position) -> Tensor:
        elements, buckets = torch.arange(self.shared.tensor.elements), len(self.shared.bucket_bytes)
        return torch.cat([(elements - shift(position, bucket)) % 256 for bucket in range(buckets)])


class Team:
    """The ranks of one life of a replica. ``calls`` counts what was computed, for tests."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.calls = 0
        self._devices: dict[Position, PooledDevice] = {}
        self._grads, self._updates = Ahead(), Ahead()

    def join(self, device: PooledDevice) -> None:
        self._devices[device.position] = device

    def leave(self, device: PooledDevice) -> None:
        self._devices.pop(device.position, None)
        self._grads.forget(device.position)
        self._updates.forget(device.position)

    def __contains__(self, device: object) -> bool:
        return device in self._devices.values()

    def gradients(self, device: PooledDevice, corpus: Corpus) -> Tensor:
        """The flat gradient of ``device`` on its state; the caller's own, to write on."""
        found = self._grads.take(corpus.digest, device.position, device.state)
        if found is None:
            self._compute_gradients(self._alike(device), corpus)
            found = self._grads.take(corpus.digest, device.position, device.state)
        assert isinstance(found, Tensor)
        return found

    def _compute_gradients(self, group: list[PooledDevice], corpus: Corpus) -> None:
        self.calls += 1
        counts, total = count_bytes(corpus, self.pool.shared.tensor)
        params = _gather(group).states[:, 1:].chunk(3, dim=1)[0]
        grads = params * float(total) - counts[self.pool.places([d.position for d in group])]
        rows = zip(group, grads.unbind(), strict=True)
        self._grads.keep(corpus.digest, {d.position: ((d.state,), row) for d, row in rows})

    def updated(self, device: PooledDevice, sums: Tensor, how: Update) -> Row:
        """The state of ``device`` after the optimizer's step from ``sums`` of a round."""
        found = self._updates.take(how, device.position, device.state, sums)
        if found is None:
            ready = [
                (d, s) for d in self._alike(device) if (s := _sums(d, device, sums, how.round)) is not None
            ]
            self._compute_updates(_in_step(device, ready), how)
            found = self._updates.take(how, device.position, device.state, sums)
        assert isinstance(found, Row)
        return found

    def _compute_updates(self, ready: list[tuple[PooledDevice, Tensor]], how: Update) -> None:
        self.calls += 1
        config = self.pool.shared.tensor
        states = _gather([device for device, _ in ready]).states
        grads = mean(config, torch.stack([sums for _, sums in ready]), how.divisor, how.scalars)
        after = Block(update(config, how.lr_factor, states, grads))
        results = {d.position: ((d.state, sums), Row(after, i)) for i, (d, sums) in enumerate(ready)}
        self._updates.keep(how, results)

    def _alike(self, device: PooledDevice) -> list[PooledDevice]:
        """Who stands like ``device``, by position; it is one of them."""
        lineage = device.lineage
        return [d for _, d in sorted(self._devices.items()) if d is device or d.lineage == lineage]


def _sums(device: PooledDevice, asking: PooledDevice, sums: Tensor, round: Round) -> Tensor | None:
    """What ``device`` has to apply; None if it lacks anything yet."""
    return sums if device is asking else device.sums(round)


def _in_step(
    device: PooledDevice, ready: list[tuple[PooledDevice, Tensor]]
) -> list[tuple[PooledDevice, Tensor]]:
    """All of ``ready`` if their optimizers took equally many steps, which the correction of bias needs."""
    steps = torch.stack([d.state.tensor[0] for d, _ in ready])
    return ready if bool((steps == steps[0]).all()) else [pair for pair in ready if pair[0] is device]


def _gather(group: list[PooledDevice]) -> Block:
    """A block whose rows are the states of ``group``, in order; made if there is none yet."""
    block: Block = group[0].state.block
    whole = len(group) == len(block.states)
    if whole and all(d.state.block is block and d.state.place == i for i, d in enumerate(group)):
        return block
    block = Block(torch.stack([d.state.tensor for d in group]))
    for place, device in enumerate(group):
        device.state = Row(block, place)
    return block
