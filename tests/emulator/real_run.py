"""A run against real time in processes of its own, for tests that kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from conformance.checker import LogReader

LIMIT_S = 100.0  # for anything to happen: a loaded machine is slow
SPEED = 40
JOB = ["--replicas", "4", "--ranks-per-replica", "2", "--workers", "3", "--speed", str(SPEED)]
CLI = "from emulator.cli import main; main()"


class RealRun:
    """``fthsdp emulate --clock wall`` in ``folder``; a context that leaves nothing behind.

    namespace:     of the network, in which all of its processes run
    seen:          pids of all workers that were ever seen
    last_workers:  those that were there when the run was looked at last
    """

    def __init__(self, folder: Path, steps: int, *options: str, namespace: str = "") -> None:
        self.folder = folder
        self.seen: set[int] = set()
        self.last_workers: dict[int, dict[str, Any]] = {}
        command = [sys.executable, "-c", CLI, "emulate", "--clock", "wall", "--json", "-q", *JOB, *options]
        if namespace:
            command = ["ip", "netns", "exec", namespace, *command]
        self.process = subprocess.Popen(
            [*command, "--steps", str(steps), "--run-dir", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> RealRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        for pid in self.seen:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)

    # -- what there is ---------------------------------------------------------------------------------

    def workers(self) -> dict[int, dict[str, Any]]:
        """By number; none while none is there."""
        try:
            found = json.loads((self.folder / "workers.json").read_text())
        except FileNotFoundError:
            return {}
        self.seen |= {worker["pid"] for worker in found}
        self.last_workers = {worker["worker"]: worker for worker in found}
        return self.last_workers

    def entries(self) -> list[list[Any]]:
        """Of the event log so far."""
        log = self.folder / "events.log"
        return list(LogReader(log)) if log.exists() else []

    def count(self, kind: str, matches: Callable[[list[Any]], bool] = lambda entry: True) -> int:
        return sum(entry[0] == kind and matches(entry) for entry in self.entries())

    @property
    def steps(self) -> int:
        return self.count("head", lambda entry: entry[7] is not None and entry[7]["outcome"] == "committed")

    # -- what happens --------------------------------------------------------------------------------------

    def until(self, true: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT_S
        while not true():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < limit, "it did not come to that"
            self.workers()
            time.sleep(0.1)

    def signal(self, worker: int, number: int) -> None:
        os.kill(self.workers()[worker]["pid"], number)

    def end(self) -> dict[str, Any]:
        """The summary of a run in which all invariants held, and of which no process is left."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, (out, err)
        assert self.left() == []
        found: dict[str, Any] = json.loads(out)
        assert found["complete"]
        return found

    def stop(self, more: int = 3) -> dict[str, Any]:
        """The summary of a run that is interrupted ``more`` steps later: none was violated, nobody is left.

        How many steps a run needs to see what it is to see is a question of how fast workers start here."""
        steps = self.steps + more
        self.until(lambda: self.steps >= steps)
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 130, (out, err)
        assert self.left() == []
        found: dict[str, Any] = json.loads(out)
        assert not any(each["violated"] for each in found["invariants"].values()), found["invariants"]
        return found

    def left(self) -> list[int]:
        """Workers that still are there, though the run is over."""
        limit = time.monotonic() + 5.0
        while (left := [pid for pid in self.seen if psutil.pid_exists(pid)]) and time.monotonic() < limit:
            time.sleep(0.05)
        return left
