"""What is written is read back; what the page on schedules shows is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faultinject import KINDS, JobShape, Schedule, dump, dumps, kind_of, load, loads, ranks_of, replica_of
from faultinject.vocabulary import Crash, Partition, Pause, Phase, Slow, StoreAway, Zombie

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(line) for line in re.findall(r'^\{"kind".*\}$', PAGE, re.MULTILINE)]
SHAPE = JobShape(replicas=12, ranks_per_replica=64)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["kind"])
def test_each_example_of_the_page_is_valid_and_comes_back_as_it_was(example):
    schedule = loads(json.dumps({"schema": 1, "faults": [example]}), SHAPE)
    assert json.loads(dumps(schedule))["faults"] == [example]


def test_the_page_has_an_example_of_every_kind_in_order():
    assert list(dict.fromkeys(example["kind"] for example in EXAMPLES)) == list(KINDS)


def test_whole_schedules_of_the_page_are_valid():
    wholes = [block for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if '"schema"' in block]
    assert wholes
    for whole in wholes:
        assert loads(whole).faults


def test_a_file_is_read_back_as_it_was_written(tmp_path):
    faults = (
        Crash(rank=(3, 17), step=4, phase=Phase.COMMIT),
        Partition(groups=((0, 1), (2, "store")), one_way=True, duration=30.0, at=2.5, cause="a, b: c"),
    )
    schedule = Schedule(job=SHAPE, faults=faults)
    dump(schedule, tmp_path / "schedule.json")
    assert load(tmp_path / "schedule.json") == schedule
    assert (tmp_path / "schedule.json").read_text() == (
        '{"schema": 1,\n'
        ' "job": {"replicas": 12, "ranks_per_replica": 64},\n'
        ' "faults": [\n'
        '  {"kind": "crash", "step": 4, "phase": "commit", "rank": [3, 17]},\n'
        '  {"kind": "partition", "at": 2.5, "cause": "a, b: c", "groups": [[0, 1], [2, "store"]], '
        '"one_way": true, "duration": 30.0}\n'
        "]}\n"
    )


def test_no_faults_are_a_schedule():
    assert loads(dumps(Schedule())) == Schedule()


def test_whom_a_fault_hits():
    small = JobShape(replicas=2, ranks_per_replica=12)
    hits = {
        Crash(rank=(1, 3), at=0.0): (1, [(1, 3)]),
        Crash(host=(1, 1), at=0.0): (1, [(1, 8), (1, 9), (1, 10), (1, 11)]),
        Pause(replica=0, duration=1.0, at=0.0): (0, [(0, i) for i in range(12)]),
        Slow(rank=(0, 2), factor=2.0, duration=1.0, at=0.0): (0, [(0, 2)]),
        Zombie(replica=1, delay=3.0, at=0.0): (1, [(1, i) for i in range(12)]),
        StoreAway(duration=1.0, at=0.0): (None, []),
    }
    for fault, (replica, ranks) in hits.items():
        assert replica_of(fault) == replica
        assert list(ranks_of(fault, small)) == ranks


def test_the_parts_of_a_shape():
    shape = JobShape(replicas=3, ranks_per_replica=20)
    assert (shape.ranks, shape.hosts_per_replica) == (60, 3)
    assert [shape.rank_at(i) for i in (0, 19, 20, 59)] == [(0, 0), (0, 19), (1, 0), (2, 19)]


def test_kinds_have_their_own_names():
    assert len(KINDS) == 48
    assert kind_of(StoreAway(duration=1.0, at=0.0)) == "store_away"


def test_importing_the_package_brings_in_nothing_heavy():
    code = (
        "import sys, faultinject; print([m for m in ('torch', 'hypothesis', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
