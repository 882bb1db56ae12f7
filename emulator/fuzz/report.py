"""What a person sees of a campaign: a live line while it runs, and tables when it is over."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from faultinject import KINDS, POINTS, Phase

from ..summary import clock
from .tally import Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LINE_SECONDS, LIVE_SECONDS = 5.0, 0.25  # wall time between two words, without and with a terminal


class Told:
    """Progress on standard error: a live line on a terminal, else a line now and then. A context."""

    def __init__(self, goal: str, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._goal, self._quiet, self._stream = goal, quiet, sys.stderr if stream is None else stream
        self._began = self._last = time.monotonic()
        self._live: Any = None

    def __enter__(self) -> Told:
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, tally: Tally) -> None:
        """The campaign stands here. Called after every case."""
        now = time.monotonic()
        if self._quiet or now - self._last < (LINE_SECONDS if self._live is None else LIVE_SECONDS):
            return
        self._last = now
        self.say(one_line(tally, self._goal, now - self._began))

    def say(self, line: str) -> None:
        if self._live is not None:
            self._live.update(line, refresh=True)
        elif not self._quiet:
            self._stream.write(line + "\n")
            self._stream.flush()


def one_line(tally: Tally, goal: str, wall: float) -> str:
    rate = tally.schedules / wall if wall else 0.0
    return (
        f"{tally.schedules:,} schedules of {goal} | {rate:,.0f} a second"
        f" | {sum(tally.faults.values()):,} faults | {tally.virtual_years:.2f} virtual years"
        f" | {len(tally.failures)} failures"
    )


def show(tally: Tally, wall: float, console: Console) -> None:
    """Print the tables of a campaign."""
    rate = tally.schedules / wall if wall else 0.0
    table = _table("campaign", "", "")
    table.show_header = False
    table.add_row("schedules", f"{tally.schedules:,} ({rate:,.1f} a second)")
    table.add_row("virtual time", f"{tally.virtual_years:.3f} years")
    table.add_row("wall time", clock(wall))
    table.add_row("failures", f"{len(tally.failures):,}")
    console.print(table)
    console.print(_counts("faults", "kind", {kind: tally.faults[kind] for kind in KINDS}))
    console.print(_counts("faults by phase", "phase", {str(phase): tally.phases[phase] for phase in Phase}))
    console.print(_counts("fault points", "point", {name: tally.points[name] for name in POINTS}, "reached"))
    console.print(_counts("what the jobs went through", "event", dict(sorted(tally.events.items()))))
    console.print(_counts("invariants", "invariant", tally.checked, "checked"))


def _counts(title: str, what: str, found: Mapping[str, int], times: str = "times") -> Table:
    table = _table(title, what, times)
    for name, number in found.items():
        table.add_row(name, f"{number:,}")
    return table


def _table(title: str, what: str, number: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
    table.add_column(what)
    table.add_column(number, justify="right")
    return table
