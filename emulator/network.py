"""The network: where ranks stand, and when what one sends reaches the other.

Place. Replica r lies in building ``r mod buildings``, whole (FACTS.md); its ranks fill hosts, racks
and zones in order of position, after those of earlier replicas of the same building.

Time. Latency and bandwidth follow from the nearest thing that two ranks share: rack, zone, building,
or nothing but the region (FACTS.md: 1x/7x/15x/30x; 1:2.8 across zones, and again across buildings).
Between replicas a message occupies the sender's NIC, so one that is sent later arrives later: links
are FIFO. Inside a replica only the tree's short messages travel, on a network of their own: they
wait for nothing, and their size does not matter.

Everything is a function of what the sender sent and of the faults, so each worker can work it out
for its own ranks. Faults are in ``netfaults.py``; without one, a message costs no look at them.
"""

from __future__ import annotations

import math

from ftruntime.protocol.congestion import Tier
from ftruntime.protocol.ids import Address, Position, Replica

from .hardware import NetworkConfig
from .netfaults import Failure, LinkFault, LinkFaults

CONTROL_BYTES = 128  # any message that carries no chunk and no range
ROUNDED = 0.999  # of a latency: what is surely less, however sums of times are rounded
HOST = -1  # size of a message about a fetch


class Topology:
    """Who stands where. Pure arithmetic on addresses; nothing is stored for each rank."""

    def __init__(self, replicas: int, ranks_per_replica: int, config: NetworkConfig) -> None:
        self.replicas, self.ranks, self.config = replicas, ranks_per_replica, config
        self._rack = config.ranks_per_host * config.hosts_per_rack
        self._zone = self._rack * config.racks_per_zone

    def building(self, replica: Replica) -> int:
        return replica % self.config.buildings

    def slot(self, address: Address) -> int:
        """Number of a rank in its building; neighbours in number are neighbours in space."""
        replica, position = address
        return replica // self.config.buildings * self.ranks + position

    def tier(self, a: Address, b: Address) -> Tier:
        if self.building(a[0]) != self.building(b[0]):
            return Tier.REGION
        first, second = self.slot(a), self.slot(b)
        if first // self._rack == second // self._rack:
            return Tier.RACK
        return Tier.ZONE if first // self._zone == second // self._zone else Tier.BUILDING


class Network:
    """Says when a message arrives. Keeps one number for each rank: when its NIC is free again.

    faulty: whether any fault may matter now; all else is the fast path
    """

    def __init__(self, replicas: int, ranks_per_replica: int, config: NetworkConfig) -> None:
        config.check()
        self.topology = Topology(replicas, ranks_per_replica, config)
        self.faulty = False
        self._faults = LinkFaults(self.topology.building, config.reset_after_s)
        self._ranks = ranks_per_replica
        self._free = [0.0] * (replicas * ranks_per_replica)
        self._latency = [config.latency_s * factor for factor in config.latency_factors]
        byte = 8.0 / (config.nic_gbps * 1e9)
        over = config.oversubscription
        self._byte = [byte, byte, byte * over, byte * over * over]
        # Two replicas in different buildings are REGION at every position: one look settles it.
        self._far = [
            [self.topology.building(a) != self.topology.building(b) for b in range(replicas)]
            for a in range(replicas)
        ]

    @property
    def lookahead(self) -> float:
        """No message between ranks takes less than this many seconds."""
        return ROUNDED * self._latency[Tier.RACK]

    def nic(self, address: Address) -> tuple[int, list[float]]:
        """Where the time at which the NIC of ``address`` is free again is kept: (index, list)."""
        return address[0] * self._ranks + address[1], self._free

    def link(self, source: Address, target: Address) -> tuple[float, float]:
        """(latency in seconds, seconds a byte) of a link without faults."""
        tier = Tier.REGION if self._far[source[0]][target[0]] else self.topology.tier(source, target)
        return self._latency[tier], self._byte[tier]

    def arrival(self, source: Address, target: Address, size: int, now: float) -> float:
        """When ``size`` bytes sent at ``now`` reach ``target``. Times of one sender must not go back.

        Infinity: never; ``failure`` then says when and how the sender learns of it. A ``size`` of HOST goes
        over the network of the hosts, beside the NIC.
        """
        if self.faulty and self._faults.may_hit(source, now):
            return self._slow_arrival(source, target, size, now)
        replica, position = source
        if replica == target[0] or size == HOST:
            return now + self.link(source, target)[0]
        if self._far[replica][target[0]]:
            latency, byte = self._latency[3], self._byte[3]
        else:
            latency, byte = self.link(source, target)
        free = self._free
        nic = replica * self._ranks + position
        start = free[nic]
        start = (now if now > start else start) + size * byte
        free[nic] = start
        return start + latency

    def _slow_arrival(self, source: Address, target: Address, size: int, now: float) -> float:
        """As ``arrival``, past the faults. A message that fails occupies no NIC: nothing leaves it."""
        faults = self._faults
        begin = faults.begin(source, target, now)
        if begin == math.inf:
            return math.inf
        factor = faults.bandwidth(source, target, begin)
        latency, byte = self.link(source, target)
        departure = begin
        if source[0] != target[0] and size != HOST:
            nic = source[0] * self._ranks + source[1]
            # A held message waits in its connection, not in the NIC: other links go on meanwhile.
            self._free[nic] = max(now, self._free[nic]) + size * byte / factor
            departure = max(begin + size * byte / factor, self._free[nic])
        return faults.in_order(source, target, departure + latency)

    def forget_old(self, now: float) -> None:
        """Faults that are over, and all that they left, matter no more to what is sent from ``now`` on."""
        if self.faulty and self._faults.over(now):
            self._faults.clear()
            self.faulty = False

    def touched(self, source: Address, now: float) -> bool:
        """Whether a fault may matter to what ``source`` sends at ``now``."""
        return self.faulty and self._faults.may_hit(source, now)

    def touched_positions(self) -> frozenset[Position] | None:
        """Positions in whose lanes a fault may matter; None: all."""
        return self._faults.positions() if self.faulty else frozenset()

    # -- faults -----------------------------------------------------------------------------------

    def add(self, fault: LinkFault) -> None:
        """``fault`` takes effect at its ``start``. What was sent before it was added is not touched."""
        self._faults.add(fault)
        self.faulty = True

    def failure(self, source: Address, target: Address) -> Failure:
        """How the last message for which ``arrival`` said infinity fails."""
        return self._faults.failure(source, target)

    def connected(self, source: Address, target: Address, now: float) -> float:
        """When a fresh connection asked for at ``now`` is up: one round trip after the link lets
        messages through again both ways. Infinity: it is not, within ``reset_after_s``."""
        trip = 2.0 * self.link(source, target)[0]
        if not self.faulty:
            return now + trip
        ready = self._faults.open_both(source, target, now)
        return ready + trip
