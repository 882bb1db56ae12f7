"""Campaigns: a slice of one against the protocol as it is, and against one that is bent."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import faultinject
from emulator.cli import main
from emulator.fuzz import command
from emulator.fuzz.campaign import verdicts
from emulator.fuzz.failure import smaller
from emulator.fuzz.run import SLOW, STUCK, judge
from faultinject.fuzz import draw_case
from faultinject.vocabulary import Crash, NanGradient
from tests.museum import mutants

ROOT = Path(__file__).resolve().parents[2]
SLICE = 120  # schedules of the suite; thousands are for ``fthsdp fuzz``
SEED = 2026
BENT = 13  # of seed 0: the first that a rollback without the state's own cursors breaks
SMALL = 29  # the next one: it needs only as many faults as the two replicas that are all lost


def fuzz(*args):
    return CliRunner().invoke(main, ["fuzz", *(str(a) for a in args)])


def test_a_slice_of_a_campaign_finds_nothing():
    found = list(verdicts(SEED, 1, SLICE, None))
    assert [v.number for v in found] == list(range(SLICE))
    assert [(v.number, v.labels, v.details) for v in found if v.labels] == []


def same(verdict):
    return msgspec.structs.replace(verdict, wall_seconds=0.0)


def test_two_processes_find_what_one_finds():
    one, two = (list(verdicts(SEED, jobs, 20, None)) for jobs in (1, 2))
    assert [same(v) for v in one] == [same(v) for v in two]


def test_a_cluster_finds_what_one_process_finds():
    pytest.importorskip("ray", reason="the extra ray is not installed")
    local, cluster = (list(verdicts(SEED, 2, 20, None, engine)) for engine in ("local", "ray"))
    assert [same(v) for v in local] == [same(v) for v in cluster]


def test_a_missing_ray_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = fuzz("--engine", "ray", "--schedules", 1, "--out", tmp_path / "mine", "--quiet")
    assert result.exit_code == 2 and "Ray is not installed" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_campaign_ends_when_its_time_is_over():
    assert len(list(verdicts(SEED, 1, None, 0.05))) < SLICE


def test_the_planted_fault_is_found_and_made_small():
    """With the cursors of a rollback taken from the head, few of the faults and little of the job matter."""
    drawn = draw_case(0, SMALL)
    with mutants.cursor_in_the_head():
        found = judge(drawn)
        small = smaller(drawn, found.labels, tries=40)
        assert set(judge(small).labels) & set(found.labels)
    assert found.labels == ("exactly_once",)
    assert len(small.faults) <= 3 < len(drawn.faults)
    assert judge(small).labels == (), "the protocol as it is survives what breaks the bent one"


def test_a_failure_is_written_so_that_it_can_be_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("emulator.fuzz.failure.TRIES", 4)
    with mutants.cursor_in_the_head():
        result = fuzz("--schedules", BENT + 1, "--out", "mine", "--quiet")
        assert result.exit_code == 1, result.output
        told, again = result.stderr.splitlines()
        words = shlex.split(again)
        replayed = CliRunner().invoke(main, [*words[1:], "--run-dir", "run"])
    assert told == f"case {BENT}: exactly_once" and replayed.exit_code == 1
    assert "exactly_once: violated" in replayed.stderr
    folder = tmp_path / f"mine/failures/{BENT:06d}"
    assert sorted(path.name for path in folder.iterdir()) == [
        "drawn.json", "schedule.json", "settings.json", "story.txt",
    ]  # fmt: skip
    story = (folder / "story.txt").read_text()
    assert again.strip() in story and "=> exactly_once:" in story and "head" in story
    assert json.loads((tmp_path / "mine/report.json").read_text())["failures"] == [
        {"number": BENT, "what": ["exactly_once"]}
    ]


def test_an_assertion_and_a_job_that_stands_still_are_failures(monkeypatch):
    case = draw_case(0, 0)
    short = msgspec.structs.replace(case, job={**case.job, "steps": 10**6, "max_virtual_hours": 0.2})
    assert judge(short).labels == (STUCK,)
    monkeypatch.setattr("emulator.inject.Injector.inject", lambda self, fault, now: 1 / 0)
    timed = msgspec.structs.replace(case, faults=(Crash(at=1.0, rank=(0, 0)),))
    assert judge(timed).labels == ("ZeroDivisionError in test_fuzz_campaign.py:<lambda>",)


def test_a_case_that_never_ends_is_reported():
    case = draw_case(0, 0)
    endless = msgspec.structs.replace(case, job={**case.job, "steps": 10**6, "max_virtual_hours": 1e5})
    found = judge(endless, wall_seconds=0.2)
    assert found.labels == (SLOW,) and found.wall_seconds < 20


def test_json_and_the_report_say_the_same(tmp_path):
    result = fuzz("--schedules", 3, "--seed", 5, "--json", "--out", tmp_path / "mine")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["schedules"] == 3 and len(found["invariants"]) == 12 and found["virtual_years"] > 0
    assert found.pop("out") == str(tmp_path / "mine")
    assert found == json.loads((tmp_path / "mine/report.json").read_text())
    again = fuzz("--schedules", 3, "--seed", 5, "--out", tmp_path / "mine")
    assert again.exit_code == 0 and "single_lineage" in again.stdout


BAD = [
    (["--minutes", "0"], "--minutes 0 does not fit"),
    (["--minutes", "nan"], "--minutes nan does not fit"),
    (["--minutes", "soon"], "'soon' is not a valid float"),
    (["--schedules", "0"], "--schedules 0 does not fit"),
    (["--jobs", "0"], "--jobs 0 does not fit"),
    (["--seed", "-1"], "--seed -1 does not fit"),
    (["--out", "file"], "is a file; name a folder"),
    (["--out", "mine"], "is not empty and holds no earlier campaign"),
    (["surplus"], "unexpected extra argument (surplus)"),
]


@pytest.mark.parametrize("args, told", BAD, ids=lambda value: " ".join(value) if type(value) is list else "")
def test_bad_input_is_one_line(args, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("")
    result = fuzz(*args)
    assert result.exit_code == 2 and told in result.stderr and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr


def test_ctrl_c_leaves_a_report(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = "from emulator.cli import main\nif __name__ == '__main__': main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "fuzz", "--minutes", "5", "--out", "mine"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "schedules of 5 minutes" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    said, told = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted after" in told and "Traceback" not in told, told
    assert "schedules" in said
    found = json.loads((tmp_path / "mine/report.json").read_text())
    assert found["interrupted"] and found["schedules"] > 0


def test_drawn_json_is_the_case_as_it_was_drawn(tmp_path):
    case = msgspec.structs.replace(draw_case(0, 1), faults=(NanGradient(at=1.0, rank=(0, 0)),))
    command.write_failure(tmp_path, 0, draw_case(0, 1), case)
    assert faultinject.load(tmp_path / "schedule.json").faults == case.faults
    assert msgspec.convert(json.loads((tmp_path / "drawn.json").read_text()), type(case)) == draw_case(0, 1)
