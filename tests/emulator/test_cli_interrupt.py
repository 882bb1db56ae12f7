"""Ctrl-C as a process gets it: a signal, in the middle of a run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import faultinject
from tests.emulator.fake_run import ARGS

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import sys
from emulator import execute
from emulator.cli import main
from tests.emulator.fake_run import FakeEmulation
class Waiting(FakeEmulation):
    waits = True
execute.make_emulation = Waiting
main(["emulate", *sys.argv[1:]])
"""


def test_ctrl_c_loses_nothing(tmp_path):
    command = [sys.executable, "-c", PROGRAM, *ARGS, "--faults", "table", "--run-dir", "mine"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "dumb"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "interrupted at step" in told and "Traceback" not in told
    found = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert found["interrupted"] and found["steps_committed"] > 0
    assert faultinject.load(tmp_path / "mine" / "schedule.json").faults
    assert json.loads((tmp_path / "mine" / "trace.perfetto.json").read_text())["traceEvents"]
