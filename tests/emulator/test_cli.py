"""``fthsdp emulate`` from its arguments to its files, with a stand-in for the driver."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from emulator import execute
from emulator.cli import main
from emulator.rundir import RunDir
from faultinject import load
from faultinject.vocabulary import Crash
from tests.emulator.fake_run import ARGS, FakeEmulation, entries_with_a_wrong_sum
from tests.emulator.test_summary import KEYS


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A subclass for each test, so that what one test sets is gone in the next."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(execute, "make_emulation", kind := type("Fake", (FakeEmulation,), {}))
    return kind


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args])


def emulate(*args):
    return run("emulate", *ARGS, *args)


def test_a_good_run_exits_with_0_and_leaves_every_file(fake, tmp_path):
    result = emulate("--run-dir", tmp_path / "mine")
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == [
        "events.log", "schedule.json", "settings.json", "summary.json", "trace.perfetto.json",
    ]  # fmt: skip
    assert "3 replicas x 2 ranks" in result.stdout and f"run directory: {tmp_path / 'mine'}" in result.stdout
    assert "held" in result.stdout and "building 6 ranks" in result.stderr
    found = RunDir.open(tmp_path / "mine").summary()
    assert found["invariants"]["gradient"] == {"checked": 355, "violated": 0}
    assert found["stall_seconds"]["detect"] > 0 and 0 < found["effective_training_time"] < 1


def test_json_is_one_object_on_standard_output_and_nothing_else(fake, tmp_path):
    result = emulate("--json", "--run-dir", "mine")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1 and set(found) >= KEYS
    assert found.pop("run_dir") == "mine"
    assert found == json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert found["steps_committed"] == 29 and found["trace_hash"]


def test_without_a_folder_a_new_one_is_made_in_runs(fake, tmp_path):
    found = json.loads(emulate("--json", "--quiet", "--seed", 5).stdout)
    assert found["run_dir"].startswith("runs/") and found["run_dir"].endswith("-seed5")
    assert (tmp_path / found["run_dir"] / "summary.json").is_file()


def test_quiet_tells_no_progress(fake):
    assert "building" not in emulate("--quiet").stderr


def test_the_trace_has_spans_and_instants(fake, tmp_path):
    emulate("--run-dir", "mine")
    events = json.loads((tmp_path / "mine" / "trace.perfetto.json").read_text())["traceEvents"]
    assert {"compute", "crash", "rollback"} <= {e["name"] for e in events}


def test_faults_that_happened_are_a_schedule(fake, tmp_path):
    result = emulate("--faults", "table", "--mtbf-minutes", 5, "--json", "--run-dir", "mine")
    happened = load(tmp_path / "mine" / "schedule.json").faults
    assert len(happened) == json.loads(result.stdout)["faults_injected"] >= 2
    again = emulate("--faults", tmp_path / "mine" / "schedule.json", "--json", "--run-dir", "again")
    assert json.loads(again.stdout)["trace_hash"] == json.loads(result.stdout)["trace_hash"]


def test_the_schedule_may_lie_in_the_folder_that_is_replaced(fake, tmp_path):
    emulate("--faults", "table", "--run-dir", "mine")
    before = load(tmp_path / "mine" / "schedule.json")
    schedule, settings = tmp_path / "mine" / "schedule.json", tmp_path / "mine" / "settings.json"
    result = run("emulate", "--config", settings, "--faults", schedule, "--run-dir", "mine")
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "mine" / "schedule.json") == before


def test_a_violated_invariant_is_named_with_its_first_events_and_exits_with_1(fake):
    fake.entries = staticmethod(entries_with_a_wrong_sum)
    result = emulate()
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("gradient: violated"))
    assert lines[at + 1].startswith("  t=") and "applies round" in result.stderr
    assert "VIOLATED" in result.stdout
    found = json.loads(emulate("--json").stdout)
    assert found["invariants"]["gradient"]["violated"] >= 1


def test_an_invariant_that_should_have_been_checked_and_was_not_is_a_failure(fake):
    whole = FakeEmulation.entries
    fake.entries = staticmethod(lambda: [e for e in whole() if e[0] != "resources"])
    result = emulate()
    assert result.exit_code == 1
    assert (
        result.stderr.splitlines()[-1] == "resources: never checked, though this run should have exercised it"
    )
    assert "NEVER CHECKED" in result.stdout


def test_ctrl_c_writes_what_there_is_and_exits_with_130(fake, tmp_path):
    fake.interrupted_at = 200
    result = emulate("--faults", "table", "--json", "--run-dir", "mine")
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["interrupted"] and found["invariants"]["agreement"]["checked"] > 0
    assert (tmp_path / "mine" / "trace.perfetto.json").is_file()
    assert load(tmp_path / "mine" / "schedule.json").faults
    assert "interrupted at step" in result.stderr and "never checked" not in result.stderr


def test_ctrl_c_during_the_check_keeps_what_was_found(fake, monkeypatch):
    def stop(self, entry):
        if entry[0] == "crash":
            raise KeyboardInterrupt

    monkeypatch.setattr(execute.TraceWriter, "entry", stop)
    result = emulate("--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["invariants"]["agreement"]["checked"] > 0


def test_a_failure_of_the_emulation_is_one_line_and_a_file_and_exits_with_1(fake, tmp_path):
    fake.fails_at = 100
    result = emulate("--run-dir", "mine")
    assert result.exit_code == 1
    assert "the emulation failed: AssertionError: a buffer is in two rounds" in result.stderr
    assert "Traceback" not in result.output
    assert "Traceback" in (tmp_path / "mine" / "error.txt").read_text()
    assert (tmp_path / "mine" / "schedule.json").is_file()


def test_faults_that_make_no_schedule_do_not_lose_the_run(fake, tmp_path):
    def bad(self, on_progress=None):
        FakeEmulation.run(self, on_progress)
        self.faults_injected = [Crash(rank=(99, 0), at=1.0)]

    fake.run = bad
    result = emulate("--run-dir", "mine")
    assert result.exit_code == 1 and "names replica 99" in result.stderr
    assert RunDir.open(tmp_path / "mine").summary()["invariants"]["gradient"]["checked"] > 0


def test_a_log_that_the_checker_cannot_read_is_a_failure_and_no_traceback(fake, tmp_path):
    whole = FakeEmulation.entries
    fake.entries = staticmethod(lambda: [*whole()[:50], ["nonsense", 1.0], *whole()[50:]])
    result = emulate("--run-dir", "mine")
    assert result.exit_code == 1
    assert "unknown kind 'nonsense'" in result.stderr and "Traceback" not in result.output


def test_a_run_that_stops_early_says_so(fake):
    result = run("emulate", *ARGS[:4], "--steps", 500, "--min-replicas", 1, "--max-virtual-hours", 0.0122)
    assert result.exit_code == 0
    line = result.stderr.splitlines()[-1]
    assert line.startswith(
        "stopped at step 29 of 500 after 44 virtual seconds; raise --max-virtual-hours (now 0.0"
    )
    result = run("emulate", *ARGS[:4], "--steps", 500, "--min-replicas", 1)
    assert result.stderr.splitlines()[-1] == "stopped at step 29 of 500 after 44 virtual seconds"


def test_a_run_that_no_fault_fell_into_says_how_to_get_some(fake):
    fake._faults = staticmethod(lambda faults: [])
    result = emulate("--faults", "table", "--mtbf-minutes", 90)
    assert result.stderr.splitlines()[-1] == (
        "no fault fell into this run: one comes in 90 minutes on average; lower --mtbf-minutes"
    )


def test_a_full_disk_is_one_line(fake):
    def full(self, on_progress=None):
        self.log._block.append(b"x")

        def fail(block):
            raise OSError(28, "No space left on device")

        self.log._write = fail

    fake.run = full
    result = emulate()
    assert (result.exit_code, result.stderr.count("\n")) == (2, 2), result.stderr
    assert "cannot write the event log" in result.stderr and "No space left on device" in result.stderr


def test_a_mock_gpu_that_is_too_small_is_one_line_and_leaves_no_folder(fake, tmp_path):
    def small(self, *args, **kw):
        raise execute.OutOfMemory("hbm", "params", 10, 0, 5)

    fake.__init__ = small
    result = emulate("--run-dir", "mine", "--quiet")
    assert result.exit_code == 2
    assert result.stderr == (
        "fthsdp emulate: out of memory (hbm): params wants 10 bytes, 0 of 5 are in use; lower it or raise "
        "memory.hbm\n"
    )
    assert not (tmp_path / "mine").exists()


def test_corpus_paths_are_kept_so_that_a_replay_finds_them(fake, tmp_path):
    (tmp_path / "text.txt").write_text("a line\n")
    assert emulate("--corpus", "text.txt", "--run-dir", "mine").exit_code == 0
    assert RunDir.open(tmp_path / "mine").settings().corpus == (str(tmp_path / "text.txt"),)


def test_options_win_over_the_file(fake, tmp_path):
    (tmp_path / "job.toml").write_text("replicas = 5\nsteps = 3\n[timeouts]\nround = 50\n")
    result = run("emulate", "--config", "job.toml", *ARGS, "--run-dir", "mine")
    assert result.exit_code == 0, result.output
    settings = RunDir.open(tmp_path / "mine").settings()
    assert (settings.replicas, settings.steps, settings.job_config().timeouts.round) == (3, 30, 50.0)
