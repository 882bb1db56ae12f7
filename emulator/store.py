"""The consensus store of the emulator: one register served in virtual time, with faults of its own.

Requests travel ``latency_s`` to the store and their answers as long back, each replica's in order.
Requests that arrive at one time are served in the order of (replica, order of sending), and leases
that end at that time end after them: nothing depends on which rank happened to run first.

A request that the store does not get, or whose answer is lost, stays unanswered; nothing is tried
again here. A watch loses nothing: what a replica could not be told it is told when it can be reached
again, each record, lease and the head in its newest form only, which bounds what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ftruntime.log.headlog import HeadLog
from ftruntime.protocol import store
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import MemberId, Replica
from ftruntime.store import Register

from .kernel import Kernel

Reply = Callable[[store.Answer, float], object]  # reply(answer, now)
Deliver = Callable[[store.Change, float], object]  # deliver(change, now)
Matches = Callable[[store.Request], bool]
Log = Callable[[list[object]], object]


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``latency_s``: one way, seconds, consensus among the store's own replicas included."""

    latency_s: float = 0.002

    def check(self) -> None:
        """Raises ConfigError: a store that answers in no time would break the order of one time."""
        if not 0.0 < self.latency_s < 3600.0:
            raise ConfigError(f"store.latency_s is {self.latency_s}; it must be above 0 and below an hour")


class Asked(NamedTuple):
    """A request on its way. Sorting these gives the order of service."""

    replica: Replica
    number: int
    request: store.Request
    reply: Reply


class Cut(NamedTuple):
    """No word passes between the store and ``replicas`` in the directions named, before ``until``."""

    replicas: frozenset[Replica]
    until: float
    requests: bool
    answers: bool


class LostAnswers(msgspec.Struct):
    """The next ``count`` answers to requests that match are lost, though the requests are carried out."""

    count: int
    matches: Matches


