"""The example as a person runs it: FSDP2 over two ranks, a kill, and replicas that end equal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

pytest.importorskip("torch")

from .running import ROOT, SMALL, await_line, end_equal, rank_of


def start(folder, steps):
    command = [sys.executable, "-m", "ftruntime.launch", "--replicas", "2", "--ranks", "2", "--rest", "0.2"]
    command += ["--folder", str(folder / "run"), "--", str(ROOT / "examples/train_lm.py"), *SMALL]
    command += ["--steps", str(steps), "--save", str(folder / "p")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RES_OPTIONS": "timeout:1 attempts:1"}
    out = (folder / "out").open("wb")
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)


def test_the_example_survives_a_kill_and_all_replicas_end_with_the_same_bits(tmp_path):
    job = start(tmp_path, 300)
    try:
        await_line(tmp_path / "out", r"step 10 ")
        rank_of(psutil.Process(job.pid), 1, 1).send_signal(signal.SIGKILL)
        assert job.wait(400) == 0, (tmp_path / "out").read_text()
    finally:
        job.terminate()
        job.wait()
    said = (tmp_path / "out").read_text()
    assert "replica 1, life 1: running" in said and "replica 0, life 0: done" in said
    losses = [float(x) for x in re.findall(r"replica 0 step \d+ loss ([\d.]+)", said)]
    assert losses[-1] < losses[0] - 1.0
    assert end_equal(tmp_path / "p.0", tmp_path / "p.1")
