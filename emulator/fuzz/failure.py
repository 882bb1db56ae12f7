"""What a failing case leaves: the smallest form of it that was found, how to replay it, and its story.

case.json, schedule.json and settings.json are the shrunk case; drawn.json is the case as it was drawn.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

import faultinject
from conformance.checker import Violation, narrate
from conformance.checker.readable import describe
from faultinject.fuzz import Case, shrink
from faultinject.fuzz.shrink import TRIES

from ..rundir import write_atomic
from ..settings_file import to_json
from .run import SLOW, STUCK, Ran, Verdict, judge, run, settings_of

SCHEDULE, SETTINGS, STORY, DRAWN = "schedule.json", "settings.json", "story.txt", "drawn.json"
SHRUNK_WALL_SECONDS = 10.0  # of one try; a case that is too slow is as slow when it is smaller
TAIL = 30  # entries of the log that end the story of a failure which no invariant tells
UNTOLD = ("computed", "reused", "applied", "dropped")  # by each rank in each round


def smaller(case: Case, labels: tuple[str, ...], tries: int = TRIES) -> Case:
    """``case``, or the smallest found that fails alike: with one of ``labels``."""
    if labels == (SLOW,):
        return case  # each try would take as long
    wanted = frozenset(labels)
    return shrink(case, lambda other: bool(wanted & set(judge(other, SHRUNK_WALL_SECONDS).labels)), tries)


def write_failure(folder: Path, seed: int, drawn: Case, small: Case) -> str:
    """Run ``small`` once more, write all about it to ``folder``, and return the command that replays it.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = run(small)
    command = replay_command(folder)
    faultinject.dump(small.schedule, folder / SCHEDULE)
    write_atomic(folder / SETTINGS, to_json(settings_of(small)))
    write_atomic(folder / DRAWN, msgspec.json.format(msgspec.json.encode(drawn), indent=1) + b"\n")
    lines = [f"case {drawn.number} of seed {seed}", f"again: {command}", "", *_story(found, small)]
    write_atomic(folder / STORY, "\n".join(lines).encode() + b"\n")
    return command


def replay_command(folder: Path) -> str:
    config, schedule = (shlex.quote(str(folder / name)) for name in (SETTINGS, SCHEDULE))
    return f"fthsdp emulate --config {config} --faults {schedule}"


def _story(found: Ran, case: Case) -> Iterator[str]:
    shape = case.shape
    ranks = f"{shape.replicas} replicas x {shape.ranks_per_replica} ranks"
    yield f"{ranks}, at least {shape.min_replicas} replicas to train"
    for fault in case.faults:
        yield f"  {msgspec.json.encode(fault).decode()}"
    yield from ("", *_wrong(found.verdict))
    for violation in _violations(found):
        yield ""
        yield from narrate(found.entries, violation)
    if found.result is None or found.verdict.labels == (STUCK,):
        yield from ("", "the end of the log:", *_tail(found))


def _wrong(verdict: Verdict) -> Iterator[str]:
    yield "wrong: " + (", ".join(verdict.labels) or "nothing, the second time: it depends on the wall clock")
    yield from (f"  {line}" for line in verdict.details)


def _violations(found: Ran) -> Iterator[Violation]:
    """The first of each invariant."""
    if found.result is not None:
        for each in found.result.invariants.values():
            yield from each.violations[:1]


def _tail(found: Ran) -> list[str]:
    return [describe(entry) for entry in found.entries if entry[0] not in UNTOLD][-TAIL:]
