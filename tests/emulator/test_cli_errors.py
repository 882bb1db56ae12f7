"""Bad input, whatever it is: one line on standard error, exit status 2, nothing run, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from emulator import execute
from emulator.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent.parent
MALFORMED = {
    "not_json.json": "{",
    "no_schema.json": "{}",
    "unknown_kind.json": '{"schema": 1, "faults": [{"kind": "flood", "at": 1}]}',
    "unknown_replica.json": '{"schema": 1, "faults": [{"kind": "crash", "at": 1, "rank": [99, 0]}]}',
    "wrong_type.json": '{"schema": 1, "faults": [{"kind": "crash", "at": "soon", "rank": [0, 0]}]}',
    "list.json": "[]",
    "timeouts.toml": "[timeouts]\nround = 95\n",
    "unknown.toml": "replicaz = 3\n",
    "type.toml": 'replicas = "x"\n',
    "nested.toml": "[timeouts]\nlunch = 3\n",
}
BAD = [
    (["--replicas", "0"], "replicas is 0: it must be at least 1"),
    (["--ranks-per-replica", "0"], "ranks_per_replica is 0"),
    (["--steps", "0"], "steps is 0"),
    (["--min-replicas", "13"], "min_replicas 13 is more than replicas 12"),
    (["--replicas", "three"], "'three' is not a valid integer"),
    (["--replicas"], "requires an argument"),
    (["--mtbf-minutes", "often"], "'often' is not a valid float"),
    (["--mtbf-minutes", "5"], "--mtbf-minutes 5 does nothing without --faults table"),
    (["--faults", "table", "--mtbf-minutes", "0"], "mtbf_minutes is 0"),
    (["--faults", "table", "--mtbf-minutes", "nan"], "mtbf_minutes is nan"),
    (["--fidelity", "full"], "'full' is not one of 'fingerprint', 'tensor'"),
    (["--catch-up", "x"], "'x' is not one of 'tap', 'zeros'"),
    (["--gradient-retention", "x"], "'x' is not one of 'device', 'host', 'none'"),
    (["--colour", "red"], "No such option '--colour'"),
    (["surplus"], "unexpected extra argument (surplus)"),
    (["--replicas", "1000000000"], "ranks (1000000000 replicas x 64) need about"),
    (["--replicas", "9" * 40], "need about"),
    (["--faults", "tabel"], "faults 'tabel': no such file"),
    (["--faults", "."], "is a directory; name a schedule file in it"),
    (["--faults", "not_json.json"], "not JSON"),
    (["--faults", "no_schema.json"], "schema: missing"),
    (["--faults", "unknown_kind.json"], "flood"),
    (["--faults", "unknown_replica.json"], "names replica 99"),
    (["--faults", "wrong_type.json"], '"soon"'),
    (["--faults", "list.json"], "is not a schedule"),
    (["--config", "absent.toml"], "absent.toml: no such file"),
    (["--config", "."], "is a directory; name a TOML or JSON file"),
    (["--config", "timeouts.toml"], "timeouts.round 95 s is too long for timeouts.lease 90 s"),
    (["--config", "unknown.toml"], "replicaz is no setting; did you mean replicas?"),
    (["--config", "type.toml"], '"x" does not fit: expected int'),
    (["--config", "nested.toml"], "timeouts.lunch is no setting"),
    (["--corpus", "absent.txt"], "absent.txt is missing"),
    (["--locale", "tlh_QO"], "faker has no locale 'tlh_QO'"),
    (["--run-dir", "not_json.json"], "is a file; name a folder"),
    (["--run-dir", "."], "is not empty and holds no earlier run"),
    (["--step-seconds", "1000"], "is too long for timeouts.round"),
    (["--seed", "-3"], "seed is -3"),
]


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch, tmp_path):
    def run(*_):
        raise AssertionError("an emulation was made")

    monkeypatch.setattr(execute, "make_emulation", run)
    monkeypatch.chdir(tmp_path)
    for name, text in MALFORMED.items():
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize(("args", "words"), BAD, ids=[" ".join(args)[:40] for args, _ in BAD])
def test_bad_input_is_one_line_and_2(args, words, tmp_path):
    result = CliRunner().invoke(main, ["emulate", *args])
    assert result.exit_code == 2, result.output
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert result.stderr.startswith("fthsdp") and words in result.stderr
    assert {p.name for p in tmp_path.iterdir()} == set(MALFORMED), "something was left behind"


def test_unknown_commands_name_those_that_there_are():
    result = CliRunner().invoke(main, ["emulat"])
    assert (result.exit_code, result.stderr) == (
        2,
        "fthsdp: no command 'emulat'; there are: emulate, replay, fuzz, faults, explore, status, mutants\n",
    )


def test_a_line_break_in_a_value_does_not_break_the_line():
    result = CliRunner().invoke(main, ["emulate", "--faults", "a\nb\x1b[31m"])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "\x1b" not in result.stderr


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=str)
def test_help_has_examples(command):
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0 and "Examples:" in result.stdout
    assert all(f"  fthsdp {name}" in result.stdout for name in command or COMMANDS)


def test_help_of_emulate_tells_every_option_and_its_default():
    text = " ".join(CliRunner().invoke(main, ["emulate", "--help"]).stdout.split())
    for option in (
        "--replicas", "--ranks-per-replica", "--steps", "--seed", "--faults", "--mtbf-minutes", "--fidelity",
        "--catch-up", "--gradient-retention", "--min-replicas", "--run-dir", "--json", "--config", "--corpus",
    ):  # fmt: skip
        assert option in text
    for default in ("[default: 12]", "[default: 64]", "[default: 200]", "[default: half of --replicas]"):
        assert default in text


def test_every_command_of_the_table_is_there():
    context = main.make_context("fthsdp", ["--", "emulate"])
    for name in COMMANDS:
        assert main.get_command(context, name).name == name


def test_without_a_command_there_is_help_and_2():
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2 and "emulate" in result.stderr and "Traceback" not in result.output


def _python(program, *args, **kw):
    command = [sys.executable, "-c", program, *args]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "dumb"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **kw)


MAIN = "from emulator.cli import main; main()"


def test_a_process_with_bad_input_prints_one_line_and_exits_with_2(tmp_path):
    for args in (
        ["emulate", "--replicas", "0"],
        ["replay", "absent"],
        ["emulate", "--config", "unknown.toml"],
    ):
        done = _python(MAIN, *args, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


def test_help_of_the_group_imports_none_of_the_commands():
    program = (
        "import sys, json; from emulator.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)))"
    )
    done = _python(program)
    loaded = json.loads(done.stdout.splitlines()[-1])
    heavy = {"torch", "faker", "rich", "psutil", "msgspec", "faultinject", "conformance", "emulator.emulate"}
    assert not heavy & set(loaded), done.stderr


def test_bad_input_is_told_without_importing_torch():
    program = (
        "import sys; from emulator.cli import main\n"
        "try: main(['emulate', '--replicas', '0'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    assert _python(program).stdout.strip() == "False"


def test_whoever_reads_the_output_may_go_away():
    program = (
        "import os, sys; from emulator.cli import main\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "main(['--help'])"
    )
    done = _python(program)
    assert (done.returncode, done.stderr) == (1, "")
