"""``pytest tests/scenarios --rewrite`` writes what the scenarios show into their files, for review."""

from __future__ import annotations


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write the scenario files anew")
