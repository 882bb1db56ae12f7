"""The object of summary.json, and the tables."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from emulator.settings_file import make_settings
from emulator.stalls import Stalls
from emulator.summary import Measured, clock, peak_rss, show, summary, verdict
from faultinject import CAUSES
from faultinject.vocabulary import Crash, Hang, Slow

KEYS = {
    "ranks", "replicas", "ranks_per_replica", "steps_committed", "rounds", "virtual_seconds", "wall_seconds",
    "peak_rss_bytes", "messages", "faults_injected", "effective_training_time", "stall_seconds", "invariants",
    "trace_hash",
}  # fmt: skip


def _summary(steps=200, invariants=None, faults="none", mtbf_minutes=None, **measured):
    counts = SimpleNamespace(
        now=4321.5,
        steps_committed=200,
        rounds=207,
        messages=1_234_567,
        folded=None,
        faults_injected=[
            Crash(rank=(0, 0), at=1.0, cause="HBM3 memory"),
            Crash(rank=(0, 1), at=2.0, cause="HBM3 memory"),
            Hang(rank=(1, 1), at=3.0, cause="NCCL time-out"),
            Slow(replica=1, at=3.0, factor=2.0, duration=9.0),
        ],
    )
    lost = {"detect": 60.0, "reconfigure": 2.0, "retry": 20.0, "join": 5.0, "other": 0.5}
    stalls = Stalls(20.25, lost, 0.876543, 207, 202, 2)
    values = {"wall_seconds": 12.5, "check_seconds": 1.25, "peak_rss_bytes": 300 << 20}
    known = {"trace_hash": "ab" * 16, "trace_sums": {-1: (3, 255), 0: (10, 1)}}
    found = {"agreement": {"checked": 5, "violated": 0}} if invariants is None else invariants
    return summary(
        make_settings({"steps": steps, "faults": faults, "mtbf_minutes": mtbf_minutes}),
        counts,
        stalls,
        found,
        Measured(**values, **known, **measured),
    )


def test_it_has_every_key_that_was_promised_and_is_json():
    found = json.loads(json.dumps(_summary()))
    assert set(found) >= KEYS
    assert (found["ranks"], found["replicas"], found["ranks_per_replica"]) == (768, 12, 64)
    assert (found["steps_committed"], found["rounds"], found["messages"]) == (200, 207, 1_234_567)
    assert (found["virtual_seconds"], found["wall_seconds"], found["faults_injected"]) == (4321.5, 12.5, 4)
    assert found["stall_seconds"] == {"detect": 60, "reconfigure": 2, "retry": 20, "join": 5, "other": 0.5}
    assert found["effective_training_time"] == 0.876543
    assert found["invariants"] == {"agreement": {"checked": 5, "violated": 0}}
    assert found["trace_hash"] == "ab" * 16
    assert found["trace_sums"] == {"job": [3, "00000000000000ff"], "0": [10, "0000000000000001"]}


def test_faults_are_split_up_by_kind_and_cause():
    found = _summary()
    assert found["faults_by_kind"] == {"crash": 2, "hang": 1, "slow": 1}
    assert found["causes"] == {"HBM3 memory": 2, "NCCL time-out": 1}


def test_a_run_with_drawn_faults_tells_of_every_cause_and_the_mtbf():
    assert _summary()["mtbf_seconds"] is None
    found = _summary(faults="table", mtbf_minutes=5.0)
    assert set(found["causes"]) == {cause.name for cause in CAUSES} and found["causes"]["kernel"] == 0
    assert found["mtbf_seconds"] == 300.0


def test_it_says_whether_the_run_is_whole():
    assert (_summary()["complete"], _summary()["interrupted"], _summary()["error"]) == (True, False, "")
    assert not _summary(steps=201)["complete"]
    assert _summary(interrupted=True)["interrupted"]
    assert _summary(error="AssertionError: x")["error"] == "AssertionError: x"


@pytest.mark.parametrize(
    ("checked", "violated", "expected", "word"),
    [
        (5, 0, True, "held"),
        (5, 2, True, "VIOLATED"),
        (0, 0, True, "NEVER CHECKED"),
        (0, 0, False, "not exercised"),
    ],
)
def test_verdicts(checked, violated, expected, word):
    found = {"checked": checked, "violated": violated}
    assert verdict("fencing", found, frozenset({"fencing"} if expected else ())) == word


def test_the_tables_show_what_a_person_wants_to_know():
    invariants = {
        "agreement": {"checked": 9_876, "violated": 0},
        "fencing": {"checked": 0, "violated": 0},
        "gradient": {"checked": 4, "violated": 3},
    }
    out = io.StringIO()
    show(_summary(invariants=invariants), frozenset({"fencing"}), Console(file=out, width=110))
    text = out.getvalue()
    for words in (
        "768 ranks",
        "200 in 207 rounds",
        "1:12:01",
        "87.7%",
        "300 MiB",
        "HBM3 memory",
        "9,876",
        "held",
    ):
        assert words in text, words
    for words in ("NEVER CHECKED", "VIOLATED", "detect 60.0", "steps rolled back", "ab" * 16):
        assert words in text, words


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00:00"), (3_725.9, "1:02:05"), (90_061, "1 d 1:01:01")])
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_peak_memory_is_in_bytes():
    assert 5 << 20 < peak_rss() < 1 << 44
