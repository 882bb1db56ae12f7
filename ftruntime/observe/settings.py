"""What of a process is to be observed, and how: read from the environment, nothing but status by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ftruntime.protocol.errors import ConfigError


class Observe(msgspec.Struct, frozen=True):
    """How one process is observed.

    log:           file for the structured log, "-" for standard error, "" for none
    form:          of the log: JSON lines, or for people
    metrics_port:  of Prometheus' page; 0: none
    metrics_host:  where it is served
    spans:         OpenTelemetry spans, by whatever provider the process has set up
    publish_s:     a leader tells the store how it fares, at most this often; 0: never
    """

    log: str = ""
    form: Literal["json", "human"] = "json"
    metrics_port: int = 0
    metrics_host: str = "127.0.0.1"
    spans: bool = False
    publish_s: float = 1.0


def observed(environment: Mapping[str, str], offset: int = 0) -> Observe:
    """From FTHSDP_LOG, FTHSDP_LOG_FORM, FTHSDP_METRICS_PORT, FTHSDP_METRICS_HOST, FTHSDP_SPANS and
    FTHSDP_STATUS_SECONDS. ``offset``: of this process among those that share a machine, added to the port.

    Raises ConfigError.
    """
    found = {name: environment[variable] for name, variable in VARIABLES.items() if environment.get(variable)}
    try:
        wanted = msgspec.convert(found, Observe, strict=False)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].strip("`")
        raise ConfigError(f"{VARIABLES.get(name, name)} is {found.get(name)!r}: {error}") from None
    if not 0 <= wanted.metrics_port <= 65535 - offset:
        raise ConfigError(f"FTHSDP_METRICS_PORT is {wanted.metrics_port}: it must be 0 to {65535 - offset}")
    if not 0 <= wanted.publish_s < 3600:
        raise ConfigError(f"FTHSDP_STATUS_SECONDS is {wanted.publish_s:g}: it must be 0 to 3600")
    port = wanted.metrics_port + offset if wanted.metrics_port else 0
    return msgspec.structs.replace(wanted, metrics_port=port)


VARIABLES = {
    "log": "FTHSDP_LOG",
    "form": "FTHSDP_LOG_FORM",
    "metrics_port": "FTHSDP_METRICS_PORT",
    "metrics_host": "FTHSDP_METRICS_HOST",
    "spans": "FTHSDP_SPANS",
    "publish_s": "FTHSDP_STATUS_SECONDS",
}
