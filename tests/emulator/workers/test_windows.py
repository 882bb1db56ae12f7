"""Whatever happens, several workers leave the trace that one leaves."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from emulator.emulation import Emulation
from emulator.settings import RunSettings
from faultinject import JobShape, Schedule, loads
from faultinject.strategies import schedules
from ftruntime.log.eventlog import EventLog

from .in_threads import run_in


def one(job: RunSettings, faults) -> tuple:
    """What ``run_in`` gives, of a job in one process."""
    log = EventLog(None)
    emulation = Emulation(job, faults(), log)
    emulation.run()
    log.close()
    said = (emulation.messages, emulation.rounds, emulation.steps_committed, emulation.now)
    return log.trace_hash, *said


CLEAN = {
    "as it is": {},
    "a narrow tree": {"fan_out": 2, "ranks_per_replica": 20},
    "jitter, buckets": {"jitter": 0.1, "buckets": 3, "bucket_mib": 64},
    "tensors": {"fidelity": "tensor", "replicas": 2, "ranks_per_replica": 5, "steps": 3},
    "checkpoints": {"checkpoint_every": 2},
}


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_run_is_the_same(name, workers):
    job = RunSettings(**{"replicas": 3, "ranks_per_replica": 9, "steps": 5, **CLEAN[name]})
    found, crew = run_in(job, Schedule, workers)
    assert found == one(job, Schedule)
    assert all(worker.job.kernel.events for worker in crew)


FAULTS = {
    "a crash": '{"kind": "crash", "rank": [1, 7], "step": 2, "phase": "ftar"}',
    "a crash at the vote": '{"kind": "crash", "host": [1, 0], "step": 2, "phase": "vote"}',
    "a replica that freezes and comes back": '{"kind": "zombie", "replica": 1, "delay": 700, "at": 50}',
    "a partition": '{"kind": "partition", "groups": [[0], [1, 2, "store"]], "at": 41, "duration": 30}',
    "a link that flaps": '{"kind": "link_flap", "rank": [1, 8], "step": 1, "phase": "ftar", "duration": 30}',
    "a store that is emptied": '{"kind": "store_empty", "at": 70}',
    "a hang": '{"kind": "hang", "rank": [2, 4], "at": 30}',
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_the_same(name):
    job = RunSettings(replicas=3, ranks_per_replica=10, steps=30, fan_out=3, max_virtual_hours=1.0)

    def faults() -> Schedule:
        return loads(f'{{"schema": 1, "faults": [{FAULTS[name]}]}}', job.shape())

    expected = one(job, faults)
    for workers in (2, 3):
        assert run_in(job, faults, workers)[0] == expected


def test_faults_out_of_the_table_are_the_same():
    job = RunSettings(
        replicas=4, ranks_per_replica=12, steps=40, faults="table", mtbf_minutes=2.0, jitter=0.05, fan_out=4
    )
    expected = one(job, job.load_faults)
    assert [run_in(job, job.load_faults, workers)[0] for workers in (2, 3, 4)] == [expected] * 3


SHAPE = JobShape(replicas=3, ranks_per_replica=8, min_replicas=2)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedules(SHAPE, max_faults=4), st.integers(2, 4), st.sampled_from([2, 32]))
def test_drawn_schedules_are_the_same(schedule, workers, fan_out):
    job = RunSettings(
        replicas=3, ranks_per_replica=8, steps=12, min_replicas=2, fan_out=fan_out, max_virtual_hours=0.5
    )
    note(schedule)
    assert run_in(job, lambda: schedule, workers)[0] == one(job, lambda: schedule)
