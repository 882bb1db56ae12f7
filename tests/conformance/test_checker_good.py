"""A correct run passes, and each of the twelve invariants was really looked at."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from conformance.checker import check

from .log_builder import Job, good_log
from .planting import first_failures

NAMES = {
    "agreement", "atomicity", "single_lineage", "equality", "exactly_once", "gradient", "convergence",
    "progress", "fencing", "blast_radius", "durability", "resources",
}  # fmt: skip
CHECKER = Path(__file__).resolve().parents[2] / "conformance" / "checker"


def test_a_correct_run_holds_and_every_invariant_is_checked():
    result = check(good_log())
    assert result.ok, first_failures(result)
    assert set(result.invariants) == NAMES == result.expected
    assert all(found.checked > 0 for found in result.invariants.values())
    assert (result.steps_committed, result.lost_steps) == (30, 1)


@pytest.mark.parametrize("changed", [{"ranks_per_replica": 1}, {"ranks_per_replica": 5}, {"buckets": 3}])
def test_other_shapes_hold_too(changed):
    result = check(good_log(**changed))
    assert result.ok, first_failures(result)


def test_json_has_two_numbers_for_each():
    report = check(good_log()).as_json()
    assert set(report) == NAMES
    assert all(set(numbers) == {"checked", "violated"} for numbers in report.values())


def test_a_run_without_faults_expects_no_more_than_it_shows():
    job = Job()
    job.start((0, 1), (1, 1), (2, 1))
    job.head((0, 1), [(0, 1), (1, 1), (2, 1)])
    for _ in range(3):
        job.step()
    job.put("end", [[*m, *held[:2], True] for m, held in job.held.items()], "steps done")
    result = check(job.log)
    assert result.ok, first_failures(result)
    calm = {"agreement", "atomicity", "single_lineage", "exactly_once", "gradient", "progress", "equality"}
    assert result.expected == calm


@pytest.mark.parametrize("file", sorted(CHECKER.glob("*.py")), ids=lambda p: p.name)
def test_the_checker_shares_nothing_with_what_it_checks(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, f"{file.name} reaches outside its package"
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top == "msgspec", f"{file.name} imports {name}"
