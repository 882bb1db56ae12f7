"""What FTAR of one round needs at one emulated rank, laid out for the hot path."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.ids import Address, Replica

if TYPE_CHECKING:
    from .process import Process


@lru_cache(maxsize=256)
def transfer_sizes(shape: Geometry, index: int) -> tuple[int, ...]:
    """Bytes of each chunk that ring member ``index`` sends, by number."""
    sizes = []
    for number in range(shape.total):
        place = shape.locate(number)
        start, end = shape.byte_range(place.bucket, shape.sent_partition(index, place.step), place.chunk)
        sizes.append(end - start)
    return tuple(sizes)


class RingBuffers:
    """Slots and the way to the right neighbour.

    take, produce:  of the device's exchange
    incoming:       receive slots: a chunk that comes before its slot is free overwrites what is there
    slots:          what each send slot holds, for a chunk that is sent again
    nic, free ...:  how long a transfer to the right neighbour takes while the network is whole
    slow:           a chunk needs more than to be delivered
    """

    __slots__ = (
        "at", "byte_s", "free", "incarnation", "incoming", "latency_s", "left", "network", "nic", "produce",
        "reduce_s", "right", "sizes", "slots", "slow", "take", "target",
    )  # fmt: skip

    def __init__(
        self,
        process: Process,
        exchange: Any,
        shape: Geometry,
        index: int,
        left: Replica,
        right_address: Address,
        right: Process | None,
    ) -> None:
        job = process.job
        self.take, self.produce = exchange.take, exchange.produce
        self.incoming: list[Any] = [None] * shape.slots
        self.slots: list[Any] = [None] * shape.slots
        self.sizes = transfer_sizes(shape, index)
        self.left = left
        self.slow = right is None or job.completions or process.odd is not None
        self.incarnation = process.rank.member.me.incarnation
        self.right: Any = None if right is None else right.chunk_handler
        self.target: Address = right_address
        self.at, self.network, self.reduce_s = process.lane.at, job.network, job.reduce_s
        self.nic, self.free = job.network.nic(process.address)
        reached = right is not None or job.elsewhere is not None
        self.latency_s, self.byte_s = (
            job.network.link(process.address, self.target) if reached else (0.0, 0.0)
        )
