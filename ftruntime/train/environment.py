"""Who this process is, from its environment: set by ``ftruntime.launch``, or by torchrun and a person."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ftruntime.observe import Observe, observed
from ftruntime.protocol.errors import ConfigError
from ftruntime.wire import Endpoint, resolve

EXAMPLE = "export FTHSDP_REPLICA=0 FTHSDP_REPLICAS=3 FTHSDP_STORE=host:29600 FTHSDP_TOKEN=..."


class Environment(msgspec.Struct, frozen=True):
    """position, ranks:  rank and world size within the replica, as torchrun sets them
    life:  how often this replica was started before"""

    replica: int
    replicas: int
    position: int
    ranks: int
    life: int
    store: Endpoint
    token: str
    interface: str
    journals: Path | None
    checkpoints: Path | None
    observe: Observe


def environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """Read it. Raises ConfigError with one line that names the variable and the mend."""
    replica, replicas = _number(variables, "FTHSDP_REPLICA"), _number(variables, "FTHSDP_REPLICAS")
    if not 0 <= replica < replicas:
        raise ConfigError(f"FTHSDP_REPLICA is {replica}: it must be 0 to FTHSDP_REPLICAS - 1, {replicas - 1}")
    host, _, port = _needed(variables, "FTHSDP_STORE").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"FTHSDP_STORE is {variables['FTHSDP_STORE']!r}: give it as HOST:PORT")
    position, ranks = int(variables.get("RANK", "0")), int(variables.get("WORLD_SIZE", "1"))
    life = variables.get("FTHSDP_LIFE", variables.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Environment(
        replica=replica,
        replicas=replicas,
        position=position,
        ranks=ranks,
        life=int(life),
        store=resolve(host.strip("[]"), int(port)),
        token=_needed(variables, "FTHSDP_TOKEN"),
        interface=variables.get("FTHSDP_INTERFACE", ""),
        journals=_folder(variables, "FTHSDP_JOURNALS"),
        checkpoints=_folder(variables, "FTHSDP_CHECKPOINTS"),
        observe=observed(variables, replica * ranks + position),
    )


def _needed(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "")
    if not value:
        raise ConfigError(f"{name} is not set; for example: {EXAMPLE}")
    return value


def _number(variables: Mapping[str, str], name: str) -> int:
    value = _needed(variables, name)
    if not value.isdigit():
        raise ConfigError(f"{name} is {value!r}: it must be a number; for example: {EXAMPLE}")
    return int(value)


def _folder(variables: Mapping[str, str], name: str) -> Path | None:
    return Path(variables[name]) if variables.get(name) else None
