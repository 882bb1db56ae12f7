"""What the emulated machines are like: sizes and speeds of network, devices and hosts, as settings."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from ftruntime.protocol.errors import ConfigError


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape and speed of the network. ``replicas`` and ``ranks_per_replica`` come from the job.

    hosts_per_rack, racks_per_zone:  with 8 ranks a host, 3,072 ranks a zone by default
    latency_s:         of two ranks in one rack
    latency_factors:   by tier, for the latency of the others
    nic_gbps:          of one rank, each way
    oversubscription:  of the layer that joins zones, and again of the one that joins buildings
    reset_after_s:     how long a connection tries before it is reset (netfaults.py)
    """

    buildings: int = 12
    ranks_per_host: int = 8
    hosts_per_rack: int = 2
    racks_per_zone: int = 192
    latency_s: float = 2e-6
    latency_factors: tuple[float, float, float, float] = (1.0, 7.0, 15.0, 30.0)
    nic_gbps: float = 400.0
    oversubscription: float = 2.8
    reset_after_s: float = 15.0

    def check(self) -> None:
        """Raises ConfigError naming the first value that cannot be."""
        for name in ("buildings", "ranks_per_host", "hosts_per_rack", "racks_per_zone"):
            _at_least(f"network.{name}", getattr(self, name), 1)
        _at_least("network.oversubscription", self.oversubscription, 1.0)
        for name in ("latency_s", "nic_gbps", "reset_after_s"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"network.{name} is {getattr(self, name)}; it must be above 0 and finite")
        if min(self.latency_factors) < 1.0:
            raise ConfigError(f"network.latency_factors are {self.latency_factors}; each must be at least 1")


class ComputeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds, and bytes a second. Defaults give FACTS.md's step of about 20 s.

    jitter:        a replica's step takes up to this share more or less, drawn by (seed, replica, step)
    first_step_s:  a throw-away step of a fresh process (warm-up): allocator, compilation, loader
    reduce_bps:    of the fused reduce-and-forward of a chunk, or of its copy
    copy_bps:      between device and host
    """

    forward_s: float = 6.0
    backward_s: float = 12.0
    apply_s: float = 0.2
    jitter: float = 0.02
    first_step_s: float = 120.0
    reduce_bps: float = 200e9
    copy_bps: float = 40e9

    def check(self) -> None:
        """Raises ConfigError naming the first value that cannot be."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least_excluded = name.endswith("_bps")
            if not 0.0 <= value < math.inf or (least_excluded and value == 0.0):
                bound = "above 0" if least_excluded else "0 or more"
                raise ConfigError(f"compute.{name} is {value}; it must be {bound} and finite")
        if self.jitter >= 1.0:
            raise ConfigError(f"compute.jitter is {self.jitter}; it is a share and must be below 1")


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


class TensorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tensor fidelity only. ``elements`` of each bucket; ``max_norm`` 0 clips nothing."""

    elements: int = 64
    dtype: Literal["float64", "float32"] = "float64"
    optimizer: Literal["adamw", "sgd"] = "adamw"
    lr: float = 0.01
    weight_decay: float = 0.01
    max_norm: float = 0.0


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ConfigError(f"{name} is {value}; it must be at least {least:g}")
