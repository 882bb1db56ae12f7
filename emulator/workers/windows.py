"""Windows of virtual time: how far each worker may run before it must hear of the others.

No worker touches another sooner than ``lookahead`` seconds, so whoever knows everybody's next event knows up
to when nothing can come from them. Lanes that nobody tells anything before a vote is done run further, up to
what comes of others' events outside of lanes (``kernel.py``). What a worker tells in a window shortens it,
for an answer may come.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address

from ..commands import COMMAND_S, SEES_DEATH_S, Told
from .packets import Delivery, Outbox, Packet, Standing, decode, decoded, encode

if TYPE_CHECKING:
    from ..emulation import Emulation
    from ..kernel import Kernel
    from ..process import Process
    from .split import Split
    from .wire import Wire


HEAVY = 2 * 2_000  # entries of a list of events that take much longer than an exchange


class Window(NamedTuple):
    """What ``Kernel.run`` takes."""

    until: float
    leaves_until: float
    elsewhere: float


class Windows:
    """One worker's side. ``over``: when the run is over, as far as is known; ``windows``: how many there
    were."""

    def __init__(self, wire: Wire, split: Split) -> None:
        self._wire, self._owners = wire, split.owners
        self.positions = split.positions[wire.rank]
        self.is_hub = wire.rank == 0
        self._split = split
        self._out = {rank: Outbox() for rank in wire.others}
        self.windows = 0
        self.over = math.inf

    def begin(self, job: Emulation) -> None:
        """The job of this worker."""
        self._job = job
        self._distance = self._split.distances(job.network, job.config.fan_out)
        self._lookahead = min(self._distance)
        job.kernel.heavy = HEAVY
        self._felt = Felt(job.kernel, self._distance)
        leaves = [p for p in self.positions if p >= job.kernel.inner_lanes]
        self._from_leaves = min((self._distance[p] for p in leaves), default=math.inf)

    # -- what is told ------------------------------------------------------------------------------------

    def tell(self, process: Process, to: Address, message: m.Message, arrival: float, ordered: bool) -> None:
        """A rank tells another of its replica, which is run elsewhere."""
        rank = self._owners[to[1]]
        out = self._out[rank]
        index = out.message(message)
        out.deliveries.append(Delivery(arrival, process.life, process.address[1], to[1], index, ordered))
        self._told(out, arrival, self._distance[to[1]])

    def command(self, command: Told, now: float) -> None:
        """The hub tells the hosts of all others."""
        for out in self._out.values():
            out.told.append((now + COMMAND_S, command))
            self._told(out, now + COMMAND_S, self._lookahead)

    def report(self, report: Told, now: float) -> None:
        """A host tells the hub, which is elsewhere."""
        out = self._out[0]
        out.told.append((now + SEES_DEATH_S, report))
        self._told(out, now + SEES_DEATH_S, self._lookahead)

    def _told(self, out: Outbox, arrival: float, distance: float) -> None:
        """Something is heard at ``arrival``, and an answer can be here ``distance`` later."""
        out.first, out.felt = min(out.first, arrival), min(out.felt, arrival + distance)
        self._job.kernel.end_by(arrival + distance)

    # -- the end of a window -------------------------------------------------------------------------------

    def next(self, stop: float) -> Window | None:
        """The next window; None when nobody has anything to do before ``stop`` or the end of the run."""
        packets = self._exchange()
        self.over = packets[0].over
        stop = min(stop, self.over)
        of_others = [self._standing(rank, packets) for rank in self._wire.others]
        if min(self._job.kernel.next_time, *(other.next for other in of_others)) >= stop:
            return None
        felt = min(other.felt for other in of_others)
        until = min(stop, felt, *(other.voted for other in of_others))
        ahead = min(stop, felt, *(packet.tie for packet in packets.values()))
        if any(packet.careful for packet in packets.values()):
            ahead = until
        return Window(until, ahead, min(other.lanes for other in of_others))

    def _standing(self, rank: int, packets: dict[int, Packet]) -> Standing:
        """How far worker ``rank`` is, with what all have told it now."""
        own = packets[rank].standing
        told = [packet.told_of[rank] for packet in packets.values()]
        first, felt = min(t[0] for t in told), min(t[1] for t in told)
        return Standing(min(own.next, first), min(own.felt, felt), own.lanes, own.voted)

    def _exchange(self) -> dict[int, Packet]:
        """Tell the others how far this worker is, and take in what they tell. By worker, this one too."""
        job, nobody = self._job, (math.inf, math.inf)
        told_of = [nobody] * self._wire.workers
        for rank, out in self._out.items():
            told_of[rank] = (out.first, out.felt)
        careful = job.careful() != frozenset()
        over, tie = (math.inf, math.inf) if job.hub is None else (job.hub.over, job.tie())
        common = (self._own_standing(), told_of, careful, tie, over)
        raw = {}
        for rank, out in self._out.items():
            raw[rank] = encode(Packet(*common, out.deliveries, out.messages, out.told))
            self._out[rank] = Outbox()
        found = {rank: decode(packet) for rank, packet in self._wire.exchange(raw).items()}
        self.windows += 1
        for rank in sorted(found):
            self._take_in(found[rank])
        found[self._wire.rank] = Packet(*common)
        return found

    def _own_standing(self) -> Standing:
        kernel = self._job.kernel
        leaves, inner = kernel.next_in_lanes
        voted = min(leaves + self._from_leaves, inner + self._lookahead)
        return Standing(kernel.next_time, self._felt.soonest(), min(leaves, inner), voted)

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


class Felt:
    """Before when no event that is due here outside of lanes can be felt by another worker.

    distances: seconds that this takes from each position; others, of the hub say, may be felt at once
    """

    def __init__(self, kernel: Kernel, distances: list[float]) -> None:
        self._kernel, self._distances = kernel, distances
        self._least = min(distances)
        self._known: dict[float, tuple[int, float]] = {}  # of each time: events looked at, least distance

    def soonest(self) -> float:
        found, known = math.inf, {}
        for time, due, last in self._kernel.coming():
            if time + self._least >= found:
                break
            count, least = self._known.get(time, (0, math.inf))
            if count > len(due):  # others than were looked at
                count, least = 0, math.inf
            if least > self._least:
                least = self._closest(due[count::2], least)
            known[time] = (len(due), least)
            found = min(found, time + self._closest(last, least))
        self._known = known
        return found

    def _closest(self, handlers: list[Any], least: float) -> float:
        distances = self._distances
        for handler in handlers:
            address = getattr(getattr(handler, "__self__", None), "address", None)
            if address is None:
                return self._least
            if distances[address[1]] < least:
                least = distances[address[1]]
        return least


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
