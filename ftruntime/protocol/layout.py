"""Which bytes of which bucket a chunk is, for one member of the ring (``geometry.py``)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .geometry import Geometry


class Spot(NamedTuple):
    """Bytes [start, end) of ``bucket``; ``step`` is the ring step of the chunk."""

    bucket: int
    start: int
    end: int
    step: int


class Layout(NamedTuple):
    """What each number means for one member; ``finished`` in the order of finishing."""

    sent: list[Spot]
    received: list[Spot]
    finished: list[Spot]


@lru_cache(maxsize=64)
def layout(geometry: Geometry, index: int) -> Layout:
    """The tables of ring index ``index``. ``geometry`` must be the shared object."""
    sent, received, finished = [], [], []
    for number in range(geometry.total):
        bucket, _, step, chunk = geometry.locate(number)
        out = geometry.byte_range(bucket, geometry.sent_partition(index, step), chunk)
        into = geometry.byte_range(bucket, geometry.received_partition(index, step), chunk)
        sent.append(Spot(bucket, *out, step))
        received.append(Spot(bucket, *into, step))
    for number in range(geometry.finished_total):
        bucket, _, step, chunk = geometry.locate_finished(number)
        into = geometry.byte_range(bucket, geometry.received_partition(index, step), chunk)
        finished.append(Spot(bucket, *into, step))
    return Layout(sent, received, finished)
