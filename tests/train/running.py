"""Examples that run as a person runs them: what they say, which process is which rank, what they end with."""

from __future__ import annotations

import re
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
TIMEOUTS = "chunk=5,round=20,close=25,lease=21,seal=6,poll=2,store=1,start_grace=60,linger=300"
SMALL = ["--width", "32", "--depth", "1", "--timeouts", TIMEOUTS]


def await_line(file, pattern, seconds=300):
    """Wait until what was written to ``file`` has a line with ``pattern``."""
    end = time.monotonic() + seconds
    while not re.search(pattern, said := file.read_text()):
        assert time.monotonic() < end, said
        time.sleep(0.2)


def rank_of(process, replica, position):
    """The process of a rank below ``process``, found by what it was told of itself."""
    for child in process.children():
        told = child.environ()
        if told.get("FTHSDP_REPLICA") == str(replica) and told.get("RANK") == str(position):
            return child
    raise AssertionError("no such rank")


def shards(path):
    return [t.to_local() if hasattr(t, "to_local") else t for t in torch.load(path)]


def end_equal(one, other):
    """Whether the parameters in two files are equal to the bit."""
    return all(torch.equal(x, y) for x, y in zip(shards(one), shards(other), strict=True))
