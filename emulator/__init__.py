"""Mock GPUs, a network model and a consensus store in virtual time, and what drives them.

``Emulation`` runs a job of ``RunSettings`` and writes an ``EventLog``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import ftruntime  # noqa: F401 -- first: it may bring the compiled core in place of modules here

if TYPE_CHECKING:
    from ftruntime.log.eventlog import EventLog

    from .emulation import Emulation
    from .settings import RunSettings

_LAZY = {"Emulation": ".emulation", "EventLog": "ftruntime.log.eventlog", "RunSettings": ".settings"}
__all__ = ["Emulation", "EventLog", "RunSettings"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)
