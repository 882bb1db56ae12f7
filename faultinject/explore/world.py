"""A job as explicit state, without time: ranks, links, store, devices, and what may happen next.

Everything that is under way (a message, a request, an answer, a change to be watched, a device that
finishes, a timer) is an ``Action`` that may happen next, FIFO per link. A scenario script chooses by
hand, an exploration takes every order. The protocol is the real one; ``emulator`` runs the same code
under virtual time.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import Address, MemberId, Replica, Step
from ftruntime.protocol.plan import Target, lineage_root
from ftruntime.protocol.rank import Rank
from ftruntime.store import Register

from .world_device import WorldDevice

NOTES = 200  # what the protocol said of itself is kept only so far back


class Action(NamedTuple):
    """Something that may happen next. ``kind`` is one of the names below; ``at`` and ``to`` say where.

    message  from ``at`` to ``to``      request  of the leader ``at``, at the store
    answer   to the leader ``at``       watch    a change that the leader ``at`` is told
    device   the rank ``at`` is told what its device finished
    timer    ``name``, ``tag`` at the rank ``at``
    """

    kind: str
    at: Address
    to: Address = (-1, -1)
    name: str = ""
    tag: int = 0


class World:
    """``ranks`` of dead replicas are gone; ``notes`` is what the protocol said of itself, in order.

    links:      messages under way, per (from, to)
    requests, answers, watches:  between each leader and the store, in order
    timers:     per rank: (name, tag) that may fire; time does not exist, so any order is possible
    until:      the last step that processes are asked for; 0: none
    over:       (address, step) of processes that ended well, as the job is over
    exits:      (replica, reason, restart) of processes that ended by their own decision
    now:        seconds; stands still unless a script moves it, as some timers mean nothing before their time
    """

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.until: Step = 0
        self.over: tuple[tuple[Address, Step], ...] = ()
        self.register = Register()
        self.ranks: dict[Address, Rank] = {}
        self.devices: dict[Address, WorldDevice] = {}
        self.links: dict[tuple[Address, Address], tuple[m.Message, ...]] = {}
        self.requests: dict[Replica, tuple[tuple[int, s.Request], ...]] = {}
        self.answers: dict[Replica, tuple[tuple[int, s.Answer], ...]] = {}
        self.watches: dict[Replica, tuple[s.Change, ...]] = {}
        self.timers: dict[Address, tuple[tuple[str, int], ...]] = {}
        self.lives: dict[Replica, int] = {}
        self.exits: tuple[tuple[Replica, str, bool], ...] = ()
        self.notes: tuple[tuple[Address, f.Note], ...] = ()
        self.checkpoints: dict[str, Target] = {}
        self.now = 0.0

    def clone(self) -> World:
        """An independent copy; ranks and devices are copied when they are touched (``_own``)."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(other, name, dict(value))
        other.ranks = {at: rank.clone() for at, rank in self.ranks.items()}
        other.devices = {at: device.clone() for at, device in self.devices.items()}
        other.register = self.register.clone()
        return other

    @property
    def head(self) -> Head | None:
        return self.register.head

    # -- lives ---------------------------------------------------------------------------------

    def start(self, replica: Replica) -> None:
        """A launcher starts the processes of ``replica``."""
        life = self.lives.get(replica, 0)
        self.lives[replica] = life + 1
        self.requests[replica], self.answers[replica], self.watches[replica] = (), (), ()
        root = lineage_root(self.config.job, self.config.initial_digest)
        for position in range(self.config.ranks_per_replica):
            at = (replica, position)
            self.ranks[at] = Rank(self.config, replica, position, f"{replica}/{life}", life)
            self.devices[at] = WorldDevice(self.config, replica, (0, root))
            self.timers[at] = ()
        for position in range(self.config.ranks_per_replica):
            self.tell((replica, position), e.Started(self.until))

    def crash(self, replica: Replica, seen: bool = True) -> None:
        """All processes of ``replica`` are gone. ``seen``: its launcher expires the lease at once."""
        life = self.member(replica)
        for at in [a for a in self.ranks if a[0] == replica]:
            del self.ranks[at], self.devices[at], self.timers[at]
        for queue in (self.requests, self.answers, self.watches):
            queue.pop(replica, None)
        for link in [k for k in self.links if replica in (k[0][0], k[1][0])]:
            del self.links[link]
        if seen and life is not None:
            self.expire(life)

    def _finish(self, at: Address, step: Step) -> None:
        """A process ends well: what it has sent arrives, and what its replica asked of the store is done."""
        self.over = (*self.over, (at, step))
        del self.ranks[at], self.devices[at], self.timers[at]
        if at[1] == 0:
            for _, request in self.requests.pop(at[0], ()):
                self.late(request)
            for queue in (self.answers, self.watches):
                queue.pop(at[0], None)

    def member(self, replica: Replica) -> MemberId | None:
        """The incarnation under which the living processes of ``replica`` are registered."""
        rank = self.ranks.get((replica, 0))
        if rank is None or rank.leader is None or rank.leader.session.me.incarnation == 0:
            return None
        return rank.leader.session.me

    def expire(self, member: MemberId) -> None:
        """The lease of ``member`` ends."""
        self.register.expire(member)
        self._publish()

    def lost(self, replica: Replica, incarnation: int, reason: str = "connection reset") -> None:
        """Every living rank of equal position learns that ``replica`` is gone."""
        for at in [a for a in self.ranks if a[0] != replica]:
            self.tell(at, e.PeerLost(replica, incarnation, reason))

    # -- what may happen -------------------------------------------------------------------------

    def actions(self) -> list[Action]:
        """Everything that may happen next, timers last, in a fixed order."""
        found = [Action("message", a, b) for (a, b), queue in sorted(self.links.items()) if queue]
        for kind in ("request", "answer", "watch"):
            queues = getattr(self, kind + ("es" if kind == "watch" else "s"))
            found += [Action(kind, (r, 0)) for r, queue in sorted(queues.items()) if queue]
        found += [Action("device", at) for at, d in sorted(self.devices.items()) if d.pending]
        for at in sorted(self.timers):
            awaits = self.ranks[at].awaits
            timers = self.timers[at] = tuple(t for t in self.timers[at] if awaits(*t))
            found += [Action("timer", at, name=name, tag=tag) for name, tag in timers]
        return found

    def do(self, action: Action) -> None:
        """Let ``action`` happen."""
        at = action.at
        if action.kind == "message":
            self._deliver(at, action.to)
        elif action.kind == "request":
            self._serve(at[0])
        elif action.kind == "answer":
            (call, answer), *rest = self.answers[at[0]]
            self.answers[at[0]] = tuple(rest)
            self.tell(at, e.StoreAnswer(call, answer))
        elif action.kind == "watch":
            change, *others = self.watches[at[0]]
            self.watches[at[0]] = tuple(others)
            self.tell(at, e.Watched(change))
        elif action.kind == "device":
            device = self.devices[at]
            event, device.pending = device.pending[0], device.pending[1:]
            self.tell(at, event)
        else:
            self.fire(at, action.name, action.tag)

    def fire(self, at: Address, name: str, tag: int) -> None:
        """A timer fires."""
        self.timers[at] = tuple(t for t in self.timers[at] if t != (name, tag))
        self.tell(at, e.TimerFired(name, tag))

    def _deliver(self, source: Address, to: Address) -> None:
        message, *rest = self.links[source, to]
        self.links[source, to] = tuple(rest)
        if not rest:
            del self.links[source, to]
        if to not in self.ranks:
            return
        if isinstance(message, m.Chunk):
            self.devices[to].arrived(message.round, message.seq, message.data)
        self.tell(to, e.Received(source, message))

    def lose_answer(self, replica: Replica) -> None:
        """The store carries the next request of ``replica`` out, and the answer is lost."""
        self._serve(replica)
        self.answers[replica] = self.answers[replica][:-1]

    def _serve(self, replica: Replica) -> None:
        (call, request), *rest = self.requests[replica]
        self.requests[replica] = tuple(rest)
        answer = self.register.execute(request, self.now)
        self.answers[replica] = (*self.answers[replica], (call, answer))
        self._publish()

    def late(self, request: s.Request) -> None:
        """A request of a process that is gone arrives at the store; nobody hears the answer."""
        self.register.execute(request, self.now)
        self._publish()

    def _publish(self) -> None:
        for change in self.register.changes:
            for replica in self.watches:
                self.watches[replica] = (*self.watches[replica], change)
        self.register.changes.clear()

    # -- effects ---------------------------------------------------------------------------------

    def tell(self, at: Address, event: e.Event) -> None:
        """Give the rank ``at`` an event and carry out what it asks for."""
        for effect in self.ranks[at].step(event, self.now):
            if at not in self.ranks:
                return  # it ended itself half-way
            self._carry_out(at, effect, event)

    def _send(self, source: Address, to: Address, message: m.Message) -> None:
        self.links[source, to] = (*self.links.get((source, to), ()), message)

    def _carry_out(self, at: Address, effect: f.Effect, event: e.Event) -> None:
        device = self.devices[at]
        match effect:
            case f.Send():
                self._send(at, effect.to, effect.message)
            case f.Post():
                self._post(at, effect)
            case f.PostTap():
                life = self.ranks[at].member.me.incarnation
                data = device.tapped(effect.round, effect.index)
                self._send(at, effect.to, m.Tap(effect.round, life, effect.index, data))
            case f.StoreTap():
                assert isinstance(event, e.Received) and isinstance(event.message, m.Tap)
                device.store_tap(effect.round, event.message.data)
            case f.SetTimer():
                if (effect.name, effect.tag) not in self.timers[at]:
                    self.timers[at] = (*self.timers[at], (effect.name, effect.tag))
            case f.StoreCall():
                assert isinstance(effect.request, s.Request)
                self.requests[at[0]] = (*self.requests[at[0]], (effect.call, effect.request))
            case f.Exit():
                self.exits = (*self.exits, (at[0], effect.reason, effect.restart))
                self.crash(at[0])
            case f.Finish():
                self._finish(at, effect.step)
            case f.Note():
                self.notes = (*self.notes[-NOTES:], (at, effect))
            case _:
                self._compute(at, device, effect, event)

    def _post(self, at: Address, effect: f.Post) -> None:
        data = self.devices[at].post(effect)
        if effect.send:
            member = self.ranks[at].member
            ring = member.shares[effect.round].ring
            assert ring is not None
            chunk = m.Chunk(effect.round, member.me.incarnation, effect.give, effect.push, data)
            self._send(at, (ring.right.replica, at[1]), chunk)
            if ring.geometry.needs_completions:
                self.devices[at].pending += (e.Sent(effect.round, effect.give + 1),)

    def _compute(self, at: Address, device: WorldDevice, effect: f.Effect, event: e.Event) -> None:
        match effect:
            case f.Launch():
                device.launch(effect)
            case f.Hold():
                device.hold(effect)
            case f.Measure():
                device.pending += (e.Measured(effect.round, (1.0,) * self.config.scalars),)
            case f.Apply():
                device.apply(effect)
            case f.Drop() | f.Abort():
                device.drop(effect.round)
            case f.Freeze():
                device.freeze(effect)
            case f.Release():
                del device.frozen[effect.lineage]
            case f.InstallStaged():
                device.install(effect)
            case f.WarmUp():
                device.pending += (e.Warm(),)
            case f.Reconnect():
                device.pending += (e.Reconnected(effect.peer),)
            case _:
                self._catch_up(at, device, effect, event)

    def _catch_up(self, at: Address, device: WorldDevice, effect: f.Effect, event: e.Event) -> None:
        life = self.ranks[at].member.me
        match effect:
            case f.SendRange():
                state = device.frozen[effect.lineage]
                data = m.RangeData(effect.lineage, effect.index, life.replica, life.incarnation, True, state)
                self._send(at, effect.to, data)
            case f.Stage():
                assert isinstance(event, e.Received) and isinstance(event.message, m.RangeData)
                target = self.ranks[at].member.staging
                assert target is not None
                device.stage((target.step, effect.lineage), event.message.data)
            case f.Unstage():
                device.staged = None
            case f.Restore():
                device.staged = (effect.step, effect.lineage)
                ok = effect.name == "initial" or effect.name in self.checkpoints
                device.pending += (e.Restored(effect.lineage, ok, "" if ok else "no such checkpoint"),)
            case f.SaveShard():
                self.checkpoints[effect.name] = Target(effect.step, effect.lineage)
                device.pending += (e.Saved(effect.name, True),)
            case _:
                assert isinstance(effect, f.Connect), f"no way to carry out {effect}"

    # -- schedules ---------------------------------------------------------------------------------

    def settle(self, limit: int = 200_000) -> None:
        """Let everything happen that needs no timer, oldest link first, until nothing is under way."""
        for _ in range(limit):
            ready = [a for a in self.actions() if a.kind != "timer"]
            if not ready:
                return
            self.do(ready[0])
        raise AssertionError(f"the world does not come to rest in {limit} actions")
