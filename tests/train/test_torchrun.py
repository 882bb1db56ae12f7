"""torchrun, one for each replica, with the commands of docs/driver.md: a rank is killed, and all end well."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch")

from conformance.checker.reader import LogReader

from .running import ROOT, SMALL, await_line, end_equal, rank_of

STEPS = 80


def commands():
    """The three commands of the page: the token, the store, and the torchrun of one replica."""
    page = (ROOT / "docs/driver.md").read_text(encoding="utf-8")
    block = next(b for b in re.findall(r"```sh\n(.*?)```", page, re.S) if "torchrun" in b)
    token, store, replica = re.sub(r"\\\n\s*", "", block).splitlines()
    return token, store.split("#")[0], replica.split("#")[0]


def changed(command, words):
    """``command`` with the values of this machine in place of the page's; each must be there."""
    for old, new in words.items():
        assert old in command, f"the page no longer says {old}"
        command = command.replace(old, new)
    return command


class Job:
    """The store and a torchrun for each of two replicas, in ``folder``."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        token, store, replica = commands()
        self.environment = {
            **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT), "RES_OPTIONS": "timeout:1 attempts:1", "FTHSDP_JOURNALS": str(folder),
        }  # fmt: skip
        self.environment["FTHSDP_TOKEN"] = self._shell(f"{token}; echo $FTHSDP_TOKEN")
        store = changed(store, {"eth0": "lo", "29600": "0", "python": "exec python"})
        port = self._served(self._start(store, subprocess.PIPE))
        mine = {"eth0": "lo", "host:29600": f"127.0.0.1:{port}", "REPLICAS=3": "REPLICAS=2"}
        mine |= {"examples/": f"{ROOT}/examples/", "torchrun": "exec torchrun"}
        command = f"{changed(replica, mine)} {' '.join(SMALL)} --steps {STEPS} --save {folder / 'p'}"
        numbers = [changed(command, {"REPLICA=0": f"REPLICA={r}"}) for r in range(2)]
        self.torchruns = [self._start(numbers[r], self.out(r).open("wb")) for r in range(2)]

    def _shell(self, command):
        return subprocess.check_output(["bash", "-c", command], env=self.environment, text=True).strip()

    def _start(self, command, out):
        process = subprocess.Popen(
            ["bash", "-c", command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.folder,
        )
        self.processes.append(process)
        return process

    def _served(self, store):
        assert select.select([store.stdout], [], [], 60)[0], "the store did not come up"
        return store.stdout.readline().split()[-1].decode()

    def out(self, replica):
        return self.folder / f"out.{replica}"

    def close(self):
        for process in self.processes:
            process.terminate()  # torchrun ends its ranks
        for process in self.processes:
            process.wait(60)


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    made.close()


def test_torchrun_starts_a_replica_again_and_all_end_well(job):
    await_line(job.out(1), r"replica 1 step 10 ")
    rank_of(psutil.Process(job.torchruns[1].pid), 1, 1).send_signal(signal.SIGKILL)
    said = [f"{job.out(r).read_text()}" for r in range(2)]
    assert [process.wait(400) for process in job.torchruns] == [0, 0], said
    assert (job.folder / "1-0-1.log").exists(), "its second life knows that it is one"
    assert not (job.folder / "0-0-1.log").exists(), "nobody else was started again"
    applied = [e for e in LogReader(job.folder / "0-0-0.log") if e[0] == "applied"]
    assert {e[11] for e in applied} == {8, 16}, "meanwhile the other replica trained alone"
    assert end_equal(job.folder / "p.0", job.folder / "p.1")
