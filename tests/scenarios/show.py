"""What a scenario can look at: one line per replica, record, lease, stream or commit."""

from __future__ import annotations

from collections.abc import Callable

from ftruntime.protocol.head import Head
from ftruntime.protocol.leader import Leader

from .traced import TracedWorld


def leaders(world: TracedWorld) -> list[Leader]:
    """Leaders of the replicas that live."""
    return [rank.leader for _, rank in sorted(world.ranks.items()) if rank.leader is not None]


def _head(world: TracedWorld) -> Head:
    if world.head is None:
        raise ValueError("the store is empty")
    return world.head


def head(world: TracedWorld) -> list[str]:
    return [
        f"{world.words.plan(_head(world))} (end of the chain: {world.words.names[_head(world).end.lineage]})"
    ]


def holds(world: TracedWorld) -> list[str]:
    """What each replica holds, and what it is about."""
    lines = []
    for replica in range(world.config.replicas):
        rank = world.ranks.get((replica, 0))
        lines.append(f"{replica}: down" if rank is None or rank.leader is None else _life(world, rank.leader))
    return lines


def _life(world: TracedWorld, leader: Leader) -> str:
    names, way, run = world.words.names, leader.way, leader.run
    text = f"{leader.session.me}: {names.get(leader.held.lineage, 'the initial state')}"
    if run is not None:
        text += f", round {run.round} {run.state.name.lower()}"
    if way.target is not None:
        text += f", fetching {names[way.target.lineage]}" + (" (all here)" if way.staged else "")
    for round, entry in way.rounds.items():
        text += f", holding round {round} ({entry.holding.name.lower()})"
    states = {d.state for at, d in world.devices.items() if at[0] == leader.session.me.replica}
    if states != {(leader.held.step, leader.held.lineage)}:
        text += ", its ranks are moving"
    return text


def ledger(world: TracedWorld) -> list[str]:
    base = _head(world).plan.base
    return [f"{world.words.names[base.lineage]}: " + " ".join(str(cursor) for cursor in base.ledger)]


def records(world: TracedWorld) -> list[str]:
    return [world.words.record(record) for record in world.register.view().records]


def leases(world: TracedWorld) -> list[str]:
    return [" ".join(str(member) for member in sorted(world.register.leases)) or "none"]


def chain(world: TracedWorld) -> list[str]:
    return [
        f"{world.words.names[c.lineage]}: round {c.round} by "
        + (" ".join(map(str, c.contributors)) or "nobody")
        for c in _head(world).chain
    ]


def penalties(world: TracedWorld) -> list[str]:
    return [f"{p.member} stays out before round {p.until}" for p in _head(world).penalties] or ["none"]


def links(world: TracedWorld) -> list[str]:
    """What is under way between replicas."""
    return [
        f"{world.words.rank(a)}>{world.words.rank(b)}: "
        + " ".join(type(message).__name__ for message in queue)
        for (a, b), queue in sorted(world.links.items())
        if a[0] != b[0]
    ] or ["nothing"]


SHOWS: dict[str, Callable[[TracedWorld], list[str]]] = {
    "head": head,
    "holds": holds,
    "ledger": ledger,
    "records": records,
    "leases": leases,
    "chain": chain,
    "penalties": penalties,
    "links": links,
}
