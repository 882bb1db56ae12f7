"""The optimizers of torch as functions, for one rank's flat tensors or for those of many ranks as rows.

A rank of the reference path (device_tensor.py) makes a ``torch.optim`` object for each step; here are the
same calls in the same order, lerp_, addcmul_ and addcdiv_ among them, whose fused multiply-adds no other
order of operations reproduces. Each element goes the same way in whichever shape it lies, so a row of
a ``[ranks, n]`` tensor ends with the bits that torch.optim gives the rank alone, which the tests compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .device import TensorConfig

Tensor = torch.Tensor
BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults


def update(config: TensorConfig, lr_factor: float, states: Tensor, grads: Tensor) -> Tensor:
    """The states after one step from ``grads`` (left to be written on), which are rows alike; the count
    of optimizer steps, a state's first element, must be equal in all rows."""
    after = states.clone()
    params, first, second = after[..., 1:].chunk(3, dim=-1)
    after[..., 0] += 1
    lr = config.lr * lr_factor
    if config.optimizer == "sgd":
        params.add_(grads.add_(params, alpha=config.weight_decay), alpha=-lr)
    else:
        _adamw(params, first, second, grads, lr, config.weight_decay, float(after.view(-1)[0]))
    return after


def _adamw(
    params: Tensor, first: Tensor, second: Tensor, grads: Tensor, lr: float, decay: float, step: float
) -> None:
    """In place, as torch.optim.AdamW: decoupled decay, moments, corrections of their bias."""
    beta1, beta2 = BETAS
    params.mul_(1 - lr * decay)
    first.lerp_(grads, 1 - beta1)
    second.mul_(beta2).addcmul_(grads, grads, value=1 - beta2)
    root = (1 - beta2**step) ** 0.5
    params.addcdiv_(first, (second.sqrt() / root).add_(EPSILON), value=-(lr / (1 - beta1**step)))


def mean(config: TensorConfig, sums: Tensor, divisor: int, scalars: Sequence[float]) -> Tensor:
    """The mean gradient from the sums of a round, clipped to ``max_norm``; ``scalars``: square norms."""
    grads = sums / divisor
    if config.max_norm > 0.0 and scalars:
        grads *= min(1.0, config.max_norm * divisor / max(math.sqrt(scalars[0]), 1e-300))
    return grads
