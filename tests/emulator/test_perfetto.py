"""The trace file: valid, one process for each replica, no slices of one lane that overlap, bounded memory."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc

import pytest

from emulator.perfetto import FLUSH_EVENTS, MOST_LANES, TraceWriter
from tests.conformance.log_builder import good_log

SPANS = ["quorum", "compute", "ftar", "vote", "commit", "catch-up", "restart", "warm-up"]


def _read(path):
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ms"
    return content["traceEvents"]


def _of(events, phase):
    return [e for e in events if e["ph"] == phase]


def test_every_replica_has_a_track_with_its_name(tmp_path):
    path = tmp_path / "trace.json"
    with TraceWriter(path, 3):
        pass
    names = {e["pid"]: e["args"]["name"] for e in _of(_read(path), "M") if e["name"] == "process_name"}
    assert names == {1: "job", 2: "replica 0", 3: "replica 1", 4: "replica 2"}


def test_spans_have_their_name_replica_and_virtual_microseconds(tmp_path):
    path = tmp_path / "trace.json"
    with TraceWriter(path, 2) as trace:
        for number, name in enumerate(SPANS):
            trace.span(1, name, number, number + 0.5, {"round": number})
    spans = _of(_read(path), "X")
    assert [e["name"] for e in spans] == SPANS
    assert {e["pid"] for e in spans} == {3}
    assert (spans[3]["ts"], spans[3]["dur"], spans[3]["args"]) == (3e6, 0.5e6, {"round": 3})


def test_every_lane_that_is_used_is_named_once(tmp_path):
    path = tmp_path / "trace.json"
    with TraceWriter(path, 2) as trace:
        for name in SPANS * 3:
            trace.span(0, name, 0.0, 1.0)
    events = _read(path)
    named = [(e["pid"], e["tid"]) for e in _of(events, "M") if e["name"] == "thread_name"]
    assert len(named) == len(set(named))
    assert len({tid for _, tid in named}) == len(named) and 0 not in {pid for pid, _ in named}
    assert set(named) == {(e["pid"], e["tid"]) for e in _of(events, "X")}


def test_slices_of_one_lane_never_overlap(tmp_path):
    rng = random.Random(5)
    path = tmp_path / "trace.json"
    spans = sorted(
        (
            (rng.randrange(3), rng.choice(SPANS), s := rng.uniform(0, 500), s + rng.uniform(0, 4))
            for _ in range(900)
        ),
        key=lambda span: span[3],
    )
    with TraceWriter(path, 3) as trace:
        for replica, name, start, end in spans:
            trace.span(replica, name, start, end)
    lanes = {}
    for e in _of(_read(path), "X"):
        lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    assert len(lanes) > 3
    for slices in lanes.values():
        slices.sort()
        assert all(before[1] <= after[0] + 0.01 for before, after in itertools.pairwise(slices))


def test_more_overlaps_than_lanes_share_the_last(tmp_path):
    path = tmp_path / "trace.json"
    with TraceWriter(path, 1) as trace:
        for _ in range(MOST_LANES + 5):
            trace.span(0, "ftar", 0.0, 1.0)
    assert len({e["tid"] for e in _of(_read(path), "X")}) == MOST_LANES


def test_faults_crashes_and_rollbacks_are_instants(tmp_path):
    path = tmp_path / "trace.json"
    with TraceWriter(path, 3) as trace:
        for entry in good_log():
            trace.entry(entry)
        trace.entry(["fault", 5.0, {"kind": "crash", "rank": [2, 1]}])
        trace.entry(["fault", 6.0, {"kind": "pause", "replica": 1}])
        trace.entry(["heal", 7.0, {"kind": "store_slow"}])
    instants = _of(_read(path), "i")
    count = {}
    for e in instants:
        count[e["name"]] = count.get(e["name"], 0) + 1
    assert count["crash"] == 3 and count["rollback"] == 1 and count["fault: crash"] == 4
    where = {(e["name"], e["ts"]): (e["pid"], e["s"]) for e in instants}
    assert where["fault: crash", 5e6] == (4, "p")
    assert where["fault: pause", 6e6] == (3, "p")
    assert where["healed: store_slow", 7e6] == (1, "p")
    rollback = next(e for e in instants if e["name"] == "rollback")
    assert rollback["pid"] == 1 and rollback["args"]["source"] == "live"


def test_the_file_appears_when_it_is_complete_and_not_at_all_after_a_failure(tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(ZeroDivisionError), TraceWriter(path, 1) as trace:
        trace.span(0, "compute", 0.0, 1.0)
        assert not path.exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_run(tmp_path):
    def peak(number):
        tracemalloc.start()
        with TraceWriter(tmp_path / "trace.json", 2) as trace:
            for step in range(number):
                trace.span(step % 2, "compute", step, step + 1.0, {"round": step})
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    small = peak(4 * FLUSH_EVENTS)
    assert peak(40 * FLUSH_EVENTS) < 1.5 * small
    assert len(_of(_read(tmp_path / "trace.json"), "X")) == 40 * FLUSH_EVENTS
