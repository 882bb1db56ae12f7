"""The event log: what happened, for the checker, whoever drives the protocol (design 4)."""

from __future__ import annotations

from .eventlog import Entry, EventLog, LogError, combine
from .headlog import HeadLog

__all__ = ["Entry", "EventLog", "HeadLog", "LogError", "combine"]
