"""Faults of links: what the network does when it does not work.

Connections are reliable, as RDMA queue pairs and TCP are. A message into a link that is down or
partitioned is held and sent again until the fault is over, and then arrives. If that would take longer
than ``reset_after``, the connection is reset: the message, and all later ones until the reset, never
arrive, and the sender learns ``PeerLost`` at the reset. What is sent after the reset goes over a fresh
connection. A ``lossy`` link breaks the connection at a message instead: the sender learns of a
*transient* failure after ``TRANSIENT_AFTER`` and what it sends until then is lost.
What a link loses now and then is sent again, later each time, and breaks the connection after ``TRIES``;
whatever comes late holds up what was sent after it on the same link, and nothing else.

A fault has a start and an end, and is looked at when a message is sent; so add a fault no later than
it starts. Which messages a lossy link breaks is a hash of (seed, link, number of the message on it).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import NamedTuple

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ids import Address, Position, Replica

from .mixing import MASK, mix

TRANSIENT_AFTER = 1e-3  # seconds of hardware retries before a completion says "retry exceeded"
RESENT_AFTER_S, TRIES = 4e-3, 7  # of a lost message: the first time-out, doubled each time; how many tries

Link = tuple[Address, Address]


class LinkFaultKind(enum.StrEnum):
    DOWN = "down"  # nothing passes; a partition when the groups are large. One way: add it twice
    LOSSY = "lossy"  # ``amount`` of the messages (0..1) break their connection
    BANDWIDTH = "bandwidth"  # bandwidth is multiplied by ``amount`` (1e-6..1)
    LOSS = "loss"  # ``amount`` of the messages (0..1) are lost, and sent again
    DELAY = "delay"  # every message takes ``amount`` seconds longer
    JITTER = "jitter"  # every message takes up to ``amount`` seconds longer
    DOUBLE = "double"  # ``amount`` of the messages (0..1) arrive twice


class Group(NamedTuple):
    """A set of ranks: all that match every field; an empty field matches all."""

    replicas: frozenset[Replica] = frozenset()
    buildings: frozenset[int] = frozenset()
    positions: frozenset[int] = frozenset()


EVERYONE = Group()


class LinkFault(NamedTuple):
    """From ``start`` until ``end`` (seconds; infinity: for ever), links from ``source`` to ``target``."""

    kind: LinkFaultKind
    start: float
    end: float
    source: Group = EVERYONE
    target: Group = EVERYONE
    amount: float = 0.0
    seed: int = 0

    def check(self) -> None:
        """Raises ConfigError naming the value that cannot be."""
        if not 0.0 <= self.start < self.end:
            raise ConfigError(
                f"a {self.kind} fault from {self.start} s to {self.end} s must end after it starts"
            )
        low, high = _AMOUNTS[self.kind]
        if not low <= self.amount <= high:
            raise ConfigError(
                f"a {self.kind} fault of amount {self.amount} must lie within {low:g}..{high:g}"
            )


_AMOUNTS = {
    LinkFaultKind.DOWN: (0.0, 0.0),
    LinkFaultKind.LOSSY: (0.0, 1.0),
    LinkFaultKind.BANDWIDTH: (1e-6, 1.0),
    LinkFaultKind.LOSS: (0.0, 1.0),
    LinkFaultKind.DELAY: (0.0, math.inf),
    LinkFaultKind.JITTER: (0.0, math.inf),
    LinkFaultKind.DOUBLE: (0.0, 1.0),
}


class Failure(NamedTuple):
    """``time`` at which the sender learns; ``lost``: PeerLost, else Transient."""

    time: float
    lost: bool


def _lost_times(share: float, draw: int) -> float:
    """Seconds until a message gets through that is lost with a chance of ``share`` at each try."""
    late = 0.0
    for tried in range(TRIES):
        if draw >= share * (MASK + 1):
            return late
        late += RESENT_AFTER_S * (1 << tried)
        draw = mix(draw)
    return math.inf


_LATE: dict[LinkFaultKind, Callable[[float, int], float]] = {
    LinkFaultKind.LOSS: _lost_times,
    LinkFaultKind.DELAY: lambda seconds, draw: seconds,
    LinkFaultKind.JITTER: lambda seconds, draw: seconds * (draw / (MASK + 1)),
}


def _positions(groups: list[Group]) -> frozenset[Position] | None:
    """Positions in any of ``groups``; None: all."""
    if not all(group.positions for group in groups):
        return None
    return frozenset(position for group in groups for position in group.positions)


class LinkFaults:
    """All faults of links, and what they have left behind: broken connections and late arrivals."""

    def __init__(self, building: Callable[[Replica], int], reset_after: float) -> None:
        self._building = building
        self._reset_after = reset_after
        self._faults: list[LinkFault] = []
        self._broken: dict[Link, Failure] = {}
        self._latest: dict[Link, float] = {}  # last arrival on a link while any fault was about
        self._sent: dict[Link, int] = {}  # messages on a lossy link
        self._drawn: dict[tuple[LinkFaultKind, float, Link], int] = {}  # messages for which was drawn
        self._until: dict[Address, float] = {}  # when no fault, and nothing it left, matters to a sender
        self._quiet = 0.0  # no fault and nothing it left behind matters from here on

    def add(self, fault: LinkFault) -> None:
        fault.check()
        self._faults.append(fault)
        for address, until in self._until.items():
            if self._within(fault.source, address):
                self._until[address] = max(until, fault.end)
        self._quiet = max(self._quiet, fault.end)

    def over(self, now: float) -> bool:
        return now >= self._quiet

    def clear(self) -> None:
        """Forget everything; only when it is ``over``."""
        for left in (self._faults, self._broken, self._latest, self._sent, self._drawn, self._until):
            left.clear()

    def may_hit(self, address: Address, now: float) -> bool:
        """Whether any fault, or what it has left, matters to a message that ``address`` sends at ``now``. A
        function of the faults and of what this address has sent itself."""
        until = self._until.get(address)
        if until is None:
            ends = [fault.end for fault in self._faults if self._within(fault.source, address)]
            until = self._until[address] = max(ends, default=0.0)
        return now < until

    def positions(self) -> frozenset[Position] | None:
        """Positions whose messages any fault is about; None: all."""
        return _positions([fault.source for fault in self._faults])

    def _sends(self, group: Group, replica: Replica) -> bool:
        return (not group.replicas or replica in group.replicas) and (
            not group.buildings or self._building(replica) in group.buildings
        )

    def begin(self, source: Address, target: Address, now: float) -> float:
        """When a message sent at ``now`` really sets out; infinity: never, and ``failure`` is known."""
        link = (source, target)
        broken = self._broken.get(link)
        if broken is not None and now < broken.time:
            return math.inf
        opened = self._opens(source, target, now)
        late = self._late(link, opened)
        given_up = late == math.inf
        if opened + (0.0 if given_up else late) > now + self._reset_after:
            return self._break(link, Failure(now + self._reset_after, True))
        if given_up or self._loses(link, opened):
            return self._break(link, Failure(opened + TRANSIENT_AFTER, False))
        return opened + late

    def _break(self, link: Link, failure: Failure) -> float:
        self._broken[link] = failure
        self._lasts(link[0], failure.time)
        return math.inf

    def _lasts(self, source: Address, time: float) -> None:
        """What a fault has left matters to ``source`` until ``time``."""
        self._quiet = max(self._quiet, time)
        self._until[source] = max(self._until.get(source, 0.0), time)

    def _opens(self, source: Address, target: Address, now: float) -> float:
        """The first time from ``now`` on at which no fault holds the link down."""
        time, moved = now, True
        while moved:
            moved = False
            for fault in self._faults:
                if fault.kind is LinkFaultKind.DOWN and self._hits(fault, source, target, time):
                    time, moved = fault.end, True
        return time

    def open_both(self, source: Address, target: Address, now: float) -> float:
        """The first time at which the link is open both ways; infinity if that is past the reset.
        The connection that broke, if any, is forgotten then."""
        there = self._opens(source, target, now)
        both = self._opens(target, source, there)
        if both > now + self._reset_after:
            return math.inf
        self._broken.pop((source, target), None)
        return both

    def _loses(self, link: Link, time: float) -> bool:
        for fault in self._faults:
            if fault.kind is LinkFaultKind.LOSSY and self._hits(fault, *link, time):
                number = self._sent[link] = self._sent.get(link, 0) + 1
                (a, b), (c, d) = link
                draw = mix(fault.seed ^ mix(a << 48 ^ b << 24 ^ mix(c << 48 ^ d << 24 ^ number)))
                if draw < fault.amount * (MASK + 1):
                    return True
        return False

    def _late(self, link: Link, time: float) -> float:
        """Seconds by which faults of the link hold up a message; infinity: it is given up."""
        late = 0.0
        for fault in self._faults:
            if fault.kind in _LATE and self._hits(fault, *link, time):
                late += _LATE[fault.kind](fault.amount, self._draw(fault, link))
        return late

    def _draw(self, fault: LinkFault, link: Link) -> int:
        """64 bits for a message, counted from the fault's onset. All positions draw alike, since a run that
        folds runs one for many."""
        key = (fault.kind, fault.start, link)
        number = self._drawn[key] = self._drawn.get(key, 0) + 1
        return mix(fault.seed ^ mix(link[0][0] << 48 ^ link[1][0] << 24 ^ number))

    def doubles(self, source: Address, target: Address, time: float) -> bool:
        """Whether what ``source`` sends to ``target`` at ``time`` arrives twice."""
        link, double = (source, target), LinkFaultKind.DOUBLE
        hits = [f for f in self._faults if f.kind is double and self._hits(f, source, target, time)]
        return any([self._draw(fault, link) < fault.amount * (MASK + 1) for fault in hits])

    def _hits(self, fault: LinkFault, source: Address, target: Address, time: float) -> bool:
        return (
            fault.start <= time < fault.end
            and self._within(fault.source, source)
            and self._within(fault.target, target)
        )

    def _within(self, group: Group, address: Address) -> bool:
        replica, position = address
        return self._sends(group, replica) and (not group.positions or position in group.positions)

    def bandwidth(self, source: Address, target: Address, time: float) -> float:
        """What the bandwidth of the link is multiplied by at ``time``."""
        factor = 1.0
        for fault in self._faults:
            if fault.kind is LinkFaultKind.BANDWIDTH and self._hits(fault, source, target, time):
                factor *= fault.amount
        return factor

    def in_order(self, source: Address, target: Address, arrival: float) -> float:
        """``arrival``, or as late as what was sent before it on this link: links are FIFO."""
        link = (source, target)
        arrival = max(arrival, self._latest.get(link, 0.0))
        self._latest[link] = arrival
        self._lasts(source, arrival)
        return arrival

    def failure(self, source: Address, target: Address) -> Failure:
        return self._broken[source, target]
