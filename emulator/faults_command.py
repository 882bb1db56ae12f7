"""``fthsdp faults``: what can go wrong, where it can strike, and schedules drawn from a failure model."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import click

from faultinject import KINDS, POINTS, JobShape, Patterns, ScheduleError, draw, dump, dumps
from faultinject.shape import BUILDINGS

from .cli import OK, UserError

NEVER_RUN = "no campaign is recorded in {}: how often each point is reached is not known"


@click.group()
def faults() -> None:
    """The vocabulary of faults, the points at which they strike, and schedules from a failure model.

    \b
    Examples:
      fthsdp faults list                       the fault points, and how often the last campaign reached each
      fthsdp faults kinds                      every kind of fault, in a line
      fthsdp faults draw --hours 24 > day.json a day of failures of a job
    """


@faults.command("list")
@click.option(
    "--campaign",
    type=click.Path(path_type=Path),
    default=Path("fuzz"),
    show_default=True,
    help="Folder that fthsdp fuzz has written to.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
def list_points(campaign: Path, as_json: bool) -> int:
    """The fault points: name, where, what happens there, and how often the last campaign reached it.

    A fault of a schedule may name one as its onset: {"kind": "crash", "point": "vote.yes", "rank": [3, 17]}.

    \b
    Examples:
      fthsdp faults list
      fthsdp faults list --campaign fuzz-7 --json
    """
    reached = _reached(campaign)
    if as_json:
        times = [None if reached is None else reached.get(name, 0) for name in POINTS]
        rows = [{**p._asdict(), "reached": n} for p, n in zip(POINTS.values(), times, strict=True)]
        click.echo(json.dumps({"campaign": str(campaign), "known": reached is not None, "points": rows}))
        return OK
    for name, point in POINTS.items():
        times = "" if reached is None else f"{reached.get(name, 0):>12,}"
        click.echo(f"{name:<20}{point.where:<8}{times}  {point.what}")
    if reached is None:
        click.echo(NEVER_RUN.format(campaign), err=True)
    return OK


@faults.command("kinds")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
def list_kinds(as_json: bool) -> int:
    """Every kind of fault, and what it does."""
    said = {name: " ".join(inspect.getdoc(kind).split()) for name, kind in KINDS.items()}  # type: ignore[union-attr]
    if as_json:
        click.echo(json.dumps({"kinds": said}))
    else:
        for name, text in said.items():
            click.echo(f"{name:<24}{text.split('. ')[0].rstrip('.')}")
    return OK


def _reached(campaign: Path) -> dict[str, int] | None:
    """How often each point was reached; None if no campaign has said so. Raises UserError."""
    path = campaign / "report.json"
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); name another --campaign") from None
    points = found.get("points") if isinstance(found, dict) else None
    return points if isinstance(points, dict) else None


@faults.command("draw")
@click.option("--replicas", type=int, default=12, show_default=True, help="Replicas of the job.")
@click.option("--ranks-per-replica", type=int, default=64, show_default=True, help="Ranks of each replica.")
@click.option("--buildings", type=int, default=BUILDINGS, show_default=True, help="That replicas lie in.")
@click.option("--hours", type=float, default=24.0, show_default=True, help="Virtual time to draw for.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seed, equal schedule.")
@click.option("--mtbf-minutes", type=float, help="Between failures of the job.  [default: published, scaled]")
@click.option("--weibull-shape", type=float, help="Of times between failures; 1: exponential.  [default: 1]")
@click.option("--per-component", is_flag=True, help="Each GPU, host, link and process fails by itself.")
@click.option("--bursts", type=float, default=0.0, help="Share that takes a rack or building along.")
@click.option("--offenders", type=int, default=0, help="Hosts that fail again and again.")
@click.option("--offender-share", type=float, default=0.5, show_default=True, help="Failures of those.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write.  [default: standard output]")
def draw_schedule(
    replicas: int,
    ranks_per_replica: int,
    buildings: int,
    hours: float,
    seed: int,
    mtbf_minutes: float | None,
    out: Path | None,
    **patterns: Any,
) -> int:
    """Draw a schedule from the failure model: the published causes, at exponential or Weibull times.

    Give the file to "fthsdp emulate --faults", with the same shape of job. With --per-component,
    --weibull-shape is that of every unit; without it each component has its own.

    \b
    Examples:
      fthsdp faults draw --hours 24 --mtbf-minutes 5 --out day.json
      fthsdp faults draw --weibull-shape 0.6 --bursts 0.05 --offenders 3 --out rough.json
      fthsdp faults draw --ranks-per-replica 8192 --per-component --hours 6 --out large.json
    """
    try:
        shape = JobShape(replicas=replicas, ranks_per_replica=ranks_per_replica, buildings=buildings)
        mtbf = None if mtbf_minutes is None else 60.0 * mtbf_minutes
        how = Patterns(**patterns)
        drawn = draw(shape, horizon_seconds=3600.0 * hours, seed=seed, mtbf_seconds=mtbf, patterns=how)
        if out is None:
            click.echo(dumps(drawn), nl=False)
        else:
            dump(drawn, out)
            click.echo(f"{len(drawn.faults):,} faults in {hours:g} hours: {out}", err=True)
    except ScheduleError as error:
        raise UserError(str(error)) from None
    return OK
