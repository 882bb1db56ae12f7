"""What a person who only looks, or only emulates fingerprints, must not pay for: torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIGHT = (
    "ftruntime",
    "ftruntime.protocol",
    "ftruntime.data",
    "ftruntime.store",
    "ftruntime.stores",
    "ftruntime.log",
    "ftruntime.wire",
    "ftruntime.driver",
    "ftruntime.launch",
    "ftruntime.observe",
    "ftruntime.observe.command",
    "emulator",
    "emulator.cli",
    "emulator.corpus",
    "faultinject",
    "faultinject.explore",
    "conformance",
)


@pytest.mark.parametrize("module", LIGHT)
def test_torch_stays_out(module):
    program = f"import {module}, sys; print(sorted(m for m in sys.modules if m.split('.')[0] == 'torch'))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
