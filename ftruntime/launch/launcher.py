"""A launcher: it starts the processes of replicas, sees them die, and starts them anew (docs/driver.md).

It is to a replica what torchrun is, and knows one thing more: a process that it saw die has no lease any
more, so it ends the lease at once instead of letting the others wait for it.

    a replica   leaves to  when
    ----------  ---------  ----------------------------------------------------------------------
    RESTING     RUNNING    its rest is over: all ranks are started as the next life
    RUNNING     RESTING    a rank died or left: the others are ended, the lease is expired
                AWAY       a rank left for good: fenced, or the job stops
                DONE       every rank ended well
"""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ftruntime.driver.journal import Journal
from ftruntime.driver.process import AGAIN, FOR_GOOD
from ftruntime.observe import Failure, Report
from ftruntime.protocol import store as s
from ftruntime.protocol.ids import MemberId, Position, Replica
from ftruntime.stores import EmbeddedClient
from ftruntime.wire import Endpoint, Loop, Who
from ftruntime.wire.loop import READ

QUICK_S = 30.0  # a life shorter than this makes the next rest longer
Spawn = Callable[[Replica, Position, int], "subprocess.Popen[bytes]"]


class State(enum.Enum):
    RESTING = "resting"
    RUNNING = "running"
    AWAY = "away"
    DONE = "done"


class _Replica:
    """One replica: its processes, the life they are, and how it fares."""

    def __init__(self, number: Replica, life: int) -> None:
        self.number, self.life = number, life
        self.state = State.RESTING
        self.processes: dict[Position, subprocess.Popen[bytes]] = {}
        self.since = 0.0
        self.quick = 0
        self.failures: deque[Failure] = deque(maxlen=8)


