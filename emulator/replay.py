"""``fthsdp replay``: runs an emulation again and says whether it left the same trace."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import msgspec

from conformance.checker import CorruptLog, LogReader
from conformance.checker.readable import describe
from faultinject import ScheduleError
from ftruntime.log.eventlog import EventLog
from ftruntime.protocol.errors import ConfigError

from .cli import INTERRUPTED, OK, WRONG, UserError, one_line
from .execute import RunError, build, drive
from .progress import progress
from .rundir import EVENTS, SCHEDULE, SETTINGS, RunDir
from .summary import release, track

Sums = dict[str, list[Any]]  # replica or "job" -> [entries, sum of their hashes in hex]


class Folded(msgspec.Struct):
    """Of a run that folded: (round, positions unfolded on purpose) of each seating."""

    seats: list[tuple[int, list[int]]]


class Recorded(msgspec.Struct):
    """What a summary has that a replay needs."""

    trace_hash: str
    trace_sums: dict[str, tuple[int, str]]
    interrupted: bool = False
    error: str = ""
    version: str = ""
    folded: Folded | None = None


class Compared(msgspec.Struct):
    """``difference``: lines for a person, empty when the traces are the same."""

    same: bool
    recorded: str
    replayed: str
    differing: list[str] = []
    difference: list[str] = []


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def replay(run_dir: Path, as_json: bool, quiet: bool) -> int:
    """Run the emulation of RUN_DIR again, with its settings and the faults that happened in it, and compare.

    RUN_DIR itself is not changed. Exit status: 0 the trace is the same; 1 it differs (the first replica whose
    chain of events differs is named, and the first event); 2 bad input; 130 interrupted.

    \b
    Examples:
      fthsdp replay runs/20260101-120000-seed0
      fthsdp replay --json runs/mine
    """
    try:
        found = _again(RunDir.open(run_dir), quiet)
    except (ConfigError, ScheduleError, RunError) as error:
        raise UserError(str(error)) from None
    if found is None:
        click.echo("interrupted: nothing was compared", err=True)
        return INTERRUPTED
    _tell(found, as_json)
    return OK if found.same else WRONG


def _again(folder: RunDir, quiet: bool) -> Compared | None:
    """None when interrupted."""
    settings = folder.settings()
    if settings.clock == "wall":
        raise ConfigError(
            f"{folder.path} was run with clock wall, and real time does not repeat: to have its faults in "
            f"virtual time, give its {SCHEDULE} to fthsdp emulate --faults"
        )
    recorded = _recorded(folder)
    faults = folder.schedule(settings.shape())
    with tempfile.TemporaryDirectory(prefix="fthsdp-replay-") as scratch:
        path = Path(scratch) / EVENTS
        log = EventLog(path)
        with progress(settings.steps, quiet) as told:
            emulation = build(settings, faults, log, None, told)
            if recorded.folded is not None and settings.fold:
                emulation.folds.repeat(recorded.folded.seats)
            interrupted, error = drive(emulation, log, told)
        if interrupted:
            return None
        sums = {track(r): [n, f"{total:016x}"] for r, (n, total) in log.sums().items()}
        found = Compared(log.trace_hash == recorded.trace_hash, recorded.trace_hash, log.trace_hash)
        if error:
            found.difference.append(f"the replay failed: {one_line(error.strip().splitlines()[-1])}")
        if not found.same:
            found.differing = _differing(recorded, sums)
            found.difference += _explain(found.differing, recorded, sums, folder.path / EVENTS, path)
        return found


def _recorded(folder: RunDir) -> Recorded:
    try:
        recorded = msgspec.convert(folder.summary(), Recorded)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{folder.path}: the summary is not a run's: {error}; run it again") from None
    if recorded.interrupted:
        raise ConfigError(
            f"{folder.path} was interrupted, so there is no whole trace to compare with; "
            f"run it again with: fthsdp emulate --config {folder.path / SETTINGS} "
            f"--faults {folder.path / SCHEDULE}"
        )
    return recorded


def _differing(recorded: Recorded, sums: Sums) -> list[str]:
    """The replicas (or "job") whose entries differ, in order."""
    names = sorted({*recorded.trace_sums, *sums}, key=lambda n: (n == "job", len(n), n))
    return [n for n in names if list(recorded.trace_sums.get(n, ())) != sums.get(n, [])]


def _explain(differing: list[str], recorded: Recorded, sums: Sums, old: Path, new: Path) -> Iterator[str]:
    if recorded.version != release():
        yield f"it was recorded by version {recorded.version or '?'}, this is {release() or '?'}"
    if differing:
        first = differing[0]
        counts = [str(side[first][0]) if first in side else "no" for side in (recorded.trace_sums, sums)]
        what = "the job's own chain" if first == "job" else f"the chain of replica {first}"
        yield f"{what} differs first: {counts[0]} entries recorded, {counts[1]} replayed"
        if len(differing) > 1:
            yield f"others that differ: {', '.join(differing[1:])}"
    yield from _first_event(old, new)


def _first_event(old: Path, new: Path) -> Iterator[str]:
    """The first entries that differ; nothing where the recorded log is gone or damaged."""
    try:
        for number, (before, after) in enumerate(zip_longest(LogReader(old), LogReader(new)), 1):
            if before != after:
                yield f"entry {number} recorded: {describe(before) if before else 'none'}"
                yield f"entry {number} replayed: {describe(after) if after else 'none'}"
                return
    except (OSError, CorruptLog) as error:
        yield f"the recorded log cannot be compared: {one_line(str(error))}"


def _tell(found: Compared, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found)))
    elif found.same:
        click.echo(f"same trace: {found.replayed}")
    else:
        click.echo(f"DIFFERENT trace: recorded {found.recorded}, replayed {found.replayed}")
        for line in found.difference:
            click.echo(f"  {line}")
