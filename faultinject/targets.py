"""Whom a fault hits: the ranks and the replica, read off its fields whatever its kind."""

from __future__ import annotations

from .shape import JobShape, Rank
from .vocabulary import Fault


def replica_of(fault: Fault) -> int | None:
    """The replica that a fault hits, or None for one of the store or of the network between replicas."""
    for name in ("rank", "host"):
        pair = getattr(fault, name, None)
        if pair is not None:
            return int(pair[0])
    return getattr(fault, "replica", None)


def ranks_of(fault: Fault, shape: JobShape) -> tuple[Rank, ...]:
    """Every rank that a fault hits: one, those of a host, those of a replica, or none."""
    rank: Rank | None = getattr(fault, "rank", None)
    if rank is not None:
        return (rank,)
    host = getattr(fault, "host", None)
    if host is not None:
        return shape.ranks_of_host(host)
    replica = getattr(fault, "replica", None)
    if replica is None:
        return ()
    return tuple((replica, position) for position in range(shape.ranks_per_replica))
