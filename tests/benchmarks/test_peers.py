"""The arithmetic of the comparison with the public peers, and that a run leaves no process behind."""

from __future__ import annotations

import sys

import psutil
import pytest

from benchmarks.peer_attempts import Limits, attempt
from benchmarks.peer_figures import (
    HEADINGS,
    Row,
    bytes_text,
    cells,
    largest,
    markdown,
    ratio_cells,
    ratios,
    seconds_text,
    times_text,
)

EMULATOR = Row("emulate", "emulate", 12, 98_304, bytes_a_rank=1024, step_seconds=10)


@pytest.mark.parametrize("start", [1, 4, 64, 1000])
@pytest.mark.parametrize("limit", [1, 3, 50, 777])
def test_the_search_brackets_the_limit(start, limit):
    tried = []
    good, bad = largest(start, lambda size: tried.append(size) or size <= limit, refine=1)
    assert good <= limit < bad and bad <= 2 * max(good, 1)
    assert len(set(tried)) == len(tried)


def test_refining_narrows_to_the_limit():
    assert largest(8, lambda size: size <= 777, refine=20) == (777, 778)


def test_the_search_ends_where_nothing_or_everything_finishes():
    assert largest(16, lambda size: False) == (0, 1)
    assert largest(16, lambda size: True, top=100) == (64, 0)


def test_ratios_say_how_many_times_better_the_emulator_did():
    row = Row("gloo", "gloo", 96, 96, bytes_a_rank=2048, step_seconds=0.01, same_job_seconds=0.1)
    found = ratios(row, EMULATOR)
    assert found["ranks"] == 1024 and found["bytes_a_rank"] == 2
    assert found["rank_steps_a_second"] == pytest.approx(9830.4 / 9600)
    assert found["same_job_step_seconds"] == pytest.approx(0.1)


def test_what_was_not_measured_is_a_dash_or_a_reason():
    row = Row("gloo", "gloo", 96, 96, bytes_a_rank=2048, step_seconds=0.01)
    assert ratio_cells(row, EMULATOR)[-1] == "-"
    row.same_job_why = "time: over 60 s"
    assert "did not finish" in ratio_cells(row, EMULATOR)[-1]
    absent = cells(Row("torchft", "torchft", why="not installed: pip install torchft-nightly"))
    assert len(absent) == len(HEADINGS) and "not installed" in absent[3]


def test_figures_are_short():
    assert [bytes_text(n) for n in (12, 4096, 5 << 20, 3 << 30)] == ["12 B", "4 KiB", "5 MiB", "3 GiB"]
    assert [seconds_text(s) for s in (0.00123, 2.345)] == ["1.23 ms", "2.35 s"]
    assert [times_text(r) for r in (None, 0.0123, 7.77, 1234.5)] == ["-", "0.012 x", "7.8 x", "1,234 x"]


def test_a_bar_does_not_break_the_table():
    assert markdown(["a", "b"], [["1|2", "3"]]) == "| a | b |\n| --- | --- |\n| 1/2 | 3 |"


TWO = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep({0})']); {1}"


@pytest.mark.parametrize("then", ["import time; time.sleep(4321)", "sys.exit(3)"])
def test_a_run_over_its_limit_or_dead_leaves_no_process(then, tmp_path):
    mark = "4321.25" if "sleep" in then else "4321.5"
    limit = 0.5 if "sleep" in then else 30
    found = attempt([sys.executable, "-c", TWO.format(mark, then)], str(tmp_path), Limits(1, limit))
    assert found.why.startswith("time: over 0.5 s" if "sleep" in then else "ended by itself, status")
    assert not [p for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]
