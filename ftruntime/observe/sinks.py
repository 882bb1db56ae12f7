"""The sinks that a process has asked for, opened together and closed together."""

from __future__ import annotations

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ids import Position, Replica

from .happening import Happening
from .log import Log
from .metrics import Metrics
from .settings import Observe
from .spans import Spans


class Sinks:
    """Empty where nothing was asked for. Raises ConfigError in one line for what cannot be had."""

    def __init__(self, wanted: Observe, replica: Replica, position: Position) -> None:
        self.all: list[Log | Metrics | Spans] = []
        if wanted.log:
            try:
                self.all.append(Log(wanted.log, wanted.form))
            except OSError as error:
                raise ConfigError(f"FTHSDP_LOG: {wanted.log} cannot be written: {error.strerror}") from None
        if wanted.metrics_port:
            self.all.append(Metrics(wanted.metrics_host, wanted.metrics_port, replica, position))
        if wanted.spans:
            self.all.append(Spans())

    def __call__(self, happening: Happening) -> None:
        for sink in self.all:
            sink(happening)

    def close(self) -> None:
        for sink in self.all:
            sink.close()
