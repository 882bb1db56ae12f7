"""Jobs that end amid deaths, restarts and lost answers, in random order: all that can end well do."""

from __future__ import annotations

import random

import pytest

from faultinject.explore.nodes import BREAKDOWN_TIMERS
from faultinject.explore.world import World
from ftruntime.protocol.head import Status

from .builders import job

LIMIT = 6000  # things that happen after the last fault


class Ending(World):
    """A world that checks what a rank ends well with, and what follows on a final head."""

    def __init__(self, config, until):
        super().__init__(config)
        self.until = until
        self.final = None

    def _finish(self, at, step):
        head = self.register.head
        assert head.finished and self.devices[at].state == (head.end.step, head.end.lineage)
        super()._finish(at, step)

    def _publish(self):
        head = self.register.head
        if head is not None and self.final is not None:
            assert head.chain[-1] == self.final, "the job was over"
            assert head.status is Status.RUNNING
        if head is not None and head.finished:
            self.final = head.end
        super()._publish()


def strike(world, draw, replicas):
    """A fault of some replica; its launcher starts a dead one again, unless that went for good."""
    replica = draw.choice(replicas)
    if (replica, 0) in world.ranks:
        if draw.random() < 0.5:
            world.lost(replica, world.member(replica).incarnation if world.member(replica) else 0)
        world.crash(replica)
    elif world.requests.get(replica):
        world.lose_answer(replica)
    else:
        revive(world, replica)


def revive(world, replica):
    well = any(at[0] == replica for at, _ in world.over)
    left = any(r == replica and not restart for r, _, restart in world.exits)
    if (replica, 0) not in world.ranks and not well and not left:
        world.start(replica)


def happen(world, draw, timers):
    """Something that may happen next; time passes when nothing else is left."""
    ready = [a for a in world.actions() if a.kind != "timer"]
    if not ready or draw.random() < timers:
        ready += [a for a in world.actions() if a.kind == "timer" and a.name not in BREAKDOWN_TIMERS]
    if ready:
        world.do(draw.choice(ready))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_dies_near_the_end(seed):
    draw = random.Random(seed)
    replicas = list(range(draw.choice((2, 3))))
    every = draw.choice((0, 0, 2))
    config = job(len(replicas), ranks_per_replica=1, scalars=0, checkpoint_every=every)
    world = Ending(config, until=draw.choice((1, 2, 3)))
    for replica in replicas:
        world.start(replica)
    faults, strikes = draw.randint(0, 4), 0
    while strikes < faults:
        happen(world, draw, 0.01)
        if (
            world.head is not None and draw.random() < 0.02
        ):  # nobody founds a job that others may have founded
            strike(world, draw, replicas)
            strikes += 1
    for turn in range(LIMIT):
        if turn % 50 == 0 or not world.ranks:
            for replica in replicas:
                revive(world, replica)
        if not world.ranks:
            break
        happen(world, draw, 0.02)
    assert not world.ranks, f"{sorted(world.ranks)} never end; {world.head.plan}"
    assert world.final is not None and world.head.finished
    gone = {r for r, reason, restart in world.exits if not restart}
    assert {at[0] for at, _ in world.over} | gone == set(replicas)
