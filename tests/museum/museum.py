"""The schedules of ``schedules/``: what a file says, and how it is replayed with its safeguard or without."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from datetime import date
from pathlib import Path

import msgspec

from ftruntime.protocol.config import JobConfig, load

from . import mutants
from .checks import Violation
from .player import Elsewhere, Player

FOLDER = Path(__file__).parent / "schedules"
SMALL = {
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
    job: dict = {}

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


def replay_mutated(schedule: Schedule) -> list[Violation]:
    """Without its safeguard. Once the schedule cannot go on as written, it has done what it can."""
    player = Player(schedule.config)
    with getattr(mutants, schedule.mutant)():
        try:
            _play_as_far_as_it_goes(player, schedule.lines)
            player.finish()
        except AssertionError as error:
            player.watcher.report("assertion", str(error))
    return player.watcher.found


def undisturbed(schedule: Schedule) -> list[Violation]:
    """A job without any fault, and without the safeguard: that alone must do no harm."""
    player = Player(schedule.config)
    with getattr(mutants, schedule.mutant)():
        for replica in range(schedule.config.replicas):
            player.world.start(replica)
        player.finish()
    return player.watcher.found


def _play_as_far_as_it_goes(player: Player, lines: list[str]) -> None:
    with suppress(Elsewhere):
        for line in lines:
            player.play(line)
