"""What the log, the metrics and the spans hear of: derived from the protocol's events and effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ftruntime.protocol.ids import Incarnation, Position, Replica, Round, Step


class Happening(NamedTuple):
    """``time`` in Unix seconds; ``more`` holds plain values only, the same keys for the same ``event``."""

    time: float
    event: str
    replica: Replica
    incarnation: Incarnation
    position: Position
    round: Round
    step: Step
    more: dict[str, Any]


Sink = Callable[[Happening], None]
