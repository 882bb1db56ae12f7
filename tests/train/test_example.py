"""The example as a person runs it: FSDP2 over two ranks, a kill, and replicas that end equal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
TIMEOUTS = "chunk=5,round=20,close=25,lease=21,seal=6,poll=2,store=1,start_grace=60"


def start(folder, steps):
    command = [sys.executable, "-m", "ftruntime.launch", "--replicas", "2", "--ranks", "2", "--rest", "0.2"]
    command += ["--folder", str(folder / "run"), "--", str(ROOT / "examples/train_lm.py"), "--width", "32"]
    command += ["--depth", "1", "--steps", str(steps), "--save", str(folder / "p"), "--timeouts", TIMEOUTS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RES_OPTIONS": "timeout:1 attempts:1"}
    out = (folder / "out").open("wb")
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)


def await_line(folder, pattern, seconds=150):
    end = time.monotonic() + seconds
    while not re.search(pattern, said := (folder / "out").read_text()):
        assert time.monotonic() < end, said
        time.sleep(0.2)


def rank_of(process, replica, position):
    """The process of a rank, found by what it was told of itself."""
    for child in process.children():
        told = child.environ()
        if told.get("FTHSDP_REPLICA") == str(replica) and told.get("RANK") == str(position):
            return child
    raise AssertionError("no such rank")


def shards(path):
    return [t.to_local() if hasattr(t, "to_local") else t for t in torch.load(path)]


def test_the_example_survives_a_kill_and_all_replicas_end_with_the_same_bits(tmp_path):
    job = start(tmp_path, 300)
    try:
        await_line(tmp_path, r"step 10 ")
        rank_of(psutil.Process(job.pid), 1, 1).send_signal(signal.SIGKILL)
        assert job.wait(200) == 0, (tmp_path / "out").read_text()
    finally:
        job.terminate()
        job.wait()
    said = (tmp_path / "out").read_text()
    assert "replica 1, life 1: running" in said and "replica 0, life 0: done" in said
    losses = [float(x) for x in re.findall(r"replica 0 step \d+ loss ([\d.]+)", said)]
    assert losses[-1] < losses[0] - 1.0
    for one, other in zip(shards(tmp_path / "p.0"), shards(tmp_path / "p.1"), strict=True):
        assert torch.equal(one, other)
