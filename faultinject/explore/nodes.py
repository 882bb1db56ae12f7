"""What one rank does with one event: the real protocol and device, run once and remembered.

A rank's step depends on nothing but the rank (protocol, device, timers that still mean something) and the
event. So it is run in a world that holds this rank alone, and whatever it does there (messages,
requests, its end) is kept beside its next state. In all orders of a job's events the same few thousand
steps come up again and again.

Two things that only a counter of calls could tell apart are made equal (``Rank.simplify``):

* the numbers of store calls are names, compared for equality alone, so the next one is always one above those
  in use. An answer to a call that was given up is given number 0, which no call has;
* the answer to a ``Put`` or ``Renew`` that was carried out tells the leader nothing that it acts on, so it is
  not waited for (their repetition after a time-out is not explored: it writes the same record again).
"""

from __future__ import annotations

from typing import NamedTuple

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.head import Status
from ftruntime.protocol.ids import Address, MemberId, Round
from ftruntime.protocol.rank import Rank

from .keys import key
from .tables import Table
from .world import Action, World
from .world_device import WorldDevice

# Timers that mean nothing without a clock (they arm themselves anew), or that only repeat a read or a lease.
IDLE_TIMERS = frozenset({"chunk", "range", "renew", "poll", "store"})
UNAWAITED = frozenset({"put", "renew"})
BREAKDOWN_TIMERS = frozenset({"silent", "order"})

Event = tuple[object, ...]


class Node:
    """One rank with its device, simplified. Never modified once it is in the table.

    timers:    (name, tag) that may fire, in order, without those of ``IDLE_TIMERS``
    calls:     store calls that an answer may still come to
    promised:  the recovering round in which this replica has promised what it holds, or 0
    """

    __slots__ = ("at", "calls", "device", "promised", "rank", "timers")

    def __init__(
        self,
        at: Address,
        rank: Rank,
        device: WorldDevice,
        timers: tuple[tuple[str, int], ...],
        promised: Round,
    ) -> None:
        self.at, self.rank, self.device, self.promised = at, rank, device, promised
        awaits = rank.awaits
        self.timers = tuple(sorted({t for t in timers if t[0] not in IDLE_TIMERS and awaits(*t)}))
        self.calls = tuple(sorted(rank.simplify(UNAWAITED)))

    def key(self) -> bytes:
        return key((self.at, self.rank, self.device, self.timers, self.promised))

    @property
    def member(self) -> MemberId | None:
        """Under which name this replica is registered; only its leader knows."""
        leader = self.rank.leader
        return None if leader is None or leader.session.me.incarnation == 0 else leader.session.me


class Outcome(NamedTuple):
    """``node`` 0: the process ended itself. ``wrong``: what this step violates."""

    node: int
    sends: tuple[tuple[Address, int], ...]
    requests: tuple[tuple[int, int], ...]  # (call, number of the request)
    wrong: tuple[str, ...]
    ending: str = ""


