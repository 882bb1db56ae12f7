"""The run directory: where it is made, what is refused, and that nothing in it is ever half written."""

from __future__ import annotations

import os

import pytest

import faultinject
from emulator import rundir
from emulator.rundir import FILES, RunDir, is_run, write_atomic
from emulator.settings_file import make_settings
from faultinject import JobShape, ScheduleError
from faultinject.vocabulary import Crash
from ftruntime.protocol.errors import ConfigError


@pytest.fixture
def settings():
    return make_settings({"replicas": 3, "ranks_per_replica": 2, "seed": 7})


def test_without_a_name_it_is_new_and_has_time_and_seed_in_it(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rundir.time, "strftime", lambda form: "20260101-120000")
    paths = [RunDir.create(None, settings).path for _ in range(3)]
    assert [str(p) for p in paths] == [f"runs/20260101-120000-seed7{tail}" for tail in ("", "-2", "-3")]
    assert all(is_run(p) for p in paths)


def test_a_new_folder_an_empty_one_and_an_earlier_run_are_taken(settings, tmp_path):
    new, empty = tmp_path / "a" / "b", tmp_path / "empty"
    empty.mkdir()
    for path in (new, empty, new):
        assert RunDir.create(path, settings).settings() == settings


def test_an_earlier_run_is_replaced_as_a_whole_and_other_files_stay(settings, tmp_path):
    RunDir.create(tmp_path, settings)
    for name in FILES[1:]:
        (tmp_path / name).write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    RunDir.create(tmp_path, settings)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "settings.json"]


def test_a_folder_that_is_used_for_something_else_is_left_alone(settings, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    with pytest.raises(
        ConfigError, match="is not empty and holds no earlier run; name a new or empty folder"
    ):
        RunDir.create(tmp_path, settings)
    assert (tmp_path / "settings.json").read_text() == '{"theme": "dark"}'


def test_a_file_or_a_place_without_permission_is_refused(settings, tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ConfigError, match="file is a file; name a folder"):
        RunDir.create(file, settings)
    with pytest.raises(ConfigError, match=r"cannot write to .*; choose another --run-dir"):
        RunDir.create(file / "under", settings)
    if os.path.exists("/proc/version"):
        with pytest.raises(ConfigError, match="cannot write to /proc"):
            RunDir.create(rundir.Path("/proc/fthsdp"), settings)


def test_discarding_takes_away_what_was_made_and_no_more(settings, tmp_path):
    RunDir.create(tmp_path / "run", settings).discard()
    assert not (tmp_path / "run").exists()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError):
        RunDir.create(tmp_path, settings)
    folder = RunDir.create(tmp_path / "b", settings)
    (tmp_path / "b" / "notes.txt").write_text("mine")
    folder.discard()
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["notes.txt"]


def test_what_happened_is_a_schedule_that_can_be_run_again(settings, tmp_path):
    shape = JobShape(replicas=3, ranks_per_replica=2)
    folder = RunDir.create(tmp_path, settings)
    faults = (Crash(rank=(2, 1), at=3.5, cause="HBM3 memory"), Crash(rank=(0, 0), step=4, phase="commit"))
    folder.write_schedule(shape, faults)
    assert folder.schedule(shape).faults == faults == faultinject.load(tmp_path / "schedule.json").faults
    folder.write_schedule(shape, [])
    assert folder.schedule(shape).faults == ()


def test_a_summary_comes_back_and_a_damaged_one_is_told(settings, tmp_path):
    folder = RunDir.create(tmp_path, settings)
    with pytest.raises(ConfigError, match=r"summary.json cannot be read .*: the run has not ended"):
        folder.summary()
    folder.write_summary({"a": [1, 2.5, "x"]})
    assert folder.summary() == {"a": [1, 2.5, "x"]}
    for damaged, words in (("{", "is not JSON"), ("[]", "is no summary"), ("[" * 100_000, "is not JSON")):
        (tmp_path / "summary.json").write_text(damaged)
        with pytest.raises(ConfigError, match=words):
            folder.summary()


def test_opening_what_is_no_run(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        RunDir.open(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is a file; name the folder of a run"):
        RunDir.open(tmp_path / "file")
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        RunDir.open(tmp_path)


def test_a_schedule_that_is_gone_is_told(settings, tmp_path):
    folder = RunDir.create(tmp_path, settings)
    with pytest.raises(ScheduleError, match=r"schedule\.json: no such file"):
        folder.schedule(JobShape(replicas=3, ranks_per_replica=2))


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_atomic(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
