"""Whom a fault hits: the ranks and replicas, read off its fields whatever its kind."""

from __future__ import annotations

from .shape import JobShape, Rank
from .vocabulary import Fault


def replica_of(fault: Fault) -> int | None:
    """The one replica that a fault hits first, or None for one of the store, of a building, or of the network
    between replicas."""
    for name in ("rank", "host", "rack"):
        pair = getattr(fault, name, None)
        if pair is not None:
            return int(pair[0])
    link = getattr(fault, "link", None)
    if link is not None:
        return int(link[0][0])
    return getattr(fault, "replica", None)


def replicas_of(fault: Fault, shape: JobShape) -> frozenset[int]:
    """Every replica some rank of which a fault hits."""
    return frozenset(replica for replica, _ in ranks_of(fault, shape))


def ranks_of(fault: Fault, shape: JobShape) -> tuple[Rank, ...]:
    """Every rank that a fault hits: one, two ends of a link, those of a place, or none."""
    rank: Rank | None = getattr(fault, "rank", None)
    if rank is not None:
        return (rank,)
    link = getattr(fault, "link", None)
    if link is not None:
        return (link[0], link[1])
    for name, ranks in (
        ("host", shape.ranks_of_host),
        ("rack", shape.ranks_of_rack),
        ("replica", shape.ranks_of_replica),
    ):
        place = getattr(fault, name, None)
        if place is not None:
            return ranks(place)
    building = getattr(fault, "building", None)
    if building is None:
        return ()
    replicas = shape.replicas_of_building(building)
    return tuple(rank for replica in replicas for rank in shape.ranks_of_replica(replica))
