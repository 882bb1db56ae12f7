"""The schedules that broke drafts of the protocol (design 3.8): harmless now, fatal without a safeguard."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultinject.museum import files, read, replay

from .museum import replay_mutated, undisturbed

ROOT = Path(__file__).resolve().parents[2]
FILES = files()


def named(path):
    return path.stem


def test_the_museum_is_complete():
    assert [read(path).number for path in FILES] == list(range(1, len(FILES) + 1))
    assert len(FILES) >= 18


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_exhibit_says_how_it_is_replayed(path):
    schedule = read(path)
    assert path.stem.startswith(f"{schedule.number:02}_")
    assert schedule.replay == f"python -m pytest tests/museum -k {path.stem}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_ends_well(path):
    assert replay(read(path)) == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_fails_without_its_safeguard(path):
    schedule = read(path)
    assert schedule.violation in {violation.kind for violation in replay_mutated(schedule)}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_it_takes_the_schedule(path):
    assert undisturbed(read(path)) == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_guide_lists_it(path):
    schedule = read(path)
    guide = (ROOT / "docs/museum.md").read_text(encoding="utf-8")
    assert f"| {schedule.number} | {schedule.title} | {schedule.rule} | `{path.name}` |" in guide
