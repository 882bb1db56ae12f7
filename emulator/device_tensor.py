"""The mock GPU in tensor fidelity: small real tensors and a real optimizer of torch.

What is trained is small but real: each bucket of a rank fits the frequencies of bytes in the samples,
shifted by position and bucket, by least squares. Sums in ring order have the same bits at every
member, since every chunk is reduced in one place; digests are of the tensors' bytes.

Each rank computes by itself here, with an optimizer of ``torch.optim``. Runs use ``PooledDevice``
(device_pooled.py), which does the same for all ranks of a replica in one call; this is the reference
that tests hold it against, bit by bit.

States and chunks are never changed in place: a frozen copy, a chunk in flight and the state that
trains on may share memory without seeing each other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.ids import Round
from ftruntime.seams import Corpus

from .device import FingerprintDevice, Shared, State, TensorConfig
from .mixing import GOLDEN, mix
from .tensor_chunks import TensorExchange, TensorHeld
from .tensor_optimizer import mean


class TensorDevice(FingerprintDevice):
    """``state`` is one flat tensor: [optimizer steps, parameters, first moments, second moments], each of
    the last three with the elements of all buckets in order; gradients are one flat tensor likewise."""

    __slots__ = ()

    def initial_state(self) -> State:
        return initial_state(self.shared, self.position)

    def digest(self) -> int:
        return int.from_bytes(checksum(self.state), "little")

    def _gradients(self, corpus: Corpus) -> Any:
        counts, total = count_bytes(corpus, self.shared.tensor)
        elements = self.shared.tensor.elements
        grads = []
        for bucket, params in enumerate(self._parts()[0].view(-1, elements).unbind()):
            wanted = counts.roll(shift(self.position, bucket)).repeat(-(-elements // 256))[:elements]
            grads.append(params * float(total) - wanted)
        return self._poisoned(torch.cat(grads))

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Views of parameters and moments."""
        params, first, second = self.state[1:].chunk(3)
        return params, first, second

    def _poisoned(self, grads: Tensor) -> Tensor:
        if self.nan:
            grads[0] = math.nan
        return grads

    def _corrupt(self, grads: Any) -> None:
        bits = grads[:1].view(torch.int64 if grads.dtype == torch.float64 else torch.int32)
        bits ^= 1 << self.flip % (8 * grads.element_size() - 1)

    def _overflow(self, grads: Any) -> None:
        grads[0] = math.inf

    def digest_of(self, state: State) -> int:
        return int.from_bytes(checksum(state), "little")

    def flipped(self, state: State, part: str) -> State:
        found: Tensor = state.clone()
        third = (len(state) - 1) // 3
        place = 1 if part == "parameter" else 1 + third
        _flip(found[place : place + 1])
        return found

    def spoilt(self, data: Any) -> Any:
        found: Tensor = data.clone()
        _flip(found[:1])
        return found

    def chunk_sum(self, data: Any) -> int:
        return int.from_bytes(checksum(data), "little")

    def _exchange(self, geometry: Geometry, index: int, grads: Any, tapped: bool) -> Any:
        return TensorExchange(geometry, index, self._zeros() if grads is None else grads, tapped)

    def _held(self, geometry: Geometry, index: int) -> Any:
        return TensorHeld(geometry, index, self._zeros())

    def _zeros(self) -> Tensor:
        config = self.shared.tensor
        return torch.zeros(config.elements * len(self.shared.bucket_bytes), dtype=dtype(config))

    def _scalars(self, reduced: Any) -> tuple[float, ...]:
        return (float(reduced.double().square().sum()),)

    def _updated(
        self, round: Round, reduced: Any, divisor: int, lr_factor: float, scalars: Sequence[float]
    ) -> State:
        """One step of the real optimizer on a copy. A square norm that is not finite skips it."""
        if skipped(scalars):
            return self.state
        config = self.shared.tensor
        params, first, second = (part.clone() for part in self._parts())
        params.grad = mean(config, reduced, divisor, scalars)
        steps = self.state[:1].clone().to(torch.float32).squeeze()
        _optimize(config, lr_factor, params, {"step": steps, "exp_avg": first, "exp_avg_sq": second})
        return torch.cat([self.state[:1] + 1, params.detach(), first, second])

    def _cut(self, state: State, index: int) -> Any:
        return cut(state, index, self.shared.ranges)

    def intact(self, index: int, data: Any) -> bool:
        content, expected = data
        return bool(checksum(content) == expected)

    def _join(self, parts: dict[int, Any]) -> State:
        return torch.cat([content for _, (content, _) in sorted(parts.items())])

    def grads_for_log(self) -> Any:
        return self._grads.view(-1, self.shared.tensor.elements).tolist()

    def reduced_for_log(self, round: Round) -> Any:
        return self.buffer(round).reduced().view(-1, self.shared.tensor.elements).tolist()


def _optimize(config: TensorConfig, lr_factor: float, params: Tensor, state: dict[str, Tensor]) -> None:
    lr = config.lr * lr_factor
    if config.optimizer == "sgd":
        torch.optim.SGD([params], lr=lr, weight_decay=config.weight_decay).step()
        return
    optimizer = torch.optim.AdamW([params], lr=lr, weight_decay=config.weight_decay)
    optimizer.state[params] = state
    optimizer.step()


def _flip(number: Tensor) -> None:
    """One bit of the mantissa of a tensor of one element, in place."""
    bits = number.view(torch.int64 if number.dtype == torch.float64 else torch.int32)
    bits ^= 1 << 20


def initial_state(shared: Shared, position: int) -> Tensor:
    """What every life of a rank begins with, a function of seed and position."""
    config = shared.tensor
    draw = torch.Generator().manual_seed(mix(shared.seed * GOLDEN + position + 1) >> 1)
    size = config.elements * len(shared.bucket_bytes)
    params = torch.randn(size, generator=draw, dtype=torch.float64) * 0.1
    return torch.cat([torch.zeros(1), params, torch.zeros(2 * size)]).to(dtype(config))


def count_bytes(corpus: Corpus, config: TensorConfig) -> tuple[Tensor, int]:
    """How often each byte comes in the samples, and how many bytes there are."""
    tokens = torch.frombuffer(bytearray(corpus.tokens()), dtype=torch.uint8).to(torch.int64)
    return torch.bincount(tokens, minlength=256).to(dtype(config)), len(tokens)


def shift(position: int, bucket: int) -> int:
    """By how much the frequencies that a bucket fits are turned."""
    return (position * 7 + bucket * 3) % 256


def skipped(scalars: Sequence[float]) -> bool:
    """Whether the update is left out: the square norm is not a number, or infinite."""
    return bool(scalars) and not math.isfinite(scalars[0])


def cut(state: Tensor, index: int, ranges: int) -> tuple[Tensor, bytes]:
    """Range ``index`` of a state, with its checksum."""
    size = -(-len(state) // ranges)
    content = state[index * size : (index + 1) * size].clone()
    return content, checksum(content)


def dtype(config: TensorConfig) -> torch.dtype:
    return torch.float64 if config.dtype == "float64" else torch.float32


def checksum(tensor: Tensor) -> bytes:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=8).digest()
