"""``fthsdp explore``: every order of the events of a small job, from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from faultinject.explore import Bounds, Report
from faultinject.explore.search import Search, report_of

from .cli import INTERRUPTED, OK, WRONG, UserError

GAVE_UP = 2
CHOICES = {"start": ("training", "returning"), "mode": ("tap", "zeros")}
LEAST = {"replicas": 2, "ranks": 1, "min_replicas": 1, "max_states": 1}
HELP = {
    "start": "All train, or replica 1 has just come back.",
    "mode": "How a replica catches up.",
    "rounds": "Rounds that may open after the one of the start.",
    "crashes": "Processes that die, at any moment.",
    "restarts": "Dead replicas that are started again.",
    "lost_answers": "Requests carried out whose answer is lost.",
    "timers": "Timers that fire too early.",
    "lapses": "Leases of living members that end.",
    "max_states": "Give up beyond so many.",
    "liveness_every": "Every so many-th state is followed to a commit; 0: those at rest alone.",
}


def _bounds_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One option for each field of ``Bounds``."""
    standard = Bounds()
    for name in reversed(Bounds.__struct_fields__):
        value = getattr(standard, name)
        kind: Any = click.Choice(CHOICES[name]) if name in CHOICES else int
        flag = "--" + name.replace("_", "-")
        option = click.option(flag, type=kind, default=value, show_default=True, help=HELP.get(name))
        function = option(function)
    return function


@click.command("explore")
@_bounds_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def explore(as_json: bool, quiet: bool, **bounds: Any) -> int:
    """Try every order of the events of a small job, on the real protocol, within bounds.

    Each state is visited once. In each the invariants are looked at, and from those in which only time can
    pass a commit by all must follow.

    Exit status: 0 no violation, and all was seen; 1 a violation, with the moves that lead there; 2 bad input,
    or given up at --max-states; 130 interrupted with Ctrl-C (what was seen until then is reported).

    \b
    Examples:
      fthsdp explore --crashes 1 --lost-answers 0 --timers 0 --rounds 0
      fthsdp explore --replicas 3 --timers 0 --max-states 100000
      fthsdp explore --start returning --mode zeros --lost-answers 0 --json
    """
    _check(bounds)
    search = Search(Bounds(**bounds))
    interrupted = False
    try:
        complete = search.run(None if quiet else _progress)
    except KeyboardInterrupt:
        complete, interrupted = False, True
    report = report_of(search, complete)
    if not quiet:
        click.echo(err=True)
    click.echo(msgspec.json.encode(report).decode() if as_json else report.text())
    if interrupted:
        click.echo(f"interrupted after {report.states:,} states", err=True)
    return INTERRUPTED if interrupted else _status(report)


def _status(report: Report) -> int:
    return WRONG if report.violation is not None else OK if report.complete else GAVE_UP


def _check(bounds: dict[str, Any]) -> None:
    for name, value in bounds.items():
        least = LEAST.get(name, 0)
        if isinstance(value, int) and value < least:
            raise UserError(f"--{name.replace('_', '-')} {value} does not fit; write {least} or more")
    if bounds["min_replicas"] > bounds["replicas"]:
        raise UserError(
            f"--min-replicas {bounds['min_replicas']} does not fit; write 1 to {bounds['replicas']}"
        )


def _progress(depth: int, states: int, layer: int) -> None:
    told = f"\rdepth {depth}: {states:,} states, {layer:,} in this layer"
    click.echo(told, nl=False, err=True)
    sys.stderr.flush()
