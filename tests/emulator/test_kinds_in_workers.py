"""Faults that the hub and the hosts carry out between them: the same trace in one process and in two."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.emulation import Emulation
from emulator.settings import RunSettings
from faultinject import Schedule, ScheduleError, dump
from faultinject import vocabulary as v
from ftruntime.log.eventlog import EventLog, combine
from ftruntime.protocol.errors import ConfigError

from .whole_job import settings_of
from .workers.in_threads import run_in

JOB = {"ranks_per_replica": 6, "fan_out": 2, "steps": 8}
FAULTS = [
    v.LauncherEarly(replica=1, at=45.0),
    v.Drain(replica=1, duration=20.0, at=45.0),
    v.HangAtStart(rank=(1, 4), at=45.0),
    v.ConfigChanged(replica=2, duration=30.0, at=45.0),
    v.CorruptChunk(rank=(1, 5), at=45.0, count=3),
    v.ClockSkew(rank=(0, 4), rate=2.0, duration=60.0, at=30.0),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_the_trace_does_not_depend_on_who_runs_what(fault: Any) -> None:
    settings, schedule, log = settings_of(**JOB), Schedule(faults=(fault,)), EventLog(None)
    job = Emulation(settings, schedule, log)
    job.run()
    alone = (combine([log.sums()]), job.messages, job.rounds, job.steps_committed, job.now)
    assert run_in(settings, lambda: schedule, 2)[0] == alone


def test_faults_at_points_are_for_one_process(tmp_path: Any) -> None:
    path = tmp_path / "schedule.json"
    dump(Schedule(faults=(v.Crash(rank=(0, 0), point="vote.yes"),)), path)
    assert RunSettings(faults=str(path)).load_faults() is not None
    with pytest.raises(
        (ConfigError, ScheduleError), match="workers is 2: faults at fault points are for one"
    ):
        RunSettings(faults=str(path), workers=2).load_faults()
