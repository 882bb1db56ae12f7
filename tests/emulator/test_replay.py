"""``fthsdp replay``: the same trace, a different one, and folders that are no run's."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from emulator import execute
from emulator.cli import main
from tests.emulator.fake_run import ARGS, FakeEmulation, entries_with_a_wrong_sum


@pytest.fixture
def fake(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(execute, "make_emulation", kind := type("Fake", (FakeEmulation,), {}))
    return kind


def run(*args):
    return CliRunner().invoke(main, list(args))


def record(*args):
    result = run("emulate", *ARGS, "--faults", "table", "--run-dir", "mine", "--json", *args)
    return json.loads(result.stdout)


def _files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_the_same_trace_is_0_and_the_folder_is_left_as_it_was(fake, tmp_path):
    recorded = record()
    before = _files(tmp_path / "mine")
    result = run("replay", "mine")
    assert (result.exit_code, result.stdout) == (0, f"same trace: {recorded['trace_hash']}\n"), result.output
    assert _files(tmp_path / "mine") == before


def test_json_says_the_same(fake):
    recorded = record()
    found = json.loads(run("replay", "mine", "--json").stdout)
    assert found["same"] and found["recorded"] == found["replayed"] == recorded["trace_hash"]


def test_it_runs_with_the_settings_and_the_faults_of_the_folder(fake, monkeypatch):
    record("--seed", "9")
    made = []

    def make(settings, faults, log, on_span, crossing=None):
        made.append((settings.seed, len(faults.faults)))
        return fake(settings, faults, log, on_span)

    monkeypatch.setattr(execute, "make_emulation", make)
    assert run("replay", "mine").exit_code == 0
    assert made == [(9, 2)]


def test_a_different_trace_is_1_with_the_first_chain_and_event_that_differ(fake):
    recorded = record()
    fake.entries = staticmethod(entries_with_a_wrong_sum)
    result = run("replay", "mine")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"DIFFERENT trace: recorded {recorded['trace_hash']}, replayed ")
    assert lines[1].startswith("  the chain of replica 0 differs first: ")
    assert "recorded: t=" in lines[2] and "replayed: t=" in lines[3] and "applies round" in lines[3]
    found = json.loads(run("replay", "mine", "--json").stdout)
    assert not found["same"] and found["differing"] == ["0"]


def test_a_shorter_trace_and_a_log_that_is_gone(fake, tmp_path):
    record()
    whole = FakeEmulation.entries
    fake.entries = staticmethod(lambda: whole()[:-1])
    result = run("replay", "mine")
    assert result.exit_code == 1 and "the job's own chain differs first" in result.stdout
    assert "replayed: none" in result.stdout
    (tmp_path / "mine" / "events.log").unlink()
    result = run("replay", "mine")
    assert result.exit_code == 1 and "the recorded log cannot be compared" in result.stdout


def test_a_replay_that_fails_says_so(fake):
    record()
    fake.fails_at = 100
    result = run("replay", "mine")
    assert result.exit_code == 1 and "the replay failed: AssertionError" in result.stdout
    assert "Traceback" not in result.output


def test_a_replay_that_is_interrupted_compares_nothing(fake):
    record()
    fake.interrupted_at = 100
    result = run("replay", "mine")
    assert (result.exit_code, result.stdout) == (130, "")


def test_an_interrupted_run_has_no_whole_trace(fake):
    fake.interrupted_at = 100
    record()
    result = run("replay", "mine", "--quiet")
    assert result.exit_code == 2
    assert result.stderr.startswith("fthsdp replay: mine was interrupted, so there is no whole trace")
    assert result.stderr.rstrip().endswith("--config mine/settings.json --faults mine/schedule.json")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: (d / "summary.json").unlink(), "the run has not ended"),
        (lambda d: (d / "summary.json").write_text("{"), "is not JSON"),
        (lambda d: (d / "summary.json").write_text("{}"), "the summary is not a run's"),
        (lambda d: (d / "schedule.json").unlink(), "schedule.json: no such file"),
        (lambda d: (d / "schedule.json").write_text("[]"), "is not a schedule"),
        (lambda d: (d / "settings.json").unlink(), "is not the folder of a run"),
        (lambda d: (d / "settings.json").write_text('{"run_schema": 1, "x": 3}'), "x is no setting"),
        (lambda d: (d / "settings.json").write_text('{"run_schema": 7}'), "run_schema: 7 is not known"),
    ],
)
def test_a_damaged_folder_is_one_line_and_2(fake, tmp_path, spoil, words):
    record()
    spoil(tmp_path / "mine")
    result = run("replay", "mine", "--quiet")
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and words in result.stderr and result.stdout == ""


def test_what_is_no_folder(fake, tmp_path):
    (tmp_path / "file").write_text("x")
    assert "no such folder" in run("replay", "absent").stderr
    assert "is a file; name the folder of a run" in run("replay", "file").stderr
