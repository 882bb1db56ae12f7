"""A whole job as a row of small integers, the moves that are possible in it, and what each leads to.

The row holds, in this order: the node of each rank (0: dead); the link from each rank to each; per replica
the requests and answers of its leader, the changes that it is to be told, and requests of its dead lives
that the store may still carry out; the content of the store; per rank the connections that it is to learn
are reset; lives per replica; what is left of the budget; lineages cut off; members that died.

A death is more than ``World.crash``: what the dead had sent may still arrive, until the receiver learns of
the reset or the replica is started again, and its lease ends at any time from then on (at once: the launcher
saw it). Something that is lost on the way is not a case of its own: it differs from something that is late
only in what happens at the end, which ``liveness`` looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ftruntime.protocol import store as s
from ftruntime.protocol.ids import Address, MemberId, Replica

from .bounds import Bounds
from .invariants import Invariants
from .nodes import BREAKDOWN_TIMERS, Node, Nodes, Outcome
from .registers import Registers, Served
from .tables import Queues
from .world import World

Row: TypeAlias = tuple[int, ...]
Move: TypeAlias = tuple[object, ...]
Result: TypeAlias = tuple[Row, tuple[str, ...]]

CRASHES, RESTARTS, LOST, TIMERS, LAPSES = range(5)


class Job:
    """See the moves in ``moves``; each method of that name carries one out."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.config = bounds, bounds.config()
        self.nodes = Nodes(self.config)
        self.registers = Registers(self.config, self.nodes)
        self.queues = Queues()
        self.replicas, self.width = bounds.replicas, bounds.ranks
        self.places = [(r, p) for r in range(self.replicas) for p in range(self.width)]
        self.index: dict[Address, int] = {at: i for i, at in enumerate(self.places)}
        self._lay_out()
        self.invariants = Invariants(self)
        self._quiet: dict[int, bool] = {}
        self._queue_moves = self._moves_of_queues()
        self._carriers: dict[object, Callable[..., tuple[str, ...]]] = {
            "message": self._message,
            "device": self._device,
            "timer": self._timer,
            "reset": self._reset,
            "answer": self._answer,
            "watch": self._watch,
            "request": self._request,
            "lose": self._lose,
            "orphan": self._orphan,
            "expire": self._expire,
            "lapse": self._lapse,
            "crash": self._crash,
            "restart": self._restart,
        }

    def _lay_out(self) -> None:
        n, r = len(self.places), self.replicas
        self.size = n
        self.links = n
        self.requests = n + n * n
        self.answers, self.watches, self.orphans = (self.requests + k * r for k in (1, 2, 3))
        self.register = self.requests + 4 * r
        self.resets = self.register + 1
        self.lives = self.resets + n
        self.budget = self.lives + r
        self.cut = self.budget + 5
        self.dead = self.cut + 1

    def _moves_of_queues(self) -> list[tuple[int, Move]]:
        """(slot, what may happen if it is not empty)."""
        n, found = self.size, list[tuple[int, Move]]()
        for i in range(n):
            found += [(self.links + i * n + j, ("message", i, j)) for j in range(n)]
        for kind, slot in (("request", self.requests), ("answer", self.answers), ("watch", self.watches)):
            found += [(slot + r, (kind, r)) for r in range(self.replicas)]
        return found

    # -- from a world ----------------------------------------------------------------------------

    def row(self, world: World) -> Row:
        """The row of ``world``, with the whole budget."""
        row = [0] * (self.dead + 1)
        for i, at in enumerate(self.places):
            if at in world.ranks:
                node = Node(at, world.ranks[at].clone(), world.devices[at].clone(), world.timers[at], 0)
                row[i] = self.nodes.number(node)
        for (a, b), messages in world.links.items():
            numbers = tuple(self.nodes.messages.number(m) for m in messages)
            row[self.links + self.index[a] * self.size + self.index[b]] = self.queues.number(numbers)
        for r in range(self.replicas):
            self._store_row(world, r, row)
            row[self.lives + r] = world.lives.get(r, 0)
        row[self.register] = self.registers.number(world.register.clone())
        has = self.bounds
        row[self.budget : self.cut] = [has.crashes, has.restarts, has.lost_answers, has.timers, has.lapses]
        return tuple(row)

    def _store_row(self, world: World, r: Replica, row: list[int]) -> None:
        assert not world.requests.get(r) and not world.answers.get(r), "a start has no calls under way"
        numbers = tuple(self.nodes.changes.number(c) for c in world.watches.get(r, ()))
        row[self.watches + r] = self.queues.number(numbers)

    def first(self, row: Row, slot: int) -> Any:
        """The first item of the queue in ``slot``."""
        return self.queues.items[row[slot]][0]

    # -- what may happen -------------------------------------------------------------------------

    def moves(self, row: Row) -> tuple[list[Move], bool]:
        """Everything that may happen next, and whether the job is at rest: only time can pass.

        message (from, to), device (rank), timer (rank, name, tag), reset (rank)
        request, lose, answer, watch, orphan, crash, restart (replica)
        expire, lapse (replica, incarnation): the lease of a dead member, of one that lives, ends
        """
        found = self.progress(row)
        at_rest = not found
        timers = at_rest or row[self.budget + TIMERS] > 0
        for i in range(self.size):
            if row[i]:
                if row[self.resets + i]:
                    found.append(("reset", i))
                if timers:
                    found += self._timers(row, i, at_rest)
        for r in range(self.replicas):
            if row[self.orphans + r]:
                found.append(("orphan", r))
        if row[self.dead] or self.bounds.lapses:
            found += self.leases(row)
        return found + self._faults(row), at_rest

    def progress(self, row: Row) -> list[Move]:
        """What needs no fault and no passing of time."""
        found = [move for slot, move in self._queue_moves if row[slot]]
        pending, calls = self.nodes.pending, self.nodes.calls
        for i in range(self.size):
            if pending[row[i]]:
                found.append(("device", i))
        for r in range(self.replicas):
            if calls[row[r * self.width]]:
                found += [("timer", r * self.width, "store", call) for call in self._lost_calls(row, r)]
        return found

    def _lost_calls(self, row: Row, r: Replica) -> list[int]:
        calls = self.nodes.calls[row[r * self.width]]
        items = self.queues.items
        under_way = {c for c, _ in (*items[row[self.requests + r]], *items[row[self.answers + r]])}
        return [c for c in calls if c not in under_way]

    def _timers(self, row: Row, i: int, at_rest: bool) -> list[Move]:
        node = self.nodes.table[row[i]]
        found: list[Move] = [("timer", i, *t) for t in node.timers if at_rest or t[0] not in BREAKDOWN_TIMERS]
        if not at_rest and node.calls:
            lost = self._lost_calls(row, node.at[0])
            found += [("timer", i, "store", call) for call in node.calls if call not in lost]
        return found

    def lapsed(self, row: Row) -> list[MemberId]:
        """Members that hold a lease though their process is dead."""
        return [m for m in self.registers.table[row[self.register]].leases if self.leader(row, m) is None]

    def leases(self, row: Row) -> list[Move]:
        """Leases that may end, and those that may be taken again."""
        leases = self.registers.table[row[self.register]].leases
        found: list[Move] = [("expire", m.replica, m.incarnation) for m in self.lapsed(row)]
        for r in range(self.replicas):
            number = row[r * self.width]
            member = self.nodes.table[number].member if number else None
            if member in leases and row[self.budget + LAPSES]:
                found.append(("lapse", r, member.incarnation))
            elif member is not None and member not in leases and not self._renewing(row, r):
                found.append(("timer", r * self.width, "renew", 0))
        return found

    def _renewing(self, row: Row, r: Replica) -> bool:
        asked = self.queues.items[row[self.requests + r]]
        return any(isinstance(self.nodes.requests[number], s.Renew) for _, number in asked)

    def leader(self, row: Row, member: MemberId) -> Node | None:
        """The node that leads ``member``, if this life of the replica is alive."""
        number = row[member.replica * self.width]
        node = self.nodes.table[number] if number else None
        return node if node is not None and node.member == member else None

    def _faults(self, row: Row) -> list[Move]:
        found: list[Move] = []
        crashes, restarts, lost = row[self.budget : self.budget + 3]
        for r in range(self.replicas):
            alive = row[r * self.width] != 0
            if crashes and alive:
                found.append(("crash", r))
            if restarts and not alive:
                found.append(("restart", r))
            if lost and row[self.requests + r] and self.queues.items[row[self.requests + r]][0][0]:
                found.append(("lose", r))
        return found

    # -- what it leads to --------------------------------------------------------------------------

    def do(self, row: Row, move: Move, free: bool = False) -> Result:
        """Carry ``move`` out. Returns the next row, and what is wrong with this move.

        free: it costs nothing of the budget
        """
        new = list(row)
        wrong = self._carriers[move[0]](row, new, *move[1:], free)
        return tuple(new), wrong

    def _message(self, row: Row, new: list[int], i: int, j: int, free: bool) -> tuple[str, ...]:
        slot = self.links + i * self.size + j
        new[slot] = self.queues.rest(row[slot])
        message = self.first(row, slot)
        return self._step(new, j, ("message", self.places[i], message))

    def _device(self, row: Row, new: list[int], i: int, free: bool) -> tuple[str, ...]:
        return self._step(new, i, ("device",))

    def _timer(self, row: Row, new: list[int], i: int, name: str, tag: int, free: bool) -> tuple[str, ...]:
        r = self.places[i][0]
        if name == "store":
            free = free or tag in self._lost_calls(row, r)
            for slot in (self.requests + r, self.answers + r):
                given_up = tuple((0 if c == tag else c, n) for c, n in self.queues.items[row[slot]])
                new[slot] = self.queues.number(given_up)
        elif not free:
            free = name == "renew" or not self.progress(row)
        new[self.budget + TIMERS] -= not free
        return self._step(new, i, ("timer", name, tag))

    def _reset(self, row: Row, new: list[int], i: int, free: bool) -> tuple[str, ...]:
        slot = self.resets + i
        replica, incarnation = self.first(row, slot)
        new[slot] = self.queues.rest(row[slot])
        source = self.index[replica, self.places[i][1]]
        if not row[source]:
            new[self.links + source * self.size + i] = 0
        return self._step(new, i, ("reset", replica, incarnation))

    def _answer(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        slot = self.answers + r
        new[slot] = self.queues.rest(row[slot])
        return self._step(new, r * self.width, ("answer", *self.first(row, slot)))

    def _watch(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        slot = self.watches + r
        new[slot] = self.queues.rest(row[slot])
        return self._step(new, r * self.width, ("watch", self.first(row, slot)))

    def _request(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        slot = self.requests + r
        call, request = self.first(row, slot)
        new[slot] = self.queues.rest(row[slot])
        served = self.registers.serve(row[self.register], r, request)
        if not self._says_nothing(served.answer):
            new[self.answers + r] = self.queues.push(row[self.answers + r], (call, served.answer))
        return self._publish(row, new, served)

    def _lose(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        slot = self.requests + r
        _, request = self.first(row, slot)
        new[slot] = self.queues.rest(row[slot])
        new[self.budget + LOST] -= 1
        return self._publish(row, new, self.registers.serve(row[self.register], r, request))

    def _orphan(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        slot = self.orphans + r
        new[slot] = self.queues.rest(row[slot])
        request = self.first(row, slot)
        return self._publish(row, new, self.registers.serve(row[self.register], r, request))

    def _expire(self, row: Row, new: list[int], r: Replica, life: int, free: bool) -> tuple[str, ...]:
        return self._publish(row, new, self.registers.expire(row[self.register], MemberId(r, life)))

    def _lapse(self, row: Row, new: list[int], r: Replica, life: int, free: bool) -> tuple[str, ...]:
        new[self.budget + LAPSES] -= 1
        return self._expire(row, new, r, life, free)

    def _crash(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        new[self.budget + CRASHES] -= 1
        self._die(new, r)
        return ()

    def _restart(self, row: Row, new: list[int], r: Replica, free: bool) -> tuple[str, ...]:
        new[self.budget + RESTARTS] -= not free
        life = new[self.lives + r]
        new[self.lives + r] = life + 1
        for p in range(self.width):
            i = self.index[r, p]
            new[self.links + i * self.size : self.links + (i + 1) * self.size] = [0] * self.size
        wrong: tuple[str, ...] = ()
        for p in range(self.width):
            wrong += self._carry_out(new, self.index[r, p], self.nodes.start((r, p), life))
        return wrong

    # -- the parts of a move -----------------------------------------------------------------------

    def _step(self, new: list[int], i: int, event: tuple[object, ...]) -> tuple[str, ...]:
        if not new[i]:
            return ()  # a dead rank: what arrives there is gone
        return self._carry_out(new, i, self.nodes.step(new[i], event))

    def _carry_out(self, new: list[int], i: int, outcome: Outcome) -> tuple[str, ...]:
        if outcome.ending or not outcome.node:
            self._die(new, self.places[i][0])
            return outcome.wrong
        new[i] = outcome.node
        for to, message in outcome.sends:
            j = self.index[to]
            if new[j]:
                slot = self.links + i * self.size + j
                new[slot] = self.queues.push(new[slot], message)
        slot = self.requests + self.places[i][0]
        for request in outcome.requests:
            new[slot] = self.queues.push(new[slot], request)
        return outcome.wrong

    def _publish(self, row: Row, new: list[int], served: Served) -> tuple[str, ...]:
        new[self.register] = served.register
        for r in range(self.replicas):
            if row[r * self.width]:
                slot = self.watches + r
                for change in served.changes:
                    new[slot] = self.queues.push(new[slot], change)
        wrong = served.wrong
        if served.committed:
            wrong += self.invariants.committed(row)
        if served.cut:
            wrong += self.invariants.cut(row, served.cut)
            cut = {*self.queues.items[row[self.cut]], *served.cut}
            new[self.cut] = self.queues.number(tuple(sorted(cut, key=str)))
        return wrong

    def _die(self, new: list[int], r: Replica) -> None:
        """All processes of ``r`` are gone; their neighbours may learn of it later."""
        node = self.nodes.table[new[r * self.width]]
        member = node.member
        for i, (replica, _) in enumerate(self.places):
            if replica == r:
                new[i] = new[self.resets + i] = 0
                for j in range(self.size):
                    new[self.links + j * self.size + i] = 0
            elif member is not None and new[i]:
                new[self.resets + i] = self.queues.push(new[self.resets + i], (r, member.incarnation))
        for _, request in self.queues.items[new[self.requests + r]]:
            new[self.orphans + r] = self.queues.push(new[self.orphans + r], request)
        for slot in (self.requests, self.answers, self.watches):
            new[slot + r] = 0
        if member is not None:
            new[self.dead] = self.queues.push(new[self.dead], member)

    def _says_nothing(self, answer: int) -> bool:
        found = self._quiet.get(answer)
        if found is None:
            thing = self.nodes.answers[answer]
            found = self._quiet[answer] = isinstance(thing, s.PutDone | s.Renewed) and not thing.fenced
        return found
