"""The mock GPU in tensor fidelity: small real tensors and a real optimizer of torch.

What is trained is small but real: each bucket of a rank fits the frequencies of bytes in the samples,
shifted by position and bucket, by least squares. Sums in ring order have the same bits at every
member, since every chunk is reduced in one place; digests are of the tensors' bytes.

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
from ftruntime.seams import Corpus

from .device import FingerprintDevice, State, TensorConfig
from .mixing import GOLDEN, mix


class TensorDevice(FingerprintDevice):
    """``state`` is one flat tensor: [optimizer steps, parameters, first moments, second moments], each of
    the last three with the elements of all buckets in order."""

    __slots__ = ()

    def initial_state(self) -> State:
        config = self.shared.tensor
        draw = torch.Generator().manual_seed(mix(self.shared.seed * GOLDEN + self.position + 1) >> 1)
        size = config.elements * len(self.shared.bucket_bytes)
        params = torch.randn(size, generator=draw, dtype=torch.float64) * 0.1
        return torch.cat([torch.zeros(1), params, torch.zeros(2 * size)]).to(_dtype(config))

    def digest(self) -> int:
        return int.from_bytes(_checksum(self.state), "little")

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Views of parameters and moments."""
        params, first, second = self.state[1:].chunk(3)
        return params, first, second

    def _gradients(self, corpus: Corpus) -> Any:
        tokens = torch.frombuffer(bytearray(corpus.tokens()), dtype=torch.uint8).to(torch.int64)
        counts = torch.bincount(tokens, minlength=256).to(_dtype(self.shared.tensor))
        elements = self.shared.tensor.elements
        grads = []
        for bucket, params in enumerate(self._parts()[0].view(-1, elements).unbind()):
            shift = (self.position * 7 + bucket * 3) % 256
            wanted = counts.roll(shift).repeat(-(-elements // 256))[:elements]
            grads.append(params * float(len(tokens)) - wanted)
        if self.nan:
            grads[0][0] = math.nan
        return grads

    def _corrupt(self, grads: Any) -> None:
        bits = grads[0][:1].view(torch.int64 if grads[0].dtype == torch.float64 else torch.int32)
        bits ^= 1 << self.flip % (8 * grads[0].element_size() - 1)

    def _exchange(self, geometry: Geometry, index: int, grads: Any, tapped: bool) -> Any:
        if grads is None:
            empty = torch.zeros(self.shared.tensor.elements, dtype=_dtype(self.shared.tensor))
            grads = [empty] * len(geometry.buckets)
        return TensorExchange(geometry, index, grads, tapped)

    def _held(self, geometry: Geometry, index: int) -> Any:
        return TensorHeld(geometry, index, self.shared.tensor)

    def _scalars(self, reduced: Any) -> tuple[float, ...]:
        return (float(sum((bucket.double().square().sum() for bucket in reduced), torch.zeros(()))),)

    def _updated(self, reduced: Any, divisor: int, lr_factor: float, scalars: Sequence[float]) -> State:
        """One step of the real optimizer on a copy. A square norm that is not finite skips it."""
        config = self.shared.tensor
        if scalars and not math.isfinite(scalars[0]):
            return self.state.clone()
        params, first, second = (part.clone() for part in self._parts())
        params.grad = torch.cat(list(reduced)) / divisor
        if config.max_norm > 0.0 and scalars:
            params.grad *= min(1.0, config.max_norm * divisor / max(math.sqrt(scalars[0]), 1e-300))
        steps = self.state[:1].clone().to(torch.float32).squeeze()
        _optimize(config, lr_factor, params, {"step": steps, "exp_avg": first, "exp_avg_sq": second})
        return torch.cat([self.state[:1] + 1, params.detach(), first, second])

    def _cut(self, state: State, index: int) -> Any:
        size = -(-len(state) // self.shared.ranges)
        content = state[index * size : (index + 1) * size].clone()
        return content, _checksum(content)

    def intact(self, index: int, data: Any) -> bool:
        content, checksum = data
        return bool(_checksum(content) == checksum)

    def _join(self, parts: dict[int, Any]) -> State:
        return torch.cat([content for _, (content, _) in sorted(parts.items())])

    def grads_for_log(self) -> Any:
        return [bucket.tolist() for bucket in self._grads]

    def reduced_for_log(self, round: int) -> Any:
        return [bucket.tolist() for bucket in self.buffer(round).reduced()]


class TensorExchange:
    """As ``chunks.Exchange``, with a slice of each bucket's tensor for a chunk."""

    learned = False

    def __init__(self, geometry: Geometry, index: int, grads: list[Tensor], tapped: bool) -> None:
        self.tapped = tapped
        self._geometry, self._index, self._grads = geometry, index, grads
        alone = geometry.members == 1
        self._sums = [grad.clone() if alone else torch.full_like(grad, math.nan) for grad in grads]

    def produce(self, number: int) -> Tensor:
        bucket, _, step, chunk = self._geometry.locate(number)
        assert step == 0, "only a first share is made from the own gradient alone"
        return self._share(bucket, self._index, chunk)

    def _share(self, bucket: int, partition: int, chunk: int) -> Tensor:
        return self._grads[bucket][_slice(self._geometry, self._grads, bucket, partition, chunk)].clone()

    def take(self, number: int, data: Tensor) -> Tensor:
        bucket, _, step, chunk = self._geometry.locate(number)
        partition = self._geometry.received_partition(self._index, step)
        if step <= self._geometry.members - 2:
            data = data + self._share(bucket, partition, chunk)
        if step >= self._geometry.members - 2:
            self._sums[bucket][_slice(self._geometry, self._sums, bucket, partition, chunk)] = data
        return data

    def finished(self, index: int) -> Tensor:
        return self._sums[_bucket(self._geometry, index)][
            _finished(self._geometry, self._index, index, self._sums)
        ].clone()

    def reduced(self) -> list[Tensor]:
        return self._sums


class TensorHeld:
    """As ``chunks.HeldRound``. What has not come is not a number."""

    learned = True
    tapped = False

    def __init__(self, geometry: Geometry, index: int, config: TensorConfig) -> None:
        self._geometry, self._index = geometry, index
        self._sums = [
            torch.full((config.elements,), math.nan, dtype=_dtype(config)) for _ in geometry.buckets
        ]

    def store(self, index: int, data: Tensor) -> None:
        where = _finished(self._geometry, self._index, index, self._sums)
        self._sums[_bucket(self._geometry, index)][where] = data

    def reduced(self) -> list[Tensor]:
        return self._sums


def _bucket(geometry: Geometry, finished: int) -> int:
    return geometry.locate_finished(finished).bucket


def _finished(geometry: Geometry, member: int, index: int, tensors: list[Tensor]) -> slice:
    bucket, _, step, chunk = geometry.locate_finished(index)
    return _slice(geometry, tensors, bucket, geometry.received_partition(member, step), chunk)


def _slice(geometry: Geometry, tensors: list[Tensor], bucket: int, partition: int, chunk: int) -> slice:
    """The elements that stand for a chunk: bytes of the bucket scaled to the tensor's elements."""
    start, end = geometry.byte_range(bucket, partition, chunk)
    elements, size = len(tensors[bucket]), max(geometry.buckets[bucket], 1)
    return slice(start * elements // size, end * elements // size)


def _optimize(config: TensorConfig, lr_factor: float, params: Tensor, state: dict[str, Tensor]) -> None:
    lr = config.lr * lr_factor
    if config.optimizer == "sgd":
        torch.optim.SGD([params], lr=lr, weight_decay=config.weight_decay).step()
        return
    optimizer = torch.optim.AdamW([params], lr=lr, weight_decay=config.weight_decay)
    optimizer.state[params] = state
    optimizer.step()


def _dtype(config: TensorConfig) -> torch.dtype:
    return torch.float64 if config.dtype == "float64" else torch.float32


def _checksum(tensor: Tensor) -> bytes:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=8).digest()
