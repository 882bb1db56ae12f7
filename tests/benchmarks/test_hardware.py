"""The hardware check runs where there is none, and compares what it says it compares."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("nixl_cu12", reason="pip install 'fthsdp[rdma]' brings nixl")
pytest.importorskip("triton", reason="pip install 'fthsdp[cuda]' brings Triton")


def test_it_runs_without_hardware():
    words = [sys.executable, "benchmarks/hardware.py", "--quick", "--json"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert all(row["right"] and row["ftar_s"] > 0 for row in found["rows"]) and len(found["rows"]) == 2
    assert found["control_s_a_chunk"] > 0


def test_one_member_is_refused():
    words = [sys.executable, "benchmarks/hardware.py", "--members", "1"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ended.returncode != 0 and "write 2 or more" in ended.stderr and "Traceback" not in ended.stderr