class Launcher:
    """Runs ``replicas`` of ``ranks`` processes each, made by ``spawn(replica, position, life)``.

    rest_s:   before a replica is started again; doubled for each short life in a row, up to ``longest_s``
    folder:   where lives are counted, so that a launcher that is itself started anew goes on counting
    journal:  for the entries crash and exit; None: none are written
    changed:  called with a replica whenever its state has changed
    """

    def __init__(
        self,
        loop: Loop,
        replicas: list[Replica],
        ranks: int,
        spawn: Spawn,
        store: Endpoint,
        token: bytes,
        job: str,
        folder: Path,
        rest_s: float = 1.0,
        longest_s: float = 300.0,
        journal: Journal | None = None,
        changed: Callable[[Replica], object] = lambda replica: None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._loop, self._ranks, self._spawn, self._folder = loop, ranks, spawn, folder
        self._rest_s, self._longest_s, self._journal, self._changed = rest_s, longest_s, journal, changed
        self._replicas = {number: _Replica(number, self._lives_before(number)) for number in replicas}
        self._registered: dict[Replica, tuple[int, str]] = {}
        self._calls = 0
        self._client = EmbeddedClient(
            loop, store, token, Who("launcher", job), lambda call, answer: None, self._watched, lambda _: None
        )
        loop.soon(self._start_all)

    # -- what people ask -----------------------------------------------------------------------

    def state(self, number: Replica) -> State:
        return self._replicas[number].state

    def life(self, number: Replica) -> int:
        return self._replicas[number].life

    def pid(self, number: Replica, position: Position) -> int:
        """Raises KeyError while it is not running."""
        return self._replicas[number].processes[position].pid

    def incarnation(self, number: Replica) -> int:
        """Of the present life; 0 while it has not registered."""
        incarnation, nonce = self._registered.get(number, (0, ""))
        return incarnation if nonce.startswith(f"{number}/{self._replicas[number].life}/") else 0

    # -- starting ------------------------------------------------------------------------------

    def _lives_before(self, number: Replica) -> int:
        path = self._folder / f"replica-{number}.lives"
        return int(path.read_text()) if path.exists() else 0

    def _count(self, replica: _Replica) -> None:
        """On the disk before the life begins: no two lives have one number."""
        path = self._folder / f"replica-{replica.number}.lives"
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(str(replica.life + 1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)

    def _start_all(self) -> None:
        for replica in self._replicas.values():
            self._start(replica)

    def _start(self, replica: _Replica) -> None:
        if replica.state is not State.RESTING:
            return
        self._count(replica)
        replica.state, replica.since = State.RUNNING, self._loop.now()
        for position in range(self._ranks):
            process = self._spawn(replica.number, position, replica.life)
            replica.processes[position] = process
            self._watch(replica, process)
        self._tell(replica)

    def _watch(self, replica: _Replica, process: subprocess.Popen[bytes]) -> None:
        """See its end in the time of a system call."""
        descriptor, life = os.pidfd_open(process.pid), replica.life

        def ended(mask: int) -> None:
            self._loop.forget(descriptor)
            os.close(descriptor)
            if life == replica.life and replica.state is State.RUNNING:
                self._ended(replica)

        self._loop.watch(descriptor, READ, ended)

    # -- ending --------------------------------------------------------------------------------

    def _ended(self, replica: _Replica) -> None:
        """A process of the replica has ended. One that ended well waits for the others."""
        statuses = {p: status for p, x in replica.processes.items() if (status := x.poll()) is not None}
        failed = {p: status for p, status in statuses.items() if status != 0}
        if not failed:
            if len(statuses) == self._ranks:
                self._leave(replica, "it has trained to the end", State.DONE)
            return
        incarnation = self.incarnation(replica.number)
        for position, status in failed.items():
            if status not in (AGAIN, FOR_GOOD):
                self._log("crash", replica.number, incarnation, position, _cause(status))
        self._kill(replica)
        position, status = next(iter(failed.items()))
        good = FOR_GOOD in failed.values()
        self._leave(replica, f"rank {position} {_cause(status)}", State.AWAY if good else State.RESTING)

    def _leave(self, replica: _Replica, reason: str, state: State) -> None:
        """All of its processes are gone: end its lease, and start it again if it is to come back."""
        incarnation = self.incarnation(replica.number)
        if incarnation:
            self._calls += 1
            self._client.ask(self._calls, s.Expire(MemberId(replica.number, incarnation)))
        self._log("exit", replica.number, incarnation, reason, state is State.RESTING)
        if state is not State.DONE:
            replica.failures.append(Failure(time.time(), 0, replica.number, reason))
        replica.processes.clear()
        replica.state = state
        if state is State.RESTING:
            replica.life += 1
            self._loop.after(self._rest(replica), lambda: self._start(replica))
        self._tell(replica)

    def _tell(self, replica: _Replica) -> None:
        """Its state has changed: say so to who has asked, and to the store, for people who look."""
        self._client.publish(
            Report(
                "launcher",
                replica.number,
                self.incarnation(replica.number),
                time.time(),
                replica.state.value,
                failures=tuple(replica.failures),
            )
        )
        self._changed(replica.number)

    def _rest(self, replica: _Replica) -> float:
        """One that keeps crashing waits longer each time (design 3.5)."""
        short = self._loop.now() - replica.since < QUICK_S
        replica.quick = replica.quick + 1 if short else 0
        return min(self._longest_s, self._rest_s * 2.0 ** max(0, replica.quick - 1))

    def _kill(self, replica: _Replica) -> None:
        for process in replica.processes.values():
            process.kill()
        for process in replica.processes.values():
            process.wait()

    def close(self) -> None:
        """End every process that is still there."""
        for replica in self._replicas.values():
            if replica.state is State.RUNNING:
                replica.state = State.AWAY
                self._kill(replica)
        self._client.close()

    # -- the store, the log --------------------------------------------------------------------

    def _watched(self, change: s.Change) -> None:
        if isinstance(change, s.HeadChanged):
            self._registered = dict(enumerate(change.head.incarnations))

    def _log(self, kind: str, replica: Replica, incarnation: int, *fields: object) -> None:
        """A life that never registered has no name to be logged by."""
        if self._journal is not None and incarnation:
            self._journal([kind, self._journal.now(), replica, incarnation, *fields])


def _cause(status: int) -> str:
    """What a status of a process says, for people."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return {AGAIN: "left to be started anew", FOR_GOOD: "left for good"}.get(status, f"exited with {status}")
