"""Kernels are interpreted here, and only here: the switch is put back after each test."""

import importlib.util
import os

import pytest

collect_ignore_glob = []
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob.append("test_*.py")  # pip install 'fthsdp[cuda]' brings it
else:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import ftruntime.ftar.kernels

    assert ftruntime.ftar.kernels.INTERPRETED, f"imported before {os.path.basename(__file__)}, and compiled"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Triton looks at the switch again when a kernel first runs."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
