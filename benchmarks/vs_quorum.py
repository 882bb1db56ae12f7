"""How long until all of N clients know of a decision, for `benchmarks/vs_torchft.py`.

torchft: N clients ask the lighthouse for a quorum at once, until the last has its answer.
Ours:    a leader asks the embedded store to commit, until the last of N watching clients knows; and the same
         with a vote of every client before it, as in a step of training.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from ftruntime.protocol import store as s
from ftruntime.protocol.head import Commit, Head, Status
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Base, Durations, Kind, Plan
from ftruntime.protocol.record import Held, Record, Stance
from ftruntime.stores import EmbeddedClient
from ftruntime.wire import Endpoint, Loop, Who

from .vs_jobs import ENVIRONMENT, HERE, lighthouse

TOKEN = "a token of the benchmark"

# Under torchft's interpreter. Threads wait in its compiled client, so they do not hold the interpreter.
CLIENTS = """
import json, sys, threading, time
from datetime import timedelta
from torchft.coordination import LighthouseClient
address, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
limit = timedelta(seconds=60)
clients = [LighthouseClient(address, limit) for _ in range(count)]
gate, over = threading.Barrier(count + 1), threading.Barrier(count + 1)
ends = [0.0] * count
def ask(i):
    for step in range(rounds):
        gate.wait()
        clients[i].quorum(f"replica_{i}", limit, "address", "store", step, 1, False)
        ends[i] = time.perf_counter()
        over.wait()
threading.stack_size(256 * 1024)
for i in range(count):
    threading.Thread(target=ask, args=(i,), daemon=True).start()
found = []
for _ in range(rounds):
    time.sleep(0.05)
    gate.wait()
    began = time.perf_counter()
    over.wait()
    found.append(max(ends) - began)
print(json.dumps(found))
"""


def torchft(python: str, count: int, rounds: int) -> list[float]:
    """Seconds of each quorum but the first, in which connections are made."""
    server, address = lighthouse(python, count, 60_000)
    try:
        told = subprocess.run(
            [python, "-c", CLIENTS, address, str(count), str(rounds + 1)], capture_output=True, text=True,
            env={**os.environ, **ENVIRONMENT}, timeout=180, check=True,
        )  # fmt: skip
    finally:
        server.kill()
        server.wait()
    return list(json.loads(told.stdout))[1:]


class Clients:
    """The embedded store in a process of its own, and ``count`` leaders that watch it, on one loop."""

    def __init__(self, count: int) -> None:
        self.members = [MemberId(replica, 1) for replica in range(count)]
        self._folder = tempfile.TemporaryDirectory()
        command = [
            sys.executable,
            "-m",
            "ftruntime.stores.serve",
            "--folder",
            self._folder.name,
            "--port",
            "0",
        ]
        environment = {**os.environ, **ENVIRONMENT, "FTHSDP_TOKEN": TOKEN, "PYTHONPATH": str(HERE.parent)}
        self._store = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        assert self._store.stdout is not None
        _, host, port = self._store.stdout.readline().split()
        self.loop, self.heads, self.records, self.version = Loop(), 0, 0, 0
        at = Endpoint(host, int(port))
        self.clients = [
            EmbeddedClient(
                self.loop, at, TOKEN.encode(), Who("rank", "job", replica), _ignore, self._changed, _ignore
            )
            for replica in range(count)
        ]  # fmt: skip
        self.until(lambda: all(client.up for client in self.clients))

    def _changed(self, change: s.Change) -> None:
        if isinstance(change, s.HeadChanged):
            self.heads += change.head.version == self.version
        elif isinstance(change, s.RecordChanged):
            self.records += 1

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.loop.turn()

    def head(self) -> Head:
        """As large as that of a job with so many contributors."""
        self.version += 1
        ranges = tuple((SampleRange(m.replica, self.version * 8, 8),) for m in self.members)
        base = Base(self.version, "l" * 32, (0,) * (8 * len(self.members)))
        plan = Plan(
            self.version, Kind.TRAIN, base, tuple(self.members), ranges, (), len(self.members), 1.0,
            Durations(120.0),
        )  # fmt: skip
        chain = (Commit(self.version, "l" * 32, self.version, tuple(self.members)),)
        incarnations = tuple((1, "0/0/00000000") for _ in self.members)
        return Head(self.version, 0, self.version, Status.RUNNING, plan, chain, incarnations)

    def commit(self) -> float:
        """Seconds from the leader's request to everybody's knowledge."""
        before = (0, 0) if self.version == 0 else (0, self.version)
        head, self.heads = self.head(), 0
        began = time.perf_counter()
        self.clients[0].ask(self.version, s.Cas(*before, head))
        self.until(lambda: self.heads == len(self.clients))
        return time.perf_counter() - began

    def vote(self) -> float:
        """Seconds until the leader that commits knows the votes of all: here, until all know all."""
        self.records = 0
        held = Held(self.version, "l" * 32, (0,) * (8 * len(self.members)))
        records = [Record(m, held, self.version, self.version, Stance.YES, True) for m in self.members]
        began = time.perf_counter()
        for client, record in zip(self.clients, records, strict=True):
            client.ask(0, s.Put(record))
        self.until(lambda: self.records == len(self.clients) ** 2)
        return time.perf_counter() - began

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._store.kill()
        self._store.wait()
        self._folder.cleanup()


def ours(count: int, rounds: int, most_votes: int) -> tuple[list[float], list[float]]:
    """Seconds of commits, and of whole rounds with their votes where there are not too many."""
    clients = Clients(count)
    try:
        commits = [clients.commit() for _ in range(rounds + 1)][1:]
        whole = []
        if count <= most_votes:
            whole = [clients.vote() + clients.commit() for _ in range(rounds)]
    finally:
        clients.close()
    return commits, whole


def _ignore(*_: object) -> None:
    """Nobody waits for it."""


def milliseconds(found: list[float]) -> float:
    return statistics.median(found) * 1000
