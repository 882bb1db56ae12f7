"""Where explorations start: jobs that have come so far without any fault of interest."""

from __future__ import annotations

from collections.abc import Callable

from ftruntime.protocol.ids import Replica
from ftruntime.protocol.plan import Kind

from .bounds import Bounds
from .world import Action, World

CALLS = ("request", "answer", "watch")
LIMIT = 10_000


def start_world(bounds: Bounds) -> World:
    """The world in which the exploration begins; nothing is under way but its round."""
    world = World(bounds.config())
    for replica in range(bounds.replicas):
        world.start(replica)
    _run(world, lambda: _trains(world, bounds.replicas))
    if bounds.start == "returning":
        _return(world, 1, bounds.replicas)
    return world


def _return(world: World, replica: Replica, replicas: int) -> None:
    """``replica`` dies in the round, the others learn of it, and it comes back as a catcher of the next."""
    life = world.member(replica)
    assert life is not None
    world.crash(replica)
    world.lost(replica, life.incarnation)
    _run(world, lambda: _trains(world, replicas - 1))
    world.start(replica)
    _run(world, lambda: _trains(world, replicas - 1) and _catches_up(world, replica))


def _trains(world: World, contributors: int) -> bool:
    head = world.head
    return head is not None and head.plan.kind is Kind.TRAIN and len(head.plan.contributors) == contributors


def _catches_up(world: World, replica: Replica) -> bool:
    head = world.head
    return head is not None and any(c.member.replica == replica for c in head.plan.catchers)


def _run(world: World, reached: Callable[[], bool]) -> None:
    """Let everything happen until ``reached``, then only what the leaders have to say to the store."""
    for _ in range(LIMIT):
        found = [a for a in world.actions() if a.kind != "timer"]
        if reached():
            found = [a for a in found if a.kind in CALLS]
        if not found:
            found = [] if reached() else _due(world)
        if not found:
            assert reached(), "the job does not come to where the exploration starts"
            return
        world.do(found[0])
    raise AssertionError("the job does not come to where the exploration starts")


def _due(world: World) -> list[Action]:
    return [a for a in world.actions() if a.kind == "timer" and a.name in ("round", "close")]
