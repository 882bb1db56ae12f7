"""``fthsdp fuzz``: its options, and what it says."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from faultinject.fuzz import draw_case

from ..cli import INTERRUPTED, OK, WRONG, UserError
from ..rundir import write_atomic
from ..summary import release
from .campaign import ENGINES, LOCAL, Broken, verdicts
from .failure import smaller, write_failure
from .ray_engine import NoRay
from .report import Told, show
from .run import Verdict
from .tally import Tally

MINUTES = 1.0
MOST_JOBS = 1024
SHRUNK = 10  # failures that are made small: those of one campaign are often one bug
ALIKE = 2  # of them with the same labels
REPORT, FAILURES = "report.json", "failures"
OUT_HELP = "Folder for the report and the failures; one that is there must be empty or a campaign's."


@click.command()
@click.option("--minutes", type=float, help=f"Wall time to draw new schedules for.  [default: {MINUTES:g}]")
@click.option("--schedules", type=int, help="How many to run, at most; alone: however long it takes.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes that run them.")
@click.option(
    "--engine", type=click.Choice(ENGINES), default=LOCAL, show_default=True, help="Where they run."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the campaign: equal seed, equal cases."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("fuzz"), show_default=True, help=OUT_HELP
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def fuzz(
    minutes: float | None,
    schedules: int | None,
    jobs: int,
    engine: str,
    seed: int,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run random schedules of faults over the real protocol, and hold every run against the invariants.

    Each case is a small job and a few faults that it is promised to survive. When they are over the job must
    come to its last step, and no invariant may be violated. A case that fails is made small and written to
    OUT/failures/NUMBER, with the command that replays it.

    A campaign of 3,000 schedules or more must also have drawn every kind of fault and reached every fault
    point ("fthsdp faults list").

    Exit status: 0 all is well; 1 a case failed, or something was never reached; 2 bad input; 130 interrupted
    with Ctrl-C (what was done until then is reported).

    \b
    Examples:
      fthsdp fuzz --minutes 10 --jobs 2
      fthsdp fuzz --schedules 500 --seed 7 --out fuzz-7
      RAY_ADDRESS=auto fthsdp fuzz --engine ray --jobs 64 --minutes 60
    """
    _check(minutes, schedules, jobs, seed)
    seconds = None if schedules is not None and minutes is None else 60.0 * (minutes or MINUTES)
    try:
        _prepare(out)
        return _run(out, seed, jobs, engine, schedules, seconds, as_json, quiet)
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror or error}; choose another --out") from None
    except (Broken, NoRay) as error:
        raise UserError(str(error)) from None


def _check(minutes: float | None, schedules: int | None, jobs: int, seed: int) -> None:
    if minutes is not None and not 0 < minutes < 1e6:
        raise UserError(f"--minutes {minutes:g} does not fit; write a number above 0, as 10")
    if schedules is not None and schedules < 1:
        raise UserError(f"--schedules {schedules} does not fit; write 1 or more")
    if not 1 <= jobs <= MOST_JOBS:
        raise UserError(f"--jobs {jobs} does not fit; write 1 to {MOST_JOBS}, as {os.cpu_count() or 1}")
    if not 0 <= seed < 2**64:
        raise UserError(f"--seed {seed} does not fit; write 0 to 2**64 - 1")


def _prepare(out: Path) -> None:
    """An empty folder. A campaign that lay there is replaced; anything else is left alone."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder")
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if there and REPORT not in there:
        raise UserError(f"--out {out} is not empty and holds no earlier campaign; name a new or empty folder")
    for path in sorted((out / FAILURES).glob("*/*")):
        path.unlink()
    (out / REPORT).unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / REPORT, b"{}\n")  # until there is one, a mark that the folder is a campaign's


def _run(
    out: Path,
    seed: int,
    jobs: int,
    engine: str,
    schedules: int | None,
    seconds: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    tally, interrupted, began = Tally(), False, time.monotonic()
    goal = f"{schedules:,}" if schedules is not None else f"{(seconds or 0.0) / 60:g} minutes"
    with Told(goal, quiet) as told:
        try:
            for verdict in verdicts(seed, jobs, schedules, seconds, engine):
                tally.add(verdict)
                told.update(tally)
        except KeyboardInterrupt:
            interrupted = True
        wall = time.monotonic() - began
        commands, stopped = _keep(out, seed, tally, told)
    interrupted = interrupted or stopped
    found = {"version": release(), "seed": seed, **tally.as_json(), "wall_seconds": round(wall, 3)}
    found["interrupted"] = interrupted
    write_atomic(out / REPORT, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    _tell(tally, found, wall, commands, out, as_json)
    wrong = tally.failures or tally.not_reached or tally.not_drawn
    return INTERRUPTED if interrupted else WRONG if wrong else OK


def _keep(out: Path, seed: int, tally: Tally, told: Told) -> tuple[dict[int, str], bool]:
    """Write each failure, the first ones of each sort made small. Ctrl-C leaves the rest as drawn.

    Returns the command that replays each, and whether it was interrupted.
    """
    commands: dict[int, str] = {}
    alike: dict[tuple[str, ...], int] = {}
    interrupted = False
    for failure in tally.failures:
        alike[failure.labels] = alike.get(failure.labels, 0) + 1
        worth = not interrupted and alike[failure.labels] <= ALIKE and len(commands) < SHRUNK
        try:
            commands[failure.number] = _keep_one(out, seed, failure, worth, told)
        except KeyboardInterrupt:
            interrupted = True
            commands[failure.number] = _keep_one(out, seed, failure, False, told)
    return commands, interrupted


def _keep_one(out: Path, seed: int, failure: Verdict, worth: bool, told: Told) -> str:
    case = draw_case(seed, failure.number)
    if worth:
        told.say(f"making case {failure.number} small: {', '.join(failure.labels)}")
    small = smaller(case, failure.labels) if worth else case
    return write_failure(out / FAILURES / f"{failure.number:06d}", seed, case, small)


def _tell(
    tally: Tally, found: dict[str, Any], wall: float, commands: dict[int, str], out: Path, as_json: bool
) -> None:
    """The report on standard output, failures on standard error."""
    if as_json:
        click.echo(json.dumps({**found, "out": str(out)}))
    else:
        from rich.console import Console

        sys.stderr.flush()
        show(tally, wall, Console(file=sys.stdout, highlight=False))
        click.echo(f"report: {out / REPORT}")
    if found["interrupted"]:
        click.echo(f"interrupted after {tally.schedules:,} schedules", err=True)
    missing = {"fault points not reached": tally.not_reached, "kinds not drawn": tally.not_drawn}
    for what, names in missing.items():
        if names:
            click.echo(f"{what} in {tally.schedules:,} schedules: {', '.join(names)}", err=True)
    for failure in tally.failures:
        click.echo(f"case {failure.number}: {', '.join(failure.labels)}", err=True)
        click.echo(f"  {commands[failure.number]}", err=True)
