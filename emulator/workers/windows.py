"""Windows of virtual time: how far each worker may run before it must hear of the others.

No worker touches another sooner than ``lookahead`` seconds, so whoever knows everybody's next event knows up
to when nothing can come from them. Lanes that nobody tells anything before a vote is done run further, up to
what comes of others' events outside of lanes (``kernel.py``). What a worker tells in a window shortens it,
for an answer may come.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address

from ..commands import COMMAND_S, SEES_DEATH_S, Told
from .packets import Delivery, Outbox, Packet, decode, decoded, encode

if TYPE_CHECKING:
    from ..emulation import Emulation
    from ..process import Process
    from .split import Split
    from .wire import Wire


class Window(NamedTuple):
    """What ``Kernel.run`` takes."""

    until: float
    leaves_until: float
    elsewhere: float


class Windows:
    """One worker's side. ``stop``: when every run ends; ``over``: when this one does, as far as is known."""

    def __init__(self, wire: Wire, split: Split) -> None:
        self._wire, self._owners = wire, split.owners
        self.positions = split.positions[wire.rank]
        self.is_hub = wire.rank == 0
        self._split = split
        self._others = [rank for rank in range(wire.workers) if rank != wire.rank]
        self._out = {rank: Outbox() for rank in self._others}
        self.windows = 0
        self.over = math.inf

    def begin(self, job: Emulation) -> None:
        """The job of this worker."""
        self._job = job
        self._lookahead = self._split.lookahead(job.network, job.config.fan_out)

    # -- what is told ------------------------------------------------------------------------------------

    def tell(self, process: Process, to: Address, message: m.Message, arrival: float, ordered: bool) -> None:
        """A rank tells another of its replica, which is run elsewhere."""
        rank = self._owners[to[1]]
        out = self._out[rank]
        index = out.message(message)
        out.deliveries.append(Delivery(arrival, process.life, process.address[1], to[1], index, ordered))
        self._told(out, arrival)

    def command(self, command: Told, now: float) -> None:
        """The hub tells the hosts of all others."""
        for out in self._out.values():
            out.told.append((now + COMMAND_S, command))
            self._told(out, now + COMMAND_S)

    def report(self, report: Told, now: float) -> None:
        """A host tells the hub, which is elsewhere."""
        out = self._out[0]
        out.told.append((now + SEES_DEATH_S, report))
        self._told(out, now + SEES_DEATH_S)

    def _told(self, out: Outbox, arrival: float) -> None:
        out.soonest = min(out.soonest, arrival)
        self._job.kernel.end_by(arrival + self._lookahead)

    # -- the end of a window -------------------------------------------------------------------------------

    def next(self, stop: float) -> Window | None:
        """The next window; None when nobody has anything to do before ``stop`` or the end of the run."""
        packets = self._exchange()
        hub = packets.get(0)
        self.over = self._job.hub.over if self._job.hub is not None else self.over
        if hub is not None:
            self.over = hub.over
        stop = min(stop, self.over)
        outside, lanes = {}, {}
        for rank, packet in packets.items():
            told = min(other.soonest[rank] for other in packets.values())
            outside[rank] = min(packet.outside, told, self._sent[rank])
            lanes[rank] = packet.lanes
        kernel = self._job.kernel
        first = min(kernel.next_time, *outside.values(), *lanes.values())
        if first >= stop:
            return None
        theirs = min(min(outside.values()), min(lanes.values()))
        until = min(stop, theirs + self._lookahead)
        ahead = min(stop, min(outside.values()) + self._lookahead, *(p.tie for p in packets.values()))
        if self._careful or any(packet.careful for packet in packets.values()):
            ahead = until
        return Window(until, ahead, min(lanes.values()))

    def _exchange(self) -> dict[int, Packet]:
        """Tell the others how far this worker is, and take in what they tell."""
        job = self._job
        self._careful = job.careful() != frozenset()
        soonest = [self._out[rank].soonest if rank in self._out else math.inf for rank in self._ranks]
        self._sent = dict(enumerate(soonest))
        packets = {}
        for rank, out in self._out.items():
            packets[rank] = encode(self._packet(out, soonest))
            self._out[rank] = Outbox()
        found = {rank: decode(raw) for rank, raw in self._wire.exchange(packets).items()}
        self.windows += 1
        for rank in sorted(found):
            self._take_in(found[rank])
        return found

    @property
    def _ranks(self) -> range:
        return range(self._wire.workers)

    def _packet(self, out: Outbox, soonest: list[float]) -> Packet:
        job, kernel = self._job, self._job.kernel
        over, tie = (math.inf, math.inf) if job.hub is None else (job.hub.over, job.tie())
        standing = (kernel.next_outside, kernel.next_in_lanes, soonest, self._careful, tie, over)
        return Packet(*standing, out.deliveries, out.messages, out.told)

    def _take_in(self, packet: Packet) -> None:
        job = self._job
        messages = [decoded(raw) for raw in packet.messages]
        for told in packet.deliveries:
            team = job.hosts.teams.get(told.life)
            if team is None:  # its processes are gone; but the others count on an event at that time
                job.kernel.at(told.time, _nothing, None)
            else:
                _deliver(team[told.to], told, messages[told.message])
        for time, word in packet.told:
            job.kernel.at(time, job.hear, word)


def _nothing(_: object, now: float) -> None:
    """Nobody is there to hear it."""


def _deliver(process: Process, told: Delivery, message: m.Message) -> None:
    """As ``Process.tell_mate`` does it for a rank of the same worker."""
    source, kernel = (told.life[0], told.source), process.job.kernel
    event = e.Received(source, message)
    if told.ordered:
        kernel.in_order(told.time, source, process.handler, event)
        return
    if type(message) is m.Seal:
        process.lane.voting = True
    kernel.at(told.time, process.handler, event)
