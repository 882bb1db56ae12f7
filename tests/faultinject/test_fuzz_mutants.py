"""Mutants: the table fits the sources, one is caught and one survives, and bad input is one line."""

from __future__ import annotations

import importlib
import json

import msgspec
import pytest
from click.testing import CliRunner

from emulator.cli import main
from emulator.mutants import command
from emulator.mutants.child import Hunted, hunt
from emulator.mutants.page import page, survivors
from emulator.mutants.table import Edit, Mutant, StaleMutant, bent_sources, mutants


def run(*args):
    return CliRunner().invoke(main, ["mutants", *(str(a) for a in args)])


def test_every_mutant_fits_the_sources_and_can_be_compiled():
    table = mutants()
    assert len(table) >= 30 and len({mutant.name for mutant in table}) == len(table)
    for mutant in table:
        assert mutant.rule and mutant.edit
        for module, source in bent_sources(mutant).items():
            compile(source, module, "exec")


@pytest.mark.parametrize("take, times", [("this is nowhere", 0), ("import", 9)])
def test_a_snippet_that_is_gone_is_refused(take, times, monkeypatch):
    stale = Mutant("stale", "3.2", "", (Edit("ftruntime/protocol/blame.py", take, ""),))
    with pytest.raises(
        StaleMutant, match=f"stale: ftruntime/protocol/blame.py has '{take}' .+ times, not once"
    ):
        bent_sources(stale)
    monkeypatch.setattr(command, "mutants", lambda: (stale,))
    result = run()
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "mend the table" in result.stderr


def test_a_mutant_is_not_hunted_where_the_protocol_is_loaded_already():
    importlib.import_module("ftruntime.protocol.recovery")
    with pytest.raises(AssertionError, match="imported already"):
        hunt("cursors-of-the-head", 0, 1, 0)


def test_one_is_caught_and_one_outlives_a_few_cases():
    only = ("--only", "cursors-of-the-head", "--only", "rebuilt-without-all")
    result = run(*only, "--schedules", 14, "--states", 0, "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["caught"] == 1 and found["survived"] == ["rebuilt-without-all"]
    caught = {row["name"]: row for row in found["mutants"]}["cursors-of-the-head"]
    assert caught == {
        "name": "cursors-of-the-head",
        "schedules": 14,
        "states": 0,
        "exhibits": 0,
        "caught_by": ["exactly_once"],
        "failed": 0,
        "counted": 0,
    }
    assert "1 of 2 survived: rebuilt-without-all" in result.stderr


def test_what_no_schedule_catches_an_exploration_does():
    result = run("--only", "promises-on-reading", "--schedules", 1, "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["mutants"]
    assert row["schedules"] == 1 and row["states"] > 0
    assert row["caught_by"][0].startswith("explored: ") and "as_of" in row["caught_by"][0]


def test_all_caught_is_0():
    result = run(
        "--only", "rollback-off-the-record", "--only", "cursors-of-the-head", "--schedules", 60, "--jobs", 2
    )
    assert result.exit_code == 0, result.output
    assert "exactly_once" in result.stdout and "SURVIVED" not in result.output


@pytest.mark.parametrize(
    "args, told",
    [
        (["--schedules", "0"], "--schedules 0 does not fit"),
        (["--states", "-1"], "--states -1 does not fit"),
        (["--jobs", "0"], "--jobs 0 does not fit"),
        (["--seed", "-1"], "--seed -1 does not fit"),
        (["--only", "nothing"], "no mutant 'nothing'; there are: "),
    ],
)
def test_bad_input_is_one_line(args, told):
    result = run(*args)
    assert result.exit_code == 2 and told in result.stderr and result.stderr.count("\n") == 1


def test_a_mutant_is_plain_data():
    assert msgspec.json.decode(msgspec.json.encode(mutants()), type=tuple[Mutant, ...]) == mutants()


def test_who_is_guarded_twice_is_told_from_a_survivor():
    both, one, other = (
        Mutant(n, "3.2", "r", (), t) for n, t in (("both", ""), ("one", "both"), ("other", ""))
    )
    caught = [Hunted("both", 3, ("agreement",)), Hunted("one", 9), Hunted("other", 9)]
    assert survivors([both, one, other], caught) == ["other"]
    assert survivors([both, one], [Hunted("both", 9), Hunted("one", 9)]) == ["both", "one"]
    said = page({m.name: m for m in (both, one, other)}, caught)
    assert "1 of 3 are caught; 1 are guarded twice" in said and "| **survived** |" in said


def test_whoever_is_guarded_twice_names_a_mutant():
    names = {mutant.name for mutant in mutants()}
    assert {mutant.together for mutant in mutants()} - {""} <= names
