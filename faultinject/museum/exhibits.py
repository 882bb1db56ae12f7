"""The schedules of ``schedules/``: what a file says, and how it is replayed (docs/museum.md)."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from ftruntime.protocol.config import JobConfig, load

from .checks import Violation
from .player import Elsewhere, Player

FOLDER = Path(__file__).parent / "schedules"
SMALL: Final[dict[str, Any]] = {
    "replicas": 2,
    "ranks_per_replica": 1,
    "streams": 2,
    "samples_per_step": 1,
    "scalars": 0,
    "ftar": {"buckets": [1]},
    "catch_up": {"ranges": 2, "outstanding": 1},
}


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file. ``job`` overrides ``SMALL``; ``violation`` is a kind of ``checks.Violation``."""

    number: int
    title: str
    date: date
    cause: str
    rule: str
    mutant: str
    violation: str
    replay: str
    steps: str
    job: dict[str, Any] = {}

    @property
    def config(self) -> JobConfig:
        return load(SMALL | self.job)

    @property
    def lines(self) -> list[str]:
        """The steps without comments and empty lines."""
        bare = [line.partition("#")[0].strip() for line in self.steps.splitlines()]
        return [line for line in bare if line]


def read(path: Path) -> Schedule:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Schedule)


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.toml"))


def replay(schedule: Schedule) -> list[Violation]:
    """With every safeguard in place. Raises AssertionError where the schedule is not where it says."""
    player = Player(schedule.config)
    for line in schedule.lines:
        player.play(line)
    player.finish()
    return player.watcher.found


def violations_without(schedule: Schedule, player: Player) -> list[Violation]:
    """Of a schedule whose safeguard is out. Once it cannot go on as written, it has done what it can."""
    try:
        with suppress(Elsewhere):
            for line in schedule.lines:
                player.play(line)
        player.finish()
    except AssertionError as error:
        player.watcher.report("assertion", str(error))
    return player.watcher.found
