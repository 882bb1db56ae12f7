"""Fault points: counted for nothing, and faults strike where they are told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from emulator import points
from emulator.cli import main
from emulator.emulation import Emulation
from emulator.fuzz import tally
from emulator.fuzz.run import Verdict
from faultinject import KINDS, POINTS, Schedule
from faultinject.vocabulary import Crash, Hang, LinkFlap, Pause, StoreEmpty

from .test_folding import both
from .whole_job import run, settings_of

JOB = {"ranks_per_replica": 6, "fan_out": 2, "steps": 10}
STRIKES = [
    Crash(rank=(1, 3), point="vote.yes", step=2),
    Crash(rank=(1, 0), point="store.commit", step=2),
    Crash(rank=(2, 5), point="apply.begin", step=3),
    Pause(rank=(0, 4), point="compute.bucket", step=1, duration=20.0),
    Hang(rank=(1, 1), point="ring.ack", step=2),
    LinkFlap(rank=(1, 1), point="round.reduced", step=2, duration=5.0),
    StoreEmpty(point="store.close"),
]


def test_there_are_many_points_each_said_in_a_line():
    assert len(POINTS) >= 40
    for point in POINTS.values():
        assert point.where in ("leader", "rank", "driver") and point.what.isprintable()


def test_every_point_is_in_the_tables_of_the_emulator():
    """By the strings of its source: a name that nothing gives would never be reached."""
    sources = [points.__file__, points.__file__.replace("points.py", "launcher.py")]
    text = "".join(Path(path).read_text(encoding="utf-8") for path in sources)
    names = [name for name in POINTS if f'"{name}"' not in text and not name.startswith("timer.")]
    assert names == []
    assert {name for name in POINTS if name.startswith("timer.")} == points._TIMERS


def test_counting_changes_nothing():
    faults = [Crash(rank=(1, 3), at=50.0), LinkFlap(rank=(0, 2), at=100.0, duration=5.0)]
    plain = run(faults, **JOB)
    entries = []
    job = Emulation(settings_of(**JOB), Schedule(faults=tuple(faults)), entries.append, points=True)
    job.run()
    assert entries == plain.entries
    assert job.points is not None and job.points.reached["vote.yes"] > 20
    assert plain.emulation.points is None, "nothing looks where nobody wants it"


@pytest.mark.parametrize("fault", STRIKES, ids=lambda fault: f"{type(fault).__name__} {fault.point}")
def test_a_fault_strikes_at_its_point_whoever_runs_ahead(fault):
    beside = [Crash(rank=(0, 2), at=35.0)] if fault.point == "store.close" else []
    ran = run([*beside, fault], **JOB)
    assert fault in ran.emulation.faults_injected, "it was reached"
    assert ran.result.failures == []
    assert ran.trace_hash == run([*beside, fault], careful=True, **JOB).trace_hash
    both([*beside, fault], **JOB)


def test_a_crash_at_a_vote_leaves_it_unsaid():
    """Before the effect: the replica's leader never has a yes from all."""
    ran = run([Crash(rank=(1, 3), point="vote.yes", step=2)], **JOB)
    (fault,) = ran.of("fault")
    told = [note for note in ran.notes if note[1] == 1 and note[2] == "voted" and note[0] >= fault[1]]
    assert not told or told[0][0] > fault[1] + 60.0, "not before it has come back"


def test_the_list_says_what_the_last_campaign_reached(tmp_path):
    (tmp_path / "report.json").write_text(json.dumps({"points": {"vote.yes": 1234}}))
    told = CliRunner().invoke(main, ["faults", "list", "--campaign", str(tmp_path)])
    assert told.exit_code == 0 and "1,234" in told.stdout
    assert len(told.stdout.splitlines()) == len(POINTS)
    found = json.loads(
        CliRunner().invoke(main, ["faults", "list", "--campaign", str(tmp_path), "--json"]).stdout
    )
    rows = {row["name"]: row for row in found["points"]}
    assert rows["vote.yes"]["reached"] == 1234 and rows["vote.no"]["reached"] == 0
    nowhere = CliRunner().invoke(main, ["faults", "list", "--campaign", str(tmp_path / "none"), "--json"])
    assert not json.loads(nowhere.stdout)["known"]
    (tmp_path / "report.json").write_text("{")
    broken = CliRunner().invoke(main, ["faults", "list", "--campaign", str(tmp_path)])
    assert broken.exit_code == 2 and broken.stderr.count("\n") == 1


def test_kinds_are_listed():
    found = json.loads(CliRunner().invoke(main, ["faults", "kinds", "--json"]).stdout)
    assert list(found["kinds"]) == list(KINDS) and all(found["kinds"].values())


def test_schedules_are_drawn_and_bad_options_are_one_line(tmp_path):
    draw = ["faults", "draw", "--hours", "2", "--mtbf-minutes", "5", "--bursts", "0.2", "--offenders", "2"]
    told = CliRunner().invoke(main, [*draw, "--out", str(tmp_path / "drawn.json")])
    assert told.exit_code == 0, told.output
    printed = CliRunner().invoke(main, draw)
    assert printed.stdout == (tmp_path / "drawn.json").read_text()
    wrong = CliRunner().invoke(main, [*draw, "--bursts", "2"])
    assert wrong.exit_code == 2 and "bursts: 2 does not fit; give a share, 0 to 1" in wrong.stderr


def test_a_long_campaign_must_have_reached_everything():
    short, long = tally.Tally(), tally.Tally()
    for count, found in ((tally.WHOLE - 1, short), (tally.WHOLE, long)):
        for number in range(count):
            found.add(Verdict(number=number, points={"vote.yes": 1}, faults={"crash": 1}))
    assert short.not_reached == [] and short.not_drawn == []
    assert set(long.not_reached) == set(POINTS) - {"vote.yes"}
    assert set(long.not_drawn) == set(KINDS) - {"crash"}
