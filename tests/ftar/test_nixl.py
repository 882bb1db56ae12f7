"""Ranks as processes on nixl: real one-sided writes, real deaths. Its kernels are interpreted."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from ftruntime.ftar.wire_errors import CLASSES
from ftruntime.protocol.errors import ErrorClass

nixl = pytest.importorskip("nixl_cu12", reason="pip install 'fthsdp[rdma]' brings nixl")

BOUND_S = 150


class Ranks:
    """``count`` processes, and what each of them says."""

    def __init__(self, folder, count, rounds, **options):
        job = {
            "folder": str(folder), "count": count, "rounds": rounds, "dtype": "float32", "slots": 4,
            "chunk_bytes": 1024, "checked": False, "sizes": [4 * 3000, 4 * 5], "patience": 20.0, **options,
        }  # fmt: skip
        self.said = [queue.Queue() for _ in range(count)]
        self.processes = []
        for replica in range(count):
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.ftar.nixl_rank", json.dumps({**job, "replica": replica})],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self.processes.append(process)
            threading.Thread(target=self._listen, args=(replica, process), daemon=True).start()

    def _listen(self, replica, process):
        for line in process.stdout:
            if line.startswith("{"):
                self.said[replica].put(json.loads(line))
        self.said[replica].put({"ended": True})

    def hear(self, replica, key, value=None):
        """The next thing that rank says of ``key``."""
        until = time.monotonic() + BOUND_S
        while True:
            said = self.said[replica].get(timeout=max(0.1, until - time.monotonic()))
            if key in said and value in (None, said[key]):
                return said
            assert "ended" not in said, f"rank {replica} ended before it said {key}"

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture
def ranks(tmp_path):
    made = []

    def make(*arguments, **options):
        made.append(Ranks(tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for job in made:
        job.end()


def test_sums_are_the_reference_over_changing_members(ranks):
    job = ranks(3, [[0, 1, 2], [0, 2], [1, 2], [0, 1, 2]], checked=True)
    for replica, rounds in ((0, (1, 2, 4)), (1, (1, 3, 4)), (2, (1, 2, 3, 4))):
        for round in rounds:
            said = job.hear(replica, "round", round)
            assert said["ok"], said
        job.hear(replica, "closed")
    assert [process.wait(BOUND_S) for process in job.processes] == [0, 0, 0], "nixl ends without a crash"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_stands_still_costs_one_round(ranks, how):
    job = ranks(3, [[0, 1, 2], [0, 1, 2], [0, 2]], patience=2.0, sizes=[4 * 15_000])
    assert job.hear(0, "round", 1)["ok"] and job.hear(2, "round", 1)["ok"]
    job.hear(1, "begins", 2)
    os.kill(job.processes[1].pid, how)
    failed = [job.hear(replica, "round", 2) for replica in (0, 2)]
    assert all(not said["ok"] for said in failed), failed
    assert all(said["kind"] == ErrorClass.PEER_LOST.name and said["accused"] == [1] for said in failed), (
        failed
    )
    for replica in (0, 2):
        said = job.hear(replica, "round", 3)
        assert said["ok"], said
    if how == signal.SIGSTOP:
        os.kill(job.processes[1].pid, signal.SIGCONT)
    for replica in (0, 2):
        job.hear(replica, "closed")
        assert job.processes[replica].wait(BOUND_S) == 0


def test_every_status_that_nixl_has_is_known():
    from nixl_cu12 import _bindings as bindings

    known = {status for statuses in CLASSES.values() for status in statuses}
    ours = {"NIXL_ERR_NOT_POSTED"}  # cannot be: a transfer that was not posted is never asked after
    assert {name for name in dir(bindings) if name.startswith("NIXL_ERR_")} <= known | ours
