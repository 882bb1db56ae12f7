"""Jobs of both systems for `benchmarks/vs_torchft.py`: processes that train, die, stop and come back.

A job of either kind is driven alike: ranks report what they do to files, and the parent kills by pid. What a
stall is, is worked out from the survivors' own reports: the longest time between two of their commits.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ftruntime.launch import Launcher
from ftruntime.protocol.config import CatchUp, Ftar, JobConfig, Timeouts, check
from ftruntime.wire import Endpoint, Loop

HERE = Path(__file__).resolve().parent
HOME = "127.0.0.1"
ENVIRONMENT = {"RES_OPTIONS": "timeout:1 attempts:1", "OMP_NUM_THREADS": "1", "RUST_LOG": "error"}
NEVER = -1
DEFAULT = 0.0  # patience: whatever the system does by itself
TORCHFT_DEFAULT_S = 60.0
Entry = list[Any]  # [seconds, what, step, members, more]

# The same patience as torchft's `timeout`: a neighbour is named after two of `chunk`.
PATIENT = Timeouts(
    chunk=1.0, round=6.0, seal=2.0, close=8.0, lease=7.0, store=0.5, poll=1.0, range=2.0, start_grace=60.0
)


class Lost(RuntimeError):
    """What was waited for did not happen in time."""


@dataclass
class Shape:
    """What a job is like.

    patience: seconds after which who makes no progress is given up; 0: the system's own default
    fail_at:  {replica: step} at which the rank fails after a good all-reduce, before it votes
    """

    replicas: int = 3
    compute_s: float = 0.05
    elements: int = 1
    state_bytes: int = 4096
    patience: float = DEFAULT
    min_replicas: int = 2
    stop_at: dict[int, int] = field(default_factory=dict)
    fail_at: dict[int, int] = field(default_factory=dict)
    tell_at: int = NEVER
    rest_s: float = 2.0  # before a replica is started again
    late: tuple[int, ...] = ()  # replicas that are started when the case says so

    def rank(self, replica: int, life: int, report: Path, die_joining: bool) -> dict[str, Any]:
        """What its rank is told, whichever system it is of."""
        first = life == 0
        return {
            "replica": replica, "life": life, "report": str(report), "die_joining": die_joining,
            "replicas": self.replicas, "compute_s": self.compute_s, "elements": self.elements,
            "state_bytes": self.state_bytes, "min_replicas": self.min_replicas, "tell_at": self.tell_at,
            "stop_at": self.stop_at.get(replica, NEVER) if first else NEVER,
            "fail_at": self.fail_at.get(replica, NEVER) if first else NEVER,
        }  # fmt: skip


class Job(abc.ABC):
    """A running job: what its ranks have reported. The subclasses start and end processes."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.stack = contextlib.ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.die_joining: set[int] = set()  # replicas whose next life dies while it joins
        self._read: dict[Path, int] = {}
        self._entries: dict[int, list[Entry]] = {r: [] for r in range(shape.replicas)}

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.stack.close()

    @abc.abstractmethod
    def close(self) -> None:
        """End every process."""

    @abc.abstractmethod
    def start(self, replica: int) -> None:
        """One that is late."""

    @abc.abstractmethod
    def pid(self, replica: int) -> int:
        """Of its present life."""

    @abc.abstractmethod
    def turn(self) -> None:
        """Wait a moment, and start again what has ended."""

    def report(self, replica: int, life: int) -> Path:
        return self.folder / f"{replica}-{life}.report"

    def entries(self, replica: int) -> list[Entry]:
        """Of all its lives; what was read before is not read again, as reading costs the ranks their time."""
        for path in sorted(self.folder.glob(f"{replica}-*.report")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                self._entries[replica] += [json.loads(line) for line in whole.splitlines()]
        return self._entries[replica]

    def commits(self, replica: int) -> list[Entry]:
        return [entry for entry in self.entries(replica) if entry[1] == "commit"]

    def newest(self, replica: int) -> Entry:
        """The last commit of a replica; zeros before the first."""
        return (self.commits(replica) or [[0.0, "commit", 0, 0, None]])[-1]

    def until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Raises Lost."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise Lost(f"{what}: not within {seconds:g} s\n{self.words()}")
            self.turn()

    def words(self) -> str:
        """The last words of the ranks, for who must find out why."""
        last = [path.read_text(errors="replace").strip()[-400:] for path in self.folder.glob("*.err")]
        return "\n".join(word for word in last if word)

    def whole(self, steps: int = 5, seconds: float = 90.0) -> None:
        """Wait for so many steps of all replicas together, from now on."""
        goal = self.newest(0)[2]
        everyone = range(self.shape.replicas)

        def there() -> bool:
            newest = [self.newest(r) for r in everyone]
            return all(c[2] >= goal + steps and c[3] == self.shape.replicas for c in newest)

        self.until(there, seconds, f"{steps} steps of all {self.shape.replicas} replicas")

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def kill(self, replica: int) -> float:
        """SIGKILL; when."""
        now = time.monotonic()
        os.kill(self.pid(replica), signal.SIGKILL)
        return now

    def gap(self, replicas: list[int], begin: float, end: float) -> float:
        """The longest time between two commits of a survivor that touches (begin, end)."""
        worst = 0.0
        for replica in replicas:
            times = [entry[0] for entry in self.commits(replica)]
            worst = max([worst, *(b - a for a, b in pairwise(times) if b > begin and a < end)])
        return worst

    def step_s(self, replica: int, end: float) -> float:
        """The median step before ``end``, of the last twenty."""
        times = [entry[0] for entry in self.commits(replica) if entry[0] < end][-21:]
        return statistics.median(b - a for a, b in pairwise(times))


class Ours(Job):
    """The embedded store, the launcher, and a driver for each replica."""

    def __init__(self, shape: Shape, python: str) -> None:
        super().__init__(shape)
        self._token = secrets.token_hex(16)
        timeouts = Timeouts() if shape.patience == DEFAULT else PATIENT
        if shape.late:  # nobody is waited for at the start, in either system
            timeouts = msgspec.structs.replace(timeouts, start_grace=1.0)
        size = 4 * shape.elements
        chunk = max(64, min(1 << 20, size // shape.replicas // 16 * 16))
        self._config = check(
            JobConfig(
                replicas=shape.replicas, ranks_per_replica=1, min_replicas=1, streams=shape.replicas,
                samples_per_step=1, lr_scaling="none", max_stream_lag=64,
                ftar=Ftar(buckets=(size,), chunk_bytes=chunk),
                catch_up=CatchUp(ranges=32), timeouts=timeouts,
            )
        )  # fmt: skip
        environment = {
            **os.environ,
            **ENVIRONMENT,
            "FTHSDP_TOKEN": self._token,
            "PYTHONPATH": str(HERE.parent),
        }
        self._environment = environment
        command = [sys.executable, "-m", "ftruntime.stores.serve", "--folder", str(self.folder / "store")]
        self._store = subprocess.Popen(
            [*command, "--port", "0"],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,
        )
        assert self._store.stdout is not None
        _, host, port = self._store.stdout.readline().split()
        self._at = f"{host}:{port}"
        self._loop = Loop()
        self._endpoint = Endpoint(host, int(port))
        self._launchers: list[Launcher] = []
        self._launch([replica for replica in range(shape.replicas) if replica not in shape.late])

    def _launch(self, replicas: list[int]) -> None:
        self._launchers.append(
            Launcher(
                self._loop, replicas, 1, self._spawn, self._endpoint, self._token.encode(), "job",
                self.folder / "lives", rest_s=self.shape.rest_s,
            )
        )  # fmt: skip

    def start(self, replica: int) -> None:
        self._launch([replica])

    def _spawn(self, replica: int, position: int, life: int) -> subprocess.Popen[bytes]:
        dies = replica in self.die_joining
        self.die_joining -= {replica} if dies else set()
        told = self.shape.rank(replica, life, self.report(replica, life), dies)
        told |= {"store": self._at, "token": self._token, "config": msgspec.to_builtins(self._config)}
        with open(self.folder / f"{replica}-{life}.err", "wb") as errors:
            command = [sys.executable, str(HERE / "vs_rank_ours.py"), json.dumps(told)]
            return subprocess.Popen(command, env=self._environment, stderr=errors, start_new_session=True)

    def pid(self, replica: int) -> int:
        return self._launchers[0].pid(replica, 0)

    def turn(self) -> None:
        """The launcher's loop: a death is seen at once."""
        timer = self._loop.after(0.02, lambda: None)
        self._loop.turn()
        timer.cancel()

    def close(self) -> None:
        for launcher in self._launchers:
            launcher.close()
        self._store.kill()
        self._store.wait()


class TorchFT(Job):
    """The lighthouse and a Manager for each replica, started again as its launcher would."""

    def __init__(self, shape: Shape, python: str) -> None:
        super().__init__(shape)
        self._python = python
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lives = dict.fromkeys(range(shape.replicas), 0)
        self._due: dict[int, float] = {}
        self._lighthouse, self._at = lighthouse(python, shape.min_replicas, 1000 if shape.patience else 0)
        for replica in range(shape.replicas):
            if replica not in shape.late:
                self.start(replica)

    def start(self, replica: int) -> None:
        life = self._lives[replica]
        dies = replica in self.die_joining
        self.die_joining -= {replica} if dies else set()
        told = self.shape.rank(replica, life, self.report(replica, life), dies)
        told |= {"lighthouse": self._at, "patience": self.shape.patience or TORCHFT_DEFAULT_S}
        with open(self.folder / f"{replica}-{life}.err", "wb") as errors:
            command = [self._python, str(HERE / "vs_rank_torchft.py"), json.dumps(told)]
            self._processes[replica] = subprocess.Popen(
                command,
                env={**os.environ, **ENVIRONMENT},
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    def pid(self, replica: int) -> int:
        return self._processes[replica].pid

    def turn(self) -> None:
        time.sleep(0.02)
        now = time.monotonic()
        for replica, process in self._processes.items():
            if process.poll() is None:
                continue
            due = self._due.setdefault(replica, now + self.shape.rest_s)
            if now >= due:
                self._lives[replica] += 1
                del self._due[replica]
                self.start(replica)

    def close(self) -> None:
        for process in [*self._processes.values(), self._lighthouse]:
            process.kill()
            process.wait()


LIGHTHOUSE = """
import sys, ctypes
ctypes.CDLL(None).prctl(1, 9)
from torchft.coordination import LighthouseServer
more = {"heartbeat_timeout_ms": int(sys.argv[2])} if int(sys.argv[2]) else {}
server = LighthouseServer(bind="[::]:0", min_replicas=int(sys.argv[1]), **more)
print(server.address(), flush=True)
sys.stdin.read()
"""


def lighthouse(python: str, min_replicas: int, heartbeat_ms: int) -> tuple[subprocess.Popen[str], str]:
    """torchft's lighthouse in a process of its own, and its address; 0: its default heartbeat time-out."""
    process = subprocess.Popen(
        [python, "-c", LIGHTHOUSE, str(min_replicas), str(heartbeat_ms)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert process.stdout is not None
    port = process.stdout.readline().strip().rpartition(":")[2].strip("/")
    return process, f"http://{HOME}:{port}"
