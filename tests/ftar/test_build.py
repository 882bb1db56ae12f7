"""The kernels compile for a GPU that is not here, and what comes out keeps the rules of the flags."""

import json
import os
import re
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def built():
    words = [sys.executable, "-m", "ftruntime.ftar.build", "--arch", "90", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_512_threads_fit_and_nothing_is_spilled(built):
    assert [row["dtype"] for row in built] == ["float32", "bfloat16", "float16"]
    for row in built:
        assert row["registers"] <= 65536 // 512 and row["spilled"] == 0 and row["cubin_bytes"] > 0, row


def test_flags_are_ordered_for_the_whole_system(built):
    for row in built:
        ptx = row["ptx"]
        assert "fence.acq_rel.sys" in ptx, "data is read after TAIL"
        assert re.search(r"atom\.global\.sys\.release\.exch", ptx), "HEAD is written after data"
        atomics = re.findall(r"\b(?:atom|red)\.\S+", ptx)
        assert len(atomics) == 1, f"the host's words are only read: {atomics}"


def test_data_moves_in_vectors_of_16_bytes(built):
    for row in built:
        loads = re.findall(r"ld\.global(\S*) ", row["ptx"])
        assert loads and all(kind == ".v4.b32" for kind in loads), loads


def test_interpreted_kernels_are_not_compiled():
    words = [sys.executable, "-m", "ftruntime.ftar.build"]
    ended = subprocess.run(words, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert ended.returncode != 0 and "unset it" in ended.stderr and "Traceback" not in ended.stderr