class Nodes:
    """All nodes that were ever reached, and every step between them."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.table: Table[Node] = Table()
        self.pending: list[bool] = [False]  # per node: its device has something to tell
        self.calls: list[tuple[int, ...]] = [()]  # per node: its ``calls``
        self.messages: Table[m.Message] = Table()
        self.requests: Table[s.Request] = Table()
        self.answers: Table[s.Answer] = Table()
        self.changes: Table[s.Change] = Table()
        self._steps: dict[tuple[int, Event], Outcome] = {}
        self._started: dict[tuple[Address, int], Outcome] = {}

    @property
    def steps(self) -> int:
        """How often the protocol code ran."""
        return len(self._steps)

    def number(self, node: Node) -> int:
        number = self.table.number(node, node.key())
        if number == len(self.pending):
            self.pending.append(bool(node.device.pending))
            self.calls.append(node.calls)
        return number

    def step(self, number: int, event: Event) -> Outcome:
        """Let ``event`` happen at node ``number``. Kinds of events, with what follows the kind:

        message (source, message)   answer (call, answer)   watch (change,)   device ()
        timer (name, tag)           reset (replica, incarnation); things stand by their numbers
        """
        found = self._steps.get((number, event))
        if found is None:
            found = self._steps[number, event] = self._run(self.table[number], event)
        return found

    def start(self, at: Address, life: int) -> Outcome:
        """A launcher starts the process at ``at`` for the ``life``-th time (0: the first)."""
        found = self._started.get((at, life))
        if found is None:
            world = World(self.config)
            world.lives[at[0]] = life
            world.start(at[0])
            found = self._started[at, life] = self._harvest(world, at, None, 0)
        return found

    def _run(self, node: Node, event: Event) -> Outcome:
        world = World(self.config)
        at = node.at
        world.ranks, world.devices = {at: node.rank.clone()}, {at: node.device.clone()}
        world.timers = {at: node.timers}
        world.requests, world.answers, world.watches = {at[0]: ()}, {at[0]: ()}, {at[0]: ()}
        try:
            self._happen(world, at, event)
        except Exception as error:  # whatever the protocol raises here is what we are looking for
            return Outcome(0, (), (), (f"{type(error).__name__} at {at}: {error}",))
        return self._harvest(world, at, node, node.promised)

    def _happen(self, world: World, at: Address, event: Event) -> None:
        match event:
            case ("message", (int(r), int(p)), int(number)):
                world.links = {((r, p), at): (self.messages[number],)}
                world.do(Action("message", (r, p), at))
            case ("answer", int(call), int(number)):
                world.answers[at[0]] = ((call, self.answers[number]),)
                world.do(Action("answer", at))
            case ("watch", int(number)):
                world.watches[at[0]] = (self.changes[number],)
                world.do(Action("watch", at))
            case ("device",):
                world.do(Action("device", at))
            case ("timer", str(name), int(tag)):
                world.do(Action("timer", at, name=name, tag=tag))
            case ("reset", int(replica), int(incarnation)):
                world.tell(at, e.PeerLost(replica, incarnation, "connection reset"))
            case _:
                raise ValueError(f"no event {event}")

    def _harvest(self, world: World, at: Address, before: Node | None, promised: Round) -> Outcome:
        sends = tuple(
            (to, self.messages.number(message))
            for (a, to), q in world.links.items()
            if a == at
            for message in q
        )
        asked = world.requests.get(at[0], ()) if at[1] == 0 else ()
        if at not in world.ranks:
            return Outcome(0, sends, (), (), world.exits[-1][1])
        rank, device = world.ranks[at], world.devices[at]
        wrong = [f"device {at}: {text}" for text in device.wrong]
        if before is not None:
            wrong += _promise_broken(before, rank, device)
        if promised and _seen(rank) > promised:
            promised = 0
        requests = []
        for call, request in asked:
            if isinstance(request, s.Put):
                wrong += _dishonest(request, device, self.config.ranks_per_replica == 1)
                promises = _promises(request, rank)
                promised = promises or promised
                if promises and any(isinstance(p, e.Applied) for p in device.pending):
                    wrong.append(f"{at} promises in round {promises} while it {_at(device)}")
            waits = not isinstance(request, s.Put | s.Renew)
            requests.append((call if waits else 0, self.requests.number(request)))
        node = Node(at, rank, device, world.timers[at], promised)
        return Outcome(self.number(node), sends, tuple(requests), tuple(wrong))


def _seen(rank: Rank) -> Round:
    """The round of the newest head that the leader has read."""
    head = rank.leader.session.client.head if rank.leader is not None else None
    return 0 if head is None else head.round


def _promises(put: s.Put, rank: Rank) -> Round:
    """The recovering round in which this record is a promise, or 0."""
    head = rank.leader.session.client.head if rank.leader is not None else None
    if head is None or head.status is not Status.RECOVERING or put.record.as_of < head.round:
        return 0
    return head.round


def _promise_broken(before: Node, rank: Rank, device: WorldDevice) -> list[str]:
    """A promise holds until a head of a higher round was read (design 3.2)."""
    kept = device.state == before.device.state or not before.promised or _seen(rank) > before.promised
    if kept:
        return []
    return [
        f"{before.at} promised {before.device.state} in round {before.promised} and went to {device.state}"
    ]


def _at(device: WorldDevice) -> str:
    changing = any(isinstance(p, e.Applied) for p in device.pending)
    return f"{'is only on its way to' if changing else 'is at'} {device.state}"


def _dishonest(put: s.Put, device: WorldDevice, alone: bool) -> list[str]:
    """A record says what is held now, and as of which round every earlier outcome was carried out.

    alone: this rank is all of the replica; with more, the others may be behind this one
    """
    record, wrong = put.record, []
    changing = [p.round for p in device.pending if isinstance(p, e.Applied)]
    held = (record.held.step, record.held.lineage)
    if bool(changing) == (held == device.state) and (alone or held[0] >= device.state[0]):
        wrong.append(f"{record.member} says that it holds {held}, but the device {_at(device)}")
    if any(0 <= round < record.as_of for round in changing):
        wrong.append(f"{record.member} says as_of {record.as_of}, but it is still applying {changing}")
    for round, buffer in device.buffers.items():
        if round < record.as_of and device.state[0] <= buffer.plan.base.step:
            wrong.append(
                f"{record.member} says as_of {record.as_of}, but round {round} is neither applied nor dropped"
            )
    return wrong
