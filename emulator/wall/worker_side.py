"""A worker of a run against real time: the host of whole replicas, whose ranks talk to those of others.

What a peer of a rank that dies would see of its connections, peers in other workers see of the connection of
the two processes: it is reset when one is killed, and says nothing when one stands still.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address, Position, Replica

from .. import broken_links
from ..commands import SEES_DEATH_S, Life, Told
from ..process import RING
from . import words as w
from .far_hub import FarHub
from .side import Side

if TYPE_CHECKING:
    from ..emulation import Emulation
    from ..process import Process


class WorkerSide(Side):
    """The way from a worker to the hub and to other workers.

    hub:    the hub, as leaders see it
    where:  the worker of each replica that is not run here
    """

    is_hub = False

    def __init__(self, number: int, port: int, speed: float, ranks: int, zero: float | None) -> None:
        super().__init__(number, port, speed)
        self.positions: Sequence[Position] = range(ranks)
        self.zero = zero
        self.hub = FarHub(self)
        self.where: dict[Replica, int] = {}
        self.finished = False
        self._lost: dict[int, int] = {}  # how often the link with each other worker was lost
        self._parent = os.getppid()
        self._told_ready: tuple[int, ...] = ()

    def begin(self, job: Emulation) -> None:
        self.attach(job)
        job.elsewhere = self
        self.connect(0)

    def next(self, stop: float) -> tuple[float] | None:
        """What to run in the next turn; None when the run is over."""
        self.turn()
        if self.finished or os.getppid() != self._parent:
            return None
        return (self.advance(),)

    def leave(self, word: w.AnyWord, seconds: float) -> None:
        """Say ``word``, the last one, to the hub; wait at most ``seconds`` until it is sent."""
        if 0 in self.links:
            self.links[0].send(w.encode([word]))
            self.links[0].leave(seconds)

    # -- what is told ---------------------------------------------------------------------------------

    def carry(self, process: Process, to: Address, message: m.Message, arrival: float) -> bool:
        """A rank tells one of another replica; False if no worker that can be reached has that one."""
        number = self.where.get(to[0])
        if number is None or not self.linked(number):
            return False
        self.say(number, w.Parcel(arrival, process.address, process.incarnation, to, message))  # type: ignore[arg-type]
        return True

    def died(self, process: Process, now: float) -> None:
        """A process has ended: its peers in other workers see a reset."""
        for number in self.links:
            if number:
                self.say(number, w.Reset(now, process.address, process.incarnation))

    def ended(self, life: Life, now: float) -> None:
        """Nothing is left of ``life``."""
        self.say(0, w.Ended(now, life))

    def report(self, report: Told, now: float) -> None:
        self.say(0, w.Reported(now + SEES_DEATH_S, report))  # type: ignore[arg-type]

    def command(self, command: Told, now: float) -> None:
        raise AssertionError("only the hub commands")

    def tell(self, process: Process, to: Address, message: m.Message, arrival: float, ordered: bool) -> None:
        raise AssertionError("all ranks of a replica are run by one worker")

    # -- links ---------------------------------------------------------------------------------------------

    def connected(self, other: int) -> None:
        self._look_ready()

    def _look_ready(self) -> None:
        """Tell the hub when all peers that it has told of are connected."""
        peers = tuple(sorted(set(self.where.values())))
        if peers != self._told_ready and self.linked(0) and all(self.linked(peer) for peer in peers):
            self._told_ready = peers
            self.say(0, w.Ready(self.until, peers))

    def lost(self, other: int) -> None:
        """The connections of all ranks here with those of that worker are reset.

        It may be there all the same, if it was the network that reset them: then both connect once more. The
        hub says who takes its place if it is dead.
        """
        if other == 0:
            self.finished = True  # nobody is left to tell anything
            return
        if other in self.where.values():
            self._lost[other] = self._lost.get(other, 0) + 1
            self.connect(other, self._lost[other])
        self._reset_ranks([replica for replica, number in self.where.items() if number == other])

    def _reset_ranks(self, replicas: Sequence[Replica]) -> None:
        """The ranks here see their connections with those of ``replicas`` reset."""
        job = self.job
        for replica in replicas:
            for (_, position), process in list(job.processes.items()):
                life = job.hosts.known((replica, position))
                job.kernel.at(self.until, process.handler, e.PeerLost(replica, life, "connection reset"))

    # -- what is heard ----------------------------------------------------------------------------------

    def hear(self, other: int, word: w.AnyWord) -> None:
        HEAR[type(word)](self, word)

    def _parcel(self, word: w.Parcel) -> None:
        job, time = self.job, max(word.time, self.until)
        job.hosts.saw(word.source, word.incarnation)
        target, message = job.processes.get(word.to), word.message
        if target is None or not target.alive or not target.incarnation:
            number = self.where.get(word.source[0])
            if number is not None:
                self.say(number, w.Refused(time, word.source, word.to, job.hosts.known(word.to)))
        elif type(message) is m.Chunk:
            target.lane.at(time, target.chunk_handler, message)
        else:
            at = target.lane.at if type(message) in RING else job.kernel.at
            handlers = {m.Tap: target.on_tap, m.RangeData: target.on_range}
            at(time, handlers.get(type(message), target.handler), e.Received(word.source, message))

    def _refused(self, word: w.Refused) -> None:
        process = self.job.processes.get(word.to)
        if process is not None:
            time = max(word.time, self.until)
            broken_links.refused_by(process, word.peer[0], word.incarnation, time, self.job.kernel.now)

    def _reset(self, word: w.Reset) -> None:
        (replica, position), job = word.address, self.job
        job.hosts.saw(word.address, word.incarnation)
        lost = e.PeerLost(replica, word.incarnation, "connection reset")
        for address, process in list(job.processes.items()):
            if address[1] == position:
                self.at(word, process.handler, lost)

    def _peer(self, word: w.Peer) -> None:
        for replica in word.replicas:
            before = self.where.get(replica)
            self.where[replica] = word.number
            if before in self.links:  # of a worker that is gone: it may never have been connected
                self.links.pop(before).close()
                self._reset_ranks(word.replicas)
        self.connect(word.number)

    def _begin(self, word: w.Begin) -> None:
        self.zero = word.zero

    def _commanded(self, word: w.Commanded) -> None:
        self.at(word, self.job.hear, word.command)

    def _answered(self, word: w.Answered) -> None:
        self.at(word, self.hub.answered, word)

    def _changed(self, word: w.Changed) -> None:
        self.at(word, self._watched, word)

    def _watched(self, word: w.Changed, now: float) -> None:
        team = self.job.hosts.teams.get(word.life, {})
        if 0 in team:
            team[0].watched(word.change, now)

    def _finish(self, word: w.Finish) -> None:
        self.finished = True

    def _beat(self, word: w.Beat) -> None:
        """It came: that is all."""


HEAR: dict[type[Any], Callable[[WorkerSide, Any], None]] = {
    w.Parcel: WorkerSide._parcel,
    w.Refused: WorkerSide._refused,
    w.Reset: WorkerSide._reset,
    w.Peer: WorkerSide._peer,
    w.Begin: WorkerSide._begin,
    w.Commanded: WorkerSide._commanded,
    w.Answered: WorkerSide._answered,
    w.Changed: WorkerSide._changed,
    w.Finish: WorkerSide._finish,
    w.Beat: WorkerSide._beat,
}
