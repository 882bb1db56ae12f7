"""``fthsdp mutants``: its options, and what it says."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import click

from ftruntime.compiled import VARIABLE

from ..cli import INTERRUPTED, OK, WRONG, UserError
from .child import Hunted, hunt
from .page import beside, page, survivors
from .table import Mutant, StaleMutant, bent_sources, mutants

SCHEDULES = 400
STATES = 15_000  # most violations that an exploration finds come within a few thousand


@click.command("mutants")
@click.option("--schedules", type=int, default=SCHEDULES, show_default=True, help="Cases each must outlive.")
@click.option(
    "--states", type=int, default=STATES, show_default=True, help="Of each job that is explored; 0: none is."
)
@click.option(
    "--count",
    "counting",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="Go on for so long with each, and count how many of the schedules fail.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the campaign, as of fthsdp fuzz.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes, each with one mutant.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="This mutant; may be given again.  [default: all]"
)
@click.option("--markdown", type=click.Path(dir_okay=False), help="Write the table to this page, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def hunt_all(
    schedules: int,
    states: int,
    counting: float,
    seed: int,
    jobs: int,
    only: tuple[str, ...],
    markdown: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Take safeguards out of the protocol, one at a time, and see whether a campaign notices.

    Each mutant is run against the first cases of a campaign until one fails. If it outlives them all, small
    jobs are explored with it, in every order of events; then it is shown the exhibits of the museum. One that
    outlives all this survives: a hole in the search, unless its rule is guarded more than once and a mutant
    without any of the guards is caught.

    Exit status: 0 all were caught, or that; 1 one survived; 2 bad input; 130 interrupted with Ctrl-C.

    \b
    Examples:
      fthsdp mutants --jobs 2
      fthsdp mutants --only yes-without-acknowledgement --schedules 5000
      fthsdp mutants --jobs 2 --schedules 1000 --count 60 --markdown mutants.md
    """
    _check(schedules, states, jobs, seed)
    chosen = _chosen(only)
    found: list[Hunted] = []
    interrupted = False
    try:
        for hunted in _hunt_each(chosen, seed, schedules, states, counting, jobs):
            found.append(hunted)
            if not quiet:
                click.echo(f"{len(found)} of {len(chosen)}: {_one_line(hunted)}", err=True)
    except KeyboardInterrupt:
        interrupted = True
    except BrokenProcessPool:
        raise UserError("a process died (out of memory?); lower --jobs") from None
    _tell(chosen, found, as_json)
    if markdown is not None:
        Path(markdown).write_text(page({mutant.name: mutant for mutant in chosen}, found), encoding="utf-8")
    survived = bool(survivors(chosen, found))
    return INTERRUPTED if interrupted else WRONG if survived else OK


def _check(schedules: int, states: int, jobs: int, seed: int) -> None:
    if states < 0:
        raise UserError(f"--states {states} does not fit; write 0 or more")
    if schedules < 1:
        raise UserError(f"--schedules {schedules} does not fit; write 1 or more")
    if not 1 <= jobs <= 1024:
        raise UserError(f"--jobs {jobs} does not fit; write 1 to 1024, as {os.cpu_count() or 1}")
    if not 0 <= seed < 2**64:
        raise UserError(f"--seed {seed} does not fit; write 0 to 2**64 - 1")


def _chosen(only: tuple[str, ...]) -> list[Mutant]:
    """Raises UserError for a name that there is not, and for a mutant that does not fit the sources."""
    table = {mutant.name: mutant for mutant in mutants()}
    for name in only:
        if name not in table:
            raise UserError(f"no mutant {name!r}; there are: {', '.join(table)}")
    chosen = [mutant for mutant in table.values() if not only or mutant.name in only]
    try:
        for mutant in chosen:
            bent_sources(mutant)
    except StaleMutant as error:
        raise UserError(str(error)) from None
    return chosen


def _hunt_each(
    chosen: list[Mutant], seed: int, schedules: int, states: int, counting: float, jobs: int
) -> Iterator[Hunted]:
    """Each in a fresh process, which imports its own protocol; results in the order of the table."""
    os.environ.pop(VARIABLE, None)  # a compiled core cannot be bent
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _leave_ctrl_c_to_the_parent, max_tasks_per_child=1)
    try:
        asked: list[Future[Hunted]] = [
            pool.submit(hunt, m.name, seed, schedules, states, counting) for m in chosen
        ]
        for future in asked:
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one_line(hunted: Hunted) -> str:
    if not hunted.labels:
        return f"{hunted.name} SURVIVED {_budget(hunted)}"
    return f"{hunted.name} caught by {', '.join(hunted.labels)} after {_budget(hunted)}"


def _budget(hunted: Hunted) -> str:
    states = f", {hunted.states:,} states" if hunted.states else ""
    exhibits = f", {hunted.exhibits} exhibits" if hunted.exhibits else ""
    return f"{hunted.schedules:,} schedules{states}{exhibits}"


def _tell(chosen: list[Mutant], found: list[Hunted], as_json: bool) -> None:
    left = survivors(chosen, found)
    if as_json:
        rows = [
            {
                "name": h.name,
                "schedules": h.schedules,
                "states": h.states,
                "exhibits": h.exhibits,
                "caught_by": list(h.labels),
                "failed": h.failed,
                "counted": h.counted,
            }
            for h in found
        ]
        click.echo(
            json.dumps({"mutants": rows, "caught": sum(bool(h.labels) for h in found), "survived": left})
        )
    else:
        _show({mutant.name: mutant for mutant in chosen}, found)
    if left:
        click.echo(f"{len(left)} of {len(found)} survived: {', '.join(left)}", err=True)


def _show(table: dict[str, Mutant], found: list[Hunted]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="mutants", box=box.SIMPLE, title_justify="left", title_style="bold")
    for column in ("mutant", "rule of", "caught by"):
        shown.add_column(column)
    shown.add_column("after", justify="right")
    for hunted in found:
        caught = ", ".join(hunted.labels) or beside(table[hunted.name], found) or "SURVIVED"
        shown.add_row(hunted.name, table[hunted.name].section, caught, _budget(hunted))
    sys.stderr.flush()
    Console(file=sys.stdout, highlight=False).print(shown)