class EmulatedStore:
    """Serves the requests of ``ftruntime.protocol.store`` on the kernel's time.

    log:          called with the entries ``head``, ``register`` and ``fenced`` of the event log
    leases_lost:  since when members must take their leases anew, if they lost them with the store
    """

    def __init__(self, kernel: Kernel, config: StoreConfig, log: Log) -> None:
        config.check()
        self._kernel, self._config, self._log = kernel, config, log
        self._register = Register()
        self._head_log = HeadLog()
        self._inbox: dict[float, list[Asked]] = {}
        self._asked = 0
        self._connection = 0  # number of restarts: what was on its way at one is lost
        self._reached: dict[tuple[Replica, bool], float] = {}  # latest arrival, to and from a replica
        self._watchers: dict[Replica, Deliver] = {}
        self._missed: dict[Replica, dict[object, store.Change]] = {}
        self.leases_lost = 0.0
        self._slow = 1.0
        self._down_until = 0.0
        self._cuts: list[Cut] = []
        self._lost: list[LostAnswers] = []
        self._stale: tuple[store.View, float] | None = None

    @property
    def head(self) -> Head | None:
        """The head that stands, for reports; members ask by request."""
        return self._register.head

    @property
    def backups(self) -> int:
        """How many heads the store can go back."""
        return len(self._register.backups)

    def leased(self, member: MemberId) -> bool:
        """Whether ``member`` has a lease, as an operator of the store would see it."""
        return member in self._register.leases

    def reachable(self, replica: Replica) -> bool:
        """Whether what ``replica`` asks now would be served."""
        return self._kernel.now >= self._down_until and not self._is_cut(replica, True, True)

    # -- requests and answers ---------------------------------------------------------------------

    def submit(self, replica: Replica, request: store.Request, reply: Reply) -> None:
        """Send ``request`` on behalf of ``replica`` now. ``reply`` is called later, or never."""
        if self._is_cut(replica, requests=True):
            return
        self._asked += 1
        at = self._travel(replica, to_store=True)
        asked = Asked(replica, self._asked, request, reply)
        waiting = self._inbox.get(at)
        if waiting is None:
            self._inbox[at] = [asked]
            self._kernel.at(at, self._serve, None)
        else:
            waiting.append(asked)

    def _travel(self, replica: Replica, to_store: bool) -> float:
        """When something sent now arrives: never before what was sent earlier on the same way."""
        way = (replica, to_store)
        at = self._kernel.now + self._config.latency_s * self._slow
        at = self._reached[way] = max(at, self._reached.get(way, 0.0))
        return at

    def _serve(self, _: object, now: float) -> None:
        waiting = sorted(self._inbox.pop(now, ()), key=lambda asked: asked[:2])
        if now < self._down_until:
            return
        for asked in waiting:
            answer = self._execute(asked.request, now)
            if not self._loses(asked.request) and not self._is_cut(asked.replica, answers=True):
                at = self._travel(asked.replica, to_store=False)
                self._kernel.at(at, self._answer, (self._connection, asked.reply, answer))
            self._publish()
        self._register.expire_due(now)
        self._publish()

    def _answer(self, which: tuple[int, Reply, store.Answer], now: float) -> None:
        connection, reply, answer = which
        if connection == self._connection:
            reply(answer, now)

    def _execute(self, request: store.Request, now: float) -> store.Answer:
        register, before = self._register, self._register.head
        answer = self._outdated(request, now) or register.execute(request, now)
        match request, answer:
            case store.Cas(head=head), store.CasDone(taken=True):
                live = [register.records[m] for m in sorted(register.leases) if m in register.records]
                for entry in self._head_log.entries(before, head, live, now):
                    self._log(entry)
            case store.Put(record=record), store.PutDone(fenced=True):
                self._note_fenced(record.member, now)
            case store.Renew(member=member), store.Renewed(fenced=True):
                self._note_fenced(member, now)
            case store.Renew(member=member), _:
                self._kernel.at(register.leases[member].expires, self._serve, None)
        return answer

    def _note_fenced(self, member: MemberId, now: float) -> None:
        self._log(["fenced", now, member.replica, member.incarnation])

    def _outdated(self, request: store.Request, now: float) -> store.View | None:
        """What a replica of the store that fell behind answers, if it is one that answers ``request``."""
        if self._stale is not None and now >= self._stale[1]:
            self._stale = None
        if self._stale is None or not isinstance(request, store.Read) or request.linearizable:
            return None
        return self._stale[0]

    # -- watch ------------------------------------------------------------------------------------

    def watch(self, replica: Replica, deliver: Deliver) -> None:
        """Tell ``replica`` every change from now on; a later life's watch replaces the earlier one's."""
        self._watchers[replica] = deliver
        self._missed.pop(replica, None)

    def unwatch(self, replica: Replica) -> None:
        self._watchers.pop(replica, None)
        self._missed.pop(replica, None)

    def _publish(self) -> None:
        changes, self._register.changes = self._register.changes, []
        for change in changes:
            for replica in sorted(self._watchers):
                self._tell(replica, change)

    def _tell(self, replica: Replica, change: store.Change) -> None:
        if self._is_cut(replica, answers=True):
            missed = self._missed.setdefault(replica, {})
            key = _key(change)
            missed.pop(key, None)  # the newest form goes to the end: order of the last change of each
            missed[key] = change
        else:
            told = (self._connection, self._watchers[replica], change)
            self._kernel.at(self._travel(replica, to_store=False), self._news, told)

    def _news(self, which: tuple[int, Deliver, store.Change], now: float) -> None:
        connection, deliver, change = which
        if connection == self._connection:
            deliver(change, now)

    def _catch_up(self, _: object, now: float) -> None:
        """A cut may have ended: tell what was missed."""
        self._cuts = [cut for cut in self._cuts if now < cut.until]
        for replica in sorted(self._missed):
            if not self._is_cut(replica, answers=True):
                for change in self._missed.pop(replica).values():
                    self._tell(replica, change)

    # -- faults -----------------------------------------------------------------------------------

    def slow_down(self, factor: float) -> None:
        """Every way takes ``factor`` times as long from now on; 1 mends it."""
        assert factor > 0.0
        self._slow = factor

    def unavailable(self, seconds: float) -> None:
        """Requests that arrive in the next ``seconds`` are neither carried out nor answered. Afterwards
        every lease runs anew."""
        until = self._kernel.now + seconds
        if until > self._down_until:
            self._down_until = until
            self._kernel.at(until, self._back, None)

    def _back(self, _: object, now: float) -> None:
        if now >= self._down_until:
            self._register.prolong(now)
            for lease in self._register.leases.values():
                self._kernel.at(lease.expires, self._serve, None)

    def lose_answers(self, count: int, matches: Matches = lambda request: True) -> None:
        """Carry out the next ``count`` requests that match, and never answer them."""
        self._lost.append(LostAnswers(count, matches))

    def _loses(self, request: store.Request) -> bool:
        for lost in self._lost:
            if lost.matches(request):
                lost.count -= 1
                self._lost = [rest for rest in self._lost if rest.count > 0]
                return True
        return False

    def change_leader(self, down_s: float, stale_s: float) -> None:
        """Away for ``down_s``; and until ``stale_s`` from now, reads that are not linearizable are
        answered by a replica of the store that still has the state of now."""
        self._stale = (self._register.view(), self._kernel.now + stale_s)
        self.unavailable(down_s)

    def restart(self, down_s: float) -> None:
        """Away for ``down_s``, with all that it has; what was on its way from it is lost."""
        self._connection += 1
        self._missed.clear()
        self.unavailable(down_s)

    def restart_empty(self, down_s: float) -> None:
        """Everything is lost, and the store is away for ``down_s``."""
        self._register.wipe()
        self._restart(down_s)

    def restart_older(self, heads: int, down_s: float) -> None:
        """As ``restart_empty``, but with the state before the last ``heads`` changes of the head.

        Raises ValueError when the store keeps no backup as old as that.
        """
        self._register.go_back(heads)
        self._restart(down_s)

    def _restart(self, down_s: float) -> None:
        self.leases_lost = self._kernel.now + down_s
        self.unavailable(down_s)
        self._stale = None
        self._missed.clear()

    def cut(
        self, replicas: Iterable[Replica], seconds: float, requests: bool = True, answers: bool = True
    ) -> None:
        """Part ``replicas`` from the store for ``seconds``: what they ask, what they are told, or both.
        What is on its way already arrives."""
        until = self._kernel.now + seconds
        self._cuts.append(Cut(frozenset(replicas), until, requests, answers))
        self._kernel.at(until, self._catch_up, None)

    def _is_cut(self, replica: Replica, requests: bool = False, answers: bool = False) -> bool:
        now = self._kernel.now
        return any(
            now < cut.until
            and replica in cut.replicas
            and ((cut.requests and requests) or (cut.answers and answers))
            for cut in self._cuts
        )


def _key(change: store.Change) -> object:
    """Changes with one key overwrite each other."""
    match change:
        case store.RecordChanged():
            return "record", change.record.member
        case store.LeaseChanged():
            return "lease", change.member
    return "head"
