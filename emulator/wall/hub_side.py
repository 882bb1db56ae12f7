"""The hub of a run against real time: it has the store and the launchers, and no ranks.

It sees of its workers what an operator sees of hosts: that one is dead, stands still, or is not heard. The
first it tells the launchers; of the others nobody is told, but the log has it, for whoever reads why
something happened.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from faultinject import AnyFault
from faultinject import vocabulary as v
from ftruntime.protocol import effects as f
from ftruntime.protocol import store as s
from ftruntime.protocol.ids import Replica

from ..commands import COMMAND_S, End, Inject, Life, Start, Told
from ..hub import Hub
from ..workers.errors import WorkersError
from . import words as w
from .side import LOOKS_EVERY_S, Side

if TYPE_CHECKING:
    from ..emulation import Emulation

LEAVES_S = 5.0  # for a worker to say farewell
CUT_OFF_S = 3.0  # a worker that runs and was not heard for so long: the network is in between
MOST_EARLY = 3  # workers of the same replicas, one after the other, that die before they have met the others


class Worker(Protocol):
    """A worker process, as the hub sees it."""

    number: int
    replicas: tuple[Replica, ...]

    @property
    def dead(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def how(self) -> str: ...


class Leader:
    """What the hub knows of a leader; ``alive`` until its life was seen to end."""

    alive = True

    def __init__(self, said: w.Said) -> None:
        standing = said.leader
        self.life, self.address = standing.life, (standing.life[0], 0)
        self.incarnation, self.at_step = standing.incarnation, standing.step
        self.trains, self.leads = standing.trains, standing.leads


class HubSide(Side):
    """The way from the hub to its workers.

    start:     starts a worker for these replicas, with the number and the time of zero
    standing:  of all leaders, once workers have been seen off
    gone:      numbers of those that said farewell
    farewells: of workers that ended by themselves
    """

    is_hub = True
    positions = ()

    def __init__(
        self,
        port: int,
        speed: float,
        shares: list[tuple[Replica, ...]],
        seconds: float,
        start: Callable[[int, tuple[Replica, ...], float | None], Worker],
        bury: Callable[[Any], object],
    ) -> None:
        super().__init__(0, port, speed)
        self._shares, self._seconds, self._start, self._bury = shares, seconds, start, bury
        self.workers: dict[int, Worker] = {}  # by number
        self.standing: list[list[Any]] = []
        self.farewells: list[w.Farewell] = []
        self._numbers = itertools.count(1)
        self._leaving = False
        self.gone: set[int] = set()  # who said farewell
        self._early: dict[tuple[Replica, ...], int] = {}  # workers that died before they had met the others
        self._ready: dict[int, tuple[int, ...]] = {}
        self._over: dict[Replica, int] = {}  # the last life of each that has ended
        self._stopped: dict[int, float] = {}  # since when workers stand still
        self._cut: dict[int, float] = {}  # since when workers that run are not heard
        self._look = 0.0

    def begin(self, job: Emulation) -> None:
        """Start all workers. Raises WorkersError when they do not come."""
        self.attach(job)
        job.away = self
        self.hub = job.the_hub
        self.hub.hears_of_ends = True
        self._gather()

    # -- turns -------------------------------------------------------------------------------------------

    def next(self, stop: float) -> tuple[float] | None:
        """What to run in the next turn; None when the run is over. Raises WorkersError."""
        self.turn()
        self._look_at_workers()
        # Nothing is put off here: what comes late to the store is not a fault of anybody.
        self.until = min(max(self.until, self.now()), stop)
        return None if self.until >= min(stop, self.hub.over) else (self.until,)

    def _gather(self) -> None:
        """Start all workers, and the clock when they are connected. Raises WorkersError."""
        for replicas in self._shares:
            self._engage(next(self._numbers), replicas)
        limit = time.monotonic() + self._seconds
        while missing := [number for number in self.workers if not self._connected(number)]:
            names = ", ".join(map(str, missing))
            if dead := [worker for worker in self.workers.values() if worker.dead]:
                raise WorkersError(f"worker {dead[0].number} {dead[0].how} before it had met the others")
            if time.monotonic() > limit:
                raise WorkersError(
                    f"workers {names} did not come within {self._seconds:g} s: is the machine overloaded? "
                    "Raise --worker-timeout"
                )
            self.turn()
        self.zero = time.monotonic()
        for number in self.workers:
            self.say(number, w.Begin(0.0, self.zero))

    def _connected(self, number: int) -> bool:
        return set(self._ready.get(number, ())) >= set(self.workers) - {number}

    def _engage(self, number: int, replicas: tuple[Replica, ...]) -> None:
        """Start a worker, and have it and all others connected."""
        worker = self._start(number, replicas, self.zero)
        self.connect(number)
        for other in self.workers.values():
            self.say(other.number, w.Peer(self.until, number, replicas))
            self.say(number, w.Peer(self.until, other.number, other.replicas))
        self.workers[number] = worker

    # -- workers that die or stand still ---------------------------------------------------------------

    def _look_at_workers(self) -> None:
        if time.monotonic() < self._look:
            return
        self._look = time.monotonic() + LOOKS_EVERY_S
        for worker in list(self.workers.values()):
            if worker.dead:
                self.lost(worker.number)
            elif worker.stopped and worker.number not in self._stopped:
                self._stopped[worker.number] = self.until
                self.job.kernel.at(self.until, self._stands, worker)
            elif not worker.stopped and worker.number in self._stopped:
                since = self._stopped.pop(worker.number)
                self.job.kernel.at(self.until, self._goes_on, (worker, since))
            if self.zero is not None and worker.number in self.workers:
                self._listen(worker)

    def _listen(self, worker: Worker) -> None:
        """For whether it can be heard: each says something twice a second, if it can."""
        heard = self.heard.get(worker.number)
        silent = heard is not None and time.monotonic() - heard > CUT_OFF_S
        if silent and worker.number not in self._cut and not worker.stopped:
            self._cut[worker.number] = self.until
            self.job.kernel.at(self.until, self._is_cut, worker)
        elif not silent and worker.number in self._cut:
            self._heard_again(worker)

    def _heard_again(self, worker: Worker) -> None:
        since = self._cut.pop(worker.number)
        self.job.kernel.at(self.until, self._is_back, (worker, since))

    def _partition(self, worker: Worker, since: float, duration: float) -> v.Partition:
        others = (r for r in range(self.job.config.replicas) if r not in worker.replicas)
        groups = ((*others, "store"), worker.replicas)
        return v.Partition(groups=groups, at=since, duration=duration)

    def _is_cut(self, worker: Worker, now: float) -> None:
        groups = self._partition(worker, now, 1.0).groups
        self.job.log(["fault", now, {"kind": "partition", "groups": groups, "at": now}])

    def _is_back(self, which: tuple[Worker, float], now: float) -> None:
        (worker, since), injector = which, self.job.injector
        fault = self._partition(worker, since, now - since)
        self.job.log(["heal", now, {"kind": "partition", "groups": fault.groups}])
        injector.happened.append(fault)
        injector.last_ended = max(injector.last_ended, now)

    def _stands(self, worker: Worker, now: float) -> None:
        for replica in worker.replicas:
            self.job.log(["fault", now, {"kind": "pause", "replica": replica, "at": now}])

    def _goes_on(self, which: tuple[Worker, float], now: float) -> None:
        (worker, since), injector = which, self.job.injector
        for replica in worker.replicas:
            self.job.log(["heal", now, {"kind": "pause", "replica": replica}])
            injector.happened.append(v.Pause(replica=replica, at=since, duration=now - since))
        injector.last_ended = max(injector.last_ended, now)

    def lost(self, other: int) -> None:
        """The worker is dead, or what is left of it can do nothing any more. Raises WorkersError if that is
        not the doing of somebody who killed it."""
        worker = self.workers.pop(other, None)
        if worker is None:
            return
        link = self.links.pop(other, None)
        if link is not None:
            link.close()
        self._bury(worker)
        self._stopped.pop(other, None)
        if other in self._cut:
            self._heard_again(worker)  # it is no matter any more whether it can be heard
        if self._leaving:
            return
        self._early[worker.replicas] = 0 if other in self._ready else self._early.get(worker.replicas, 0) + 1
        if self.zero is None or self._early[worker.replicas] >= MOST_EARLY:
            raise WorkersError(f"worker {other} {worker.how} before it had met the others")
        self.job.kernel.at(self.until, self._died, worker)
        self._engage(next(self._numbers), worker.replicas)

    def _died(self, worker: Worker, now: float) -> None:
        launcher = self.hub.launcher
        for replica in worker.replicas:
            self._crashed(replica, f"worker {worker.number} {worker.how}", now)
            self._over[replica] = launcher.lives[replica] - 1
            launcher.host_lost(replica, now)

    def _crashed(self, replica: Replica, cause: str, now: float) -> None:
        incarnations = self.hub.launcher.incarnations(replica)
        for position in range(self.job.config.ranks_per_replica):
            self.job.injector.noted(v.Crash(rank=(replica, position), at=now), now)
            for incarnation in incarnations:
                self.job.log(["crash", now, replica, incarnation, position, cause])

    # -- what is told -----------------------------------------------------------------------------------

    def command(self, command: Told, now: float) -> None:
        """To the hosts that it concerns. Faults go out when they happen (``inject``)."""
        if isinstance(command, Inject):
            return
        concerned = [command.life[0]] if isinstance(command, Start | End) else None
        for worker in self.workers.values():
            if concerned is None or concerned[0] in worker.replicas:
                self.say(worker.number, w.Commanded(now + COMMAND_S, command))  # type: ignore[arg-type]

    def inject(self, faults: tuple[AnyFault, ...], now: float) -> None:
        """``faults`` take effect now, on the processes of all workers."""
        for number in self.workers:
            self.say(number, w.Commanded(now, Inject(faults)))

    def report(self, report: Told, now: float) -> None:
        raise AssertionError("only hosts report")

    def tell(self, *_: object) -> None:
        raise AssertionError("the hub has no ranks")

    # -- what is heard ----------------------------------------------------------------------------------

    def hear(self, other: int, word: w.AnyWord) -> None:
        HEAR[type(word)](self, other, word)

    def connected(self, other: int) -> None:
        """A worker is connected; it says itself when it is with all others, too."""

    def _is_ready(self, other: int, word: w.Ready) -> None:
        self._ready[other] = word.peers

    def _asked(self, other: int, word: w.Asked) -> None:
        self.at(word, self._submit, (other, word))

    def _submit(self, which: tuple[int, w.Asked], now: float) -> None:
        other, word = which

        def reply(answer: s.Answer, at: float) -> None:
            self.say(other, w.Answered(at, word.number, answer))

        self.hub.submit(word.replica, word.request, reply)

    def _watches(self, other: int, word: w.Watches) -> None:
        life = word.life
        if life[1] != self.hub.launcher.lives[life[0]] - 1:
            return  # another life has its place already

        def deliver(change: s.Change, at: float) -> None:
            self.say(other, w.Changed(at, life, change))

        self.hub.store.watch(life[0], deliver)

    def _said(self, other: int, word: w.Said) -> None:
        self.at(word, self._says, word)

    def _says(self, word: w.Said, now: float) -> None:
        leader = Leader(word)
        replica, life = leader.life
        if life <= self._over.get(replica, -1):
            return
        if word.note:
            self.hub.noted(leader, f.Note(word.what, word.round), now)
        elif word.what == "computing":
            self.hub.computing(leader, word.round, max(word.ready, now), now)
        else:
            SAYS[word.what](self.hub, leader, word.round, now)

    def _reported(self, other: int, word: w.Reported) -> None:
        self.at(word, self.job.hear, word.report)

    def _ended(self, other: int, word: w.Ended) -> None:
        self.at(word, self._has_ended, word.life)

    def _has_ended(self, life: Life, now: float) -> None:
        self._over[life[0]] = max(life[1], self._over.get(life[0], -1))
        self.hub.launcher.ended(life, now)

    def _farewell(self, other: int, word: w.Farewell) -> None:
        self.farewells.append(word)
        self.gone.add(other)

    def _beat(self, other: int, word: w.Beat) -> None:
        """It came: that is all."""

    # -- the end --------------------------------------------------------------------------------------------

    def see_off(self) -> float:
        """Have all workers end. Returns when the run is over: no log has anything later."""
        self._leaving, limit = True, time.monotonic() + LEAVES_S
        for number in self.workers:
            self.say(number, w.Finish(self.until))
        while time.monotonic() < limit and self._waits():
            self.turn()
        self.standing = sorted(row for word in self.farewells for row in word.standing)
        return max([self.until, self.now(), *(word.time for word in self.farewells)])

    def _waits(self) -> bool:
        """For any that can still say farewell."""
        return any(
            number not in self.gone and not worker.stopped and not worker.dead
            for number, worker in self.workers.items()
        )


HEAR: dict[type[Any], Callable[[HubSide, int, Any], None]] = {
    w.Ready: HubSide._is_ready,
    w.Asked: HubSide._asked,
    w.Watches: HubSide._watches,
    w.Said: HubSide._said,
    w.Reported: HubSide._reported,
    w.Ended: HubSide._ended,
    w.Farewell: HubSide._farewell,
    w.Beat: HubSide._beat,
}
SAYS: dict[str, Callable[[Hub, Any, int, float], None]] = {
    "reducing": Hub.reducing,
    "reduced": Hub.reduced,
    "applying": Hub.applying,
}
