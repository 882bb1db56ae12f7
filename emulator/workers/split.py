"""Which worker runs which positions in virtual time.

A worker has the same positions of all replicas, so that rings, taps and fetches stay inside it; what crosses
is what ranks of one replica tell each other in its tree. Whole subtrees go to one worker, so that few edges
of the tree are cut; position 0, with the leaders, is worker 0's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ids import Position
from ftruntime.protocol.tree import children, parent

from ..network import ROUNDED, Network


class Split(NamedTuple):
    """``owners``: worker by position. ``positions``: those of each worker, in ascending order."""

    owners: list[int]
    positions: list[tuple[Position, ...]]

    def distances(self, network: Network, fan_out: int) -> list[float]:
        """For each position: seconds before anything that happens to its ranks can be felt by another worker.
        What ranks of a replica tell each other goes along the edges of its tree."""
        ranks = len(self.owners)
        found = [math.inf] * ranks
        edges: list[list[tuple[Position, float]]] = [[] for _ in range(ranks)]
        for position in range(1, ranks):
            above = parent(position, fan_out)
            assert above is not None
            latency = _latency(network, position, above)
            if self.owners[position] == self.owners[above]:
                edges[position].append((above, latency))
                edges[above].append((position, latency))
            else:
                found[position] = min(found[position], latency)
                found[above] = min(found[above], latency)
        waiting = [(distance, position) for position, distance in enumerate(found) if distance < math.inf]
        heapq.heapify(waiting)
        while waiting:
            distance, position = heapq.heappop(waiting)
            for other, latency in edges[position]:
                if distance + latency < found[other]:
                    found[other] = distance + latency
                    heapq.heappush(waiting, (distance + latency, other))
        return found


def _latency(network: Network, a: Position, b: Position) -> float:
    """The least over all replicas; those of one building stand as others do in theirs."""
    topology = network.topology
    firsts = range(0, topology.replicas, topology.config.buildings)
    return ROUNDED * min(network.link((replica, a), (replica, b))[0] for replica in firsts)


def split(ranks: int, fan_out: int, workers: int) -> Split:
    """Positions of ``ranks`` over ``workers``, about equally many each. Raises ConfigError."""
    if not 1 <= workers <= ranks:
        raise ConfigError(
            f"workers is {workers}: it must be 1 to {ranks}, for each runs some of the {ranks} positions"
        )
    owners = [0] * ranks
    if workers > 1:
        for worker, position in _dealt(ranks, fan_out, workers):
            for below in _subtree(position, ranks, fan_out):
                owners[below] = worker
    return Split(owners, [tuple(p for p in range(ranks) if owners[p] == w) for w in range(workers)])


def _dealt(ranks: int, fan_out: int, workers: int) -> Iterator[tuple[int, Position]]:
    """(worker, top of a subtree) for all positions but 0, and what lies above the tops, which worker 0 has.

    Neighbours in number are neighbours in the network: each worker gets a stretch of the tops.
    """
    tops = list(children(0, ranks, fan_out))
    while len(tops) < workers - 1:  # a narrow tree: its next level
        tops = [below for top in tops for below in children(top, ranks, fan_out)] or list(range(1, ranks))
    sizes = [sum(1 for _ in _subtree(top, ranks, fan_out)) for top in tops]
    before, whole = ranks - sum(sizes), ranks
    for left, (top, size) in zip(range(len(tops) - 1, -1, -1), zip(tops, sizes, strict=True), strict=True):
        worker = min(workers - 1, (before + size // 2) * workers // whole)
        yield max(worker, workers - 1 - left), top  # every worker gets one
        before += size


def _subtree(top: Position, ranks: int, fan_out: int) -> Iterator[Position]:
    level = range(top, top + 1)
    while level:
        yield from level
        last = children(level[-1], ranks, fan_out)
        level = range(children(level[0], ranks, fan_out).start, last.stop)
