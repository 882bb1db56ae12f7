"""Consensus stores that members reach over the network; ``ftruntime.store`` is the register they serve."""

from __future__ import annotations

from .client import EmbeddedClient
from .durable import DurableRegister, history_of
from .embedded import EmbeddedStore
from .messages import Seat
from .wal import DamagedLog, WriteAheadLog

__all__ = [
    "DamagedLog",
    "DurableRegister",
    "EmbeddedClient",
    "EmbeddedStore",
    "Seat",
    "WriteAheadLog",
    "history_of",
]
