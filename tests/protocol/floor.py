"""Ranks on a floor: members without leaders, FIFO links, and a data plane that moves nothing but numbers."""

from __future__ import annotations

from collections import deque

from ftruntime.protocol import messages as m
from ftruntime.protocol.effects import Post, PostTap, Send, SendRange
from ftruntime.protocol.member import HEARD, Member
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.task import task_of

from .builders import job, life, lives, train_plan


def hear(member, source, message, out):
    """A message from another rank."""
    HEARD[type(message)](member, source, message, 0.0, out)


class Floor:
    """The ranks of some replicas. ``log`` has the effects of each rank that are not talk; ``told`` what
    its leader was told. Links in ``held`` deliver nothing."""

    def __init__(self, config, replicas=(0,), positions=None, incarnation=1):
        self.config = config
        ranks = range(config.ranks_per_replica) if positions is None else positions
        self.ranks = {(r, p): Member(config, r, p) for r in replicas for p in ranks}
        self.links, self.held = {}, set()
        self.log = {at: [] for at in self.ranks}
        for at in self.ranks:
            self.send(at, m.Enlist(life(at[0], incarnation)), around=True)
        self.run()
        self.clear()

    # -- what happens --------------------------------------------------------------------------

    def act(self, at, act):
        """Let ``act(member, out)`` happen at a rank; what it says is on its way afterwards."""
        out = []
        act(self.ranks[at], out)
        for effect in out:
            self._carry_out(at, effect)
        return out

    def _carry_out(self, at, effect):
        member = self.ranks[at]
        if isinstance(effect, Send):
            self._post(at, effect.to, effect.message)
        elif isinstance(effect, Post) and effect.send:
            ring = member.shares[effect.round].ring
            chunk = m.Chunk(effect.round, member.me.incarnation, effect.give, effect.push)
            self._post(at, (ring.right.replica, at[1]), chunk)
        elif isinstance(effect, PostTap):
            self._post(at, effect.to, m.Tap(effect.round, member.me.incarnation, effect.index))
        elif isinstance(effect, SendRange):
            me = member.me
            self._post(at, effect.to, m.RangeData(effect.lineage, effect.index, me.replica, me.incarnation))
        self.log[at].append(effect)

    def _post(self, source, to, message):
        self.links.setdefault((source, to), deque()).append(message)

    def send(self, at, message, source=None, around=False):
        """Give a rank a message: from its leader or parent, or from ``source``. ``around``: not relayed."""
        parent = (at[0], 0 if at[1] == 0 else (at[1] - 1) // self.config.fan_out)

        def give(member, out):
            hear(member, source or parent, message, out)
            if around:
                out[:] = [e for e in out if not (isinstance(e, Send) and e.message is message)]

        return self.act(at, give)

    def begin(self, plan, replica=0):
        """The plan comes down the tree of ``replica``."""
        task = task_of(plan, self.ranks[replica, 0].me)
        self.send((replica, 0), m.Begin(plan, task))

    def order(self, message, replica=0):
        self.send((replica, 0), message)

    def run(self, lose=lambda source, to, message: False):
        """Deliver everything that is on its way, except on links that are held and what ``lose`` takes."""
        while True:
            ready = [link for link, queue in self.links.items() if queue and link not in self.held]
            ready = [link for link in ready if link[1] in self.ranks]
            if not ready:
                return
            for source, to in ready:
                message = self.links[source, to].popleft()
                if lose(source, to, message):
                    continue
                self.act(to, lambda member, out, s=source, x=message: hear(member, s, x, out))

    def buckets(self, round, *ats):
        """Forward and backward are done at ``ats``, or everywhere."""
        for at in ats or self.ranks:
            for bucket in range(len(self.config.ftar.buckets)):
                self.act(at, lambda member, out, b=bucket: member.bucket_ready(round, b, 0.0, out))
        self.run()

    def measure(self, round, *ats, scalars=(1.0,)):
        for at in ats or self.ranks:
            self.act(at, lambda member, out: member.measured(round, scalars, out))
        self.run()

    def applied(self, round, *ats):
        for at in ats or self.ranks:
            self.act(at, lambda member, out: member.applied(round, out))
        self.run()

    # -- what can be seen ----------------------------------------------------------------------

    def done(self, kind, at=(0, 0)):
        """The effects of ``kind`` at a rank."""
        return [e for e in self.log[at] if isinstance(e, kind)]

    def waiting(self, kind):
        """Messages of ``kind`` that are on their way."""
        return [x for queue in self.links.values() for x in queue if isinstance(x, kind)]

    def told(self, replica=0):
        """What the leader of ``replica`` has been told since it was last asked."""
        up = self.ranks[replica, 0].up
        said, up[:] = list(up), []
        return said

    def clear(self):
        for effects in self.log.values():
            effects.clear()
        for at, member in self.ranks.items():
            if at[1] == 0:
                member.up.clear()


ALONE = job(ranks_per_replica=3)  # one contributor: its own gradient is the sum, and no chunk is sent
PAIR = job(ranks_per_replica=1)
A, B, C = (0, 0), (1, 0), (2, 0)
APPLY, DROP = m.Verdict.APPLY, m.Verdict.DROP


def alone(step=0, floor=None, **changes):
    """Replica 0 with three ranks, the only contributor of the round on ``step``."""
    floor = floor or Floor(ALONE)
    floor.begin(train_plan(ALONE, step, lives(0), **changes))
    floor.run()
    return floor


def pair(config=PAIR, catchers=(), replicas=(0, 1)):
    """Replicas 0 and 1 with one rank each, both contributors."""
    floor = Floor(config, replicas)
    plan = train_plan(config, 0, lives(0, 1), catchers)
    for replica in replicas:
        floor.begin(plan, replica)
    floor.run()
    return floor


def state(floor, at=A, round=2):
    share = floor.ranks[at].shares.get(round)
    return None if share is None else share.state


def outcome(floor, verdict, round=2, order=1, replica=0):
    floor.order(m.Outcome(order, round, verdict, (3.0,)), replica)
    floor.run()


def lose(floor, at=A, peer=1, incarnation=1):
    floor.act(at, lambda member, out: member.peer_lost(peer, incarnation, "reset", 0.0, out))
    floor.run()


def ready_to_apply():
    floor = alone()
    floor.buckets(2)
    floor.measure(2)
    floor.told()
    outcome(floor, APPLY, order=5)
    return floor


LEARNER = (Catcher(life(2), None, (), life(0)),)


def tapped():
    return pair(catchers=LEARNER, replicas=(0, 1, 2))
