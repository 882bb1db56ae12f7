"""Kernels are interpreted here (tests/conftest.py), and are not there without Triton."""

import importlib.util

collect_ignore_glob = []
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob.append("test_*.py")  # pip install 'fthsdp[cuda]' brings it
else:
    import ftruntime.ftar.kernels

    assert ftruntime.ftar.kernels.INTERPRETED, "Triton was imported before tests/conftest.py"
