"""The FT-HSDP protocol as pure state machines (design sections 2 and 3).

One ``Rank`` per process: ``step(event, now)`` takes an event and returns effects, which a driver carries
out. ``events``, ``effects``, ``messages`` and ``store`` are the whole vocabulary between the two.
"""

from __future__ import annotations

from . import effects, events, messages, store
from .config import CatchUp, Ftar, JobConfig, Timeouts, check, load
from .errors import ConfigError, ErrorClass, ErrorReport, ProtocolError
from .head import Head
from .ids import MemberId
from .plan import Plan
from .rank import Rank
from .record import Record

__all__ = [
    "CatchUp",
    "ConfigError",
    "ErrorClass",
    "ErrorReport",
    "Ftar",
    "Head",
    "JobConfig",
    "MemberId",
    "Plan",
    "ProtocolError",
    "Rank",
    "Record",
    "Timeouts",
    "check",
    "effects",
    "events",
    "load",
    "messages",
    "store",
]
