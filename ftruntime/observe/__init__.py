"""Seeing what a job does: structured log, metrics, spans, ``fthsdp status`` (docs/observe.md). No torch."""

from __future__ import annotations

from .happening import Happening, Sink
from .observer import Observer
from .report import Board, Failure, Report, short
from .settings import Observe, observed
from .sinks import Sinks
from .stalls import PHASES, StallClock

__all__ = [
    "PHASES",
    "Board",
    "Failure",
    "Happening",
    "Observe",
    "Observer",
    "Report",
    "Sink",
    "Sinks",
    "StallClock",
    "observed",
    "short",
]
