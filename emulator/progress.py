"""What is told on standard error while a run goes on: a live view on a terminal, else a line now and then.

Nothing here writes to standard output, which belongs to the result.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, TextIO

from .summary import clock

LINE_SECONDS = 5.0  # wall time between the lines where there is no terminal
STATES = ("up", "catching up", "restarting", "down")


class Running(Protocol):
    """What an emulation shows of itself while it runs."""

    now: float
    steps_committed: int
    rounds: int
    messages: int
    faults_injected: Sequence[Any]
    replica_states: Sequence[str]
    effective_training_time: float


class Progress:
    """Quiet: tells nothing. Also the base of those that do. A context."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def building(self, ranks: int) -> None:
        """The ranks are being made; before the first ``update``."""

    def update(self, run: Running) -> None:
        """The emulation stands here. Called a few times a second."""

    def widening(self, window: int) -> None:
        """A run that folds begins again, with ``window`` faults known ahead."""

    def checking(self, done: int, total: int) -> None:
        """The checker has read ``done`` of ``total`` entries."""

    def stop(self) -> None:
        """Nothing more is told."""


class Lines(Progress):
    """A line every ``LINE_SECONDS``, for logs and pipes."""

    def __init__(self, steps: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._stream, self._clock = steps, stream, clock
        self._began = self._last = clock()

    def building(self, ranks: int) -> None:
        self._tell(f"building {ranks:,} ranks")

    def widening(self, window: int) -> None:
        self._tell(_again(window))

    def update(self, run: Running) -> None:
        if self._due():
            self._tell(one_line(run, self._steps, self._clock() - self._began))

    def checking(self, done: int, total: int) -> None:
        if self._due():
            self._tell(f"checking the event log: {_share(done, total)} of {total:,} entries")

    def _due(self) -> bool:
        now = self._clock()
        if now - self._last < LINE_SECONDS:
            return False
        self._last = now
        return True

    def _tell(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class Live(Progress):
    """A few lines on a terminal that are drawn over and over."""

    def __init__(self, steps: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._steps = steps
        self._began = time.monotonic()
        self._live = RichLive(
            console=Console(file=stream), transient=True, auto_refresh=False, redirect_stdout=False
        )
        self._live.start()

    def building(self, ranks: int) -> None:
        self._live.update(_table({"building": f"{ranks:,} ranks"}), refresh=True)

    def widening(self, window: int) -> None:
        self._live.console.print(_again(window))

    def update(self, run: Running) -> None:
        self._live.update(_table(fields(run, self._steps, time.monotonic() - self._began)), refresh=True)

    def checking(self, done: int, total: int) -> None:
        told = f"{_share(done, total)} of {total:,} entries"
        self._live.update(_table({"checking the event log": told}), refresh=True)

    def stop(self) -> None:
        self._live.stop()


def _again(window: int) -> str:
    return f"a fault struck a folded rank: from the beginning again, with {window} faults unfolded ahead"


def progress(steps: int, quiet: bool = False, stream: TextIO | None = None) -> Progress:
    """What fits ``stream`` (standard error)."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Progress()
    return Live(steps, stream) if stream.isatty() else Lines(steps, stream)


def fields(run: Running, steps: int, wall: float) -> dict[str, str]:
    """What is told of a run, in order. ``wall``: seconds since it began."""
    return {
        "step": f"{run.steps_committed:,} of {steps:,}{_left(run.steps_committed, steps, wall)}",
        "virtual time": clock(run.now),
        "replicas": states(run.replica_states),
        "faults so far": f"{len(run.faults_injected):,}",
        "effective training time": f"{run.effective_training_time:.1%}",
    }


def one_line(run: Running, steps: int, wall: float) -> str:
    """The same in one line."""
    return " | ".join(f"{name} {value}" for name, value in fields(run, steps, wall).items())


def states(replicas: Sequence[str]) -> str:
    """How many replicas are in each state; "up" is told always."""
    count = Counter(replicas)
    known = [name for name in STATES if count[name] or name == "up"]
    return ", ".join(f"{count[name]} {name}" for name in [*known, *sorted(set(count) - set(STATES))])


def _left(done: int, steps: int, wall: float) -> str:
    """How long the rest will take at this pace, once there is a pace."""
    if not 0 < done < steps or wall < 2:
        return ""
    return f" (about {clock(wall / done * (steps - done))} left)"


def _share(done: int, total: int) -> str:
    return f"{done / total:.0%}" if total else "0%"


def _table(rows: dict[str, str]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(f"[bold]{name}", value)
    return table
