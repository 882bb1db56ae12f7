"""How a model's gradients become buckets: which parameters each has, and where they are in it.

An FSDP2 module is a bucket: the flat reduced shard that its all-reduce hook gets. A plain model, which
nothing shards, is cut into buckets of some megabytes. Buckets are numbered in the order in which a backward
pass finishes them: from the last module to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from ftruntime.protocol.errors import ConfigError

PLAIN_BYTES = 25 << 20


class Piece(NamedTuple):
    """The local shard of ``param``: elements [start, start + numel) of its bucket."""

    param: nn.Parameter
    start: int
    numel: int


class Group(NamedTuple):
    """One bucket. ``module`` is its FSDP module; None in a plain model."""

    elements: int
    pieces: tuple[Piece, ...]
    module: Any


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of ``tensor``, sharing its memory."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def groups_of(model: nn.Module) -> list[Group]:
    """The buckets of ``model``. Raises ConfigError for a model that cannot be trained, with the reason."""
    _check(model)
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        return list(_plain(model))
    groups = [group for module in reversed(sharded) for group in _fsdp(module)]
    covered = {id(piece.param) for group in groups for piece in group.pieces}
    for name, param in model.named_parameters():
        if param.requires_grad and id(param) not in covered:
            raise ConfigError(
                f"parameter {name} belongs to no FSDP module: call fully_shard on the whole model"
            )
    return groups


def _fsdp(module: Any) -> Iterator[Group]:
    group = module._get_fsdp_state()._fsdp_param_group
    if group is None:
        return
    pieces, start = [], 0
    for param in group.fsdp_params:
        pieces.append(Piece(param.sharded_param, start, local(param.sharded_param).numel()))
        start += param.padded_sharded_param_size.numel()
    yield Group(start, tuple(pieces), module)


def _plain(model: nn.Module) -> Iterator[Group]:
    pieces: list[Piece] = []
    start = 0
    for param in reversed([p for p in model.parameters() if p.requires_grad]):
        pieces.append(Piece(param, start, param.numel()))
        start += param.numel()
        if start * 4 >= PLAIN_BYTES:
            yield Group(start, tuple(pieces), None)
            pieces, start = [], 0
    if pieces:
        yield Group(start, tuple(pieces), None)


def _check(model: nn.Module) -> None:
    """What would let a forward pass change the state, or what this back end cannot hold."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            raise ConfigError(
                f"module {name} keeps statistics of its inputs, which differ between replicas: "
                "use a norm without them, as LayerNorm or RMSNorm"
            )
    for name, param in model.named_parameters():
        shard = local(param)
        if shard.device.type != "cpu":
            raise ConfigError(f"parameter {name} is on {shard.device}: this back end trains on the CPU")
        if shard.dtype != torch.float32:
            raise ConfigError(
                f"parameter {name} is {shard.dtype}: keep float32 parameters and let FSDP's mixed precision"
                " policy compute in another type"
            )
        if not shard.is_contiguous():
            raise ConfigError(f"parameter {name} is not contiguous: call .contiguous() on it before training")
