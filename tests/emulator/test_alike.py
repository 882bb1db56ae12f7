"""Positions that follow, positions that each run, and lanes instant by instant: one trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emulator.emulation import Emulation
from emulator.settings import RunSettings
from faultinject import Schedule, loads
from ftruntime.log.eventlog import EventLog


def careful(job: Emulation) -> None:
    """No lane runs ahead of another."""
    job.kernel.careful = lambda: None


def each(job: Emulation) -> None:
    """Lanes run ahead, and every one by itself."""
    job.kernel.runner = job.kernel.run_each


def alike(job: Emulation) -> None:
    """As it comes: lanes that stand alike run once."""


def run(
    settings: RunSettings, way: Callable[[Emulation], None], faults: Schedule | None = None
) -> tuple[Any, Emulation]:
    log = EventLog(None)
    job = Emulation(settings, faults or settings.load_faults(), log)
    way(job)
    job.run()
    log.close()
    return (log.trace_hash, log.sums(), job.kernel.events, job.messages, job.rounds), job


CLEAN = {
    "one bucket": {"steps": 4, "ranks_per_replica": 40},
    "three buckets of many chunks": {
        "steps": 3,
        "ranks_per_replica": 12,
        "buckets": 3,
        "chunk_mib": 1,
        "slots": 4,
    },
    "two replicas": {"steps": 4, "replicas": 2, "ranks_per_replica": 9, "buckets": 2},
    "one slot": {"steps": 3, "replicas": 4, "ranks_per_replica": 8, "slots": 1},
}
FAULTY = {
    "tap": {"seed": 1},
    "zeros": {"seed": 4, "catch_up": "zeros"},
    "jitter": {"seed": 5, "jitter": 0.05},
    "buckets": {"seed": 7, "buckets": 2, "slots": 2},
}


@pytest.mark.parametrize("name", CLEAN)
def test_the_trace_is_the_same_whoever_runs_ahead(name: str) -> None:
    settings = RunSettings(**CLEAN[name])
    expected, _ = run(settings, careful)
    assert run(settings, each)[0] == expected
    assert run(settings, alike)[0] == expected


@pytest.mark.parametrize("name", FAULTY)
def test_the_trace_is_the_same_under_faults(name: str) -> None:
    settings = RunSettings(
        steps=15, replicas=6, ranks_per_replica=6, faults="table", mtbf_minutes=1.0, **FAULTY[name]
    )
    expected, job = run(settings, careful)
    assert job.faults_injected, "a run without a fault shows nothing here"
    assert run(settings, each)[0] == expected
    assert run(settings, alike)[0] == expected


FAULTS = {
    "a crash in FTAR": '{"kind": "crash", "rank": [2, 5], "step": 1, "phase": "ftar"}',
    "a crash in FTAR, jitter": '{"kind": "crash", "rank": [2, 5], "step": 1, "phase": "ftar"}',
    "a crash at the vote": '{"kind": "crash", "host": [1, 0], "step": 2, "phase": "vote"}',
    "a link that flaps": '{"kind": "link_flap", "rank": [1, 7], "step": 1, "phase": "ftar", "duration": 30}',
    "a slow link": '{"kind": "slow", "rank": [1, 7], "part": "link", "factor": 3, "at": 15, "duration": 30}',
    "a partition": '{"kind": "partition", "groups": [[0, 1], [2, 3, 4, "store"]], "at": 20.5, "duration": 4}',
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_trace_is_the_same_when_a_fault_cuts_lanes_short(name: str) -> None:
    settings = RunSettings(
        steps=4, replicas=5, ranks_per_replica=24, buckets=2, jitter=0.02 if "jitter" in name else 0.0
    )
    schedule = loads(f'{{"schema": 1, "faults": [{FAULTS[name]}]}}', settings.shape())
    expected, _ = run(settings, careful, schedule)
    assert run(settings, each, schedule)[0] == expected
    found, job = run(settings, alike, schedule)
    assert found == expected
    rounds = 1 if "vote" in name else 4  # while a fault waits for a vote, lanes come forward by little
    assert job.alike.folded > rounds * 24, "also in the rounds that the fault hits"


def test_positions_do_follow_where_nothing_makes_them_differ() -> None:
    """All but the leader's position and one of each kind of standing; or this saves nothing."""
    _, job = run(RunSettings(steps=4, ranks_per_replica=40), alike)
    assert job.alike.folded > 4 * 40 // 2
    _, job = run(RunSettings(steps=4, ranks_per_replica=40), each)
    assert job.alike.folded == 0


def test_each_position_has_its_own_sum() -> None:
    """What is copied is how far the rings are, never what they sum."""
    settings = RunSettings(steps=4, ranks_per_replica=16)
    digests = {}
    for way in (each, alike):
        log = EventLog(None)
        job = Emulation(settings, settings.load_faults(), log)
        way(job)
        job.run()
        digests[way.__name__] = [p.device.digest() for _, p in sorted(job.processes.items())]
    assert digests["each"] == digests["alike"]
    assert len(set(digests["alike"])) == 16, "a state for each position, the same in all replicas"
