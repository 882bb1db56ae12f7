"""The process group of one replica, made so that its next life can make it again."""

from __future__ import annotations

import os

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def replica_mesh(backend: str = "gloo") -> DeviceMesh:
    """A one-dimensional mesh over the ranks of this replica, for ``fully_shard``.

    torchrun keeps its store through restarts of the workers, and with it the addresses of dead ones: so the
    keys of each life are its own.
    """
    life = os.environ.get("FTHSDP_LIFE", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    store, rank, ranks = next(dist.rendezvous("env://"))
    own = dist.PrefixStore(f"life-{life}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=ranks)
    return init_device_mesh("cpu", (ranks,))
