"""Runs a small emulated job to its end, and has its log checked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conformance.checker import LogReader, Result, check
from emulator.emulation import Emulation
from emulator.folds import Widen
from emulator.settings import Faults, RunSettings
from faultinject import AnyFault, Schedule
from ftruntime.log.eventlog import EventLog

SMALL = {"replicas": 3, "ranks_per_replica": 2, "steps": 12, "bucket_mib": 4, "chunk_mib": 1, "slots": 4}


class Ran(NamedTuple):
    """``notes``: what leaders said of themselves, as (time, replica, what, round, text)."""

    emulation: Emulation
    entries: list[list[Any]]
    result: Result
    trace_hash: str
    notes: list[tuple[float, int, str, int, str]]

    def of(self, kind: str) -> list[list[Any]]:
        return [entry for entry in self.entries if entry[0] == kind]

    @property
    def plans(self) -> list[dict[str, Any]]:
        return [head[8] for head in self.of("head") if head[8] is not None]


def settings_of(**changes: Any) -> RunSettings:
    return RunSettings(**{**SMALL, "max_virtual_hours": 3.0, **changes}).check()


def run(faults: Sequence[AnyFault] | str = (), careful: bool = False, window: int = 0, **changes: Any) -> Ran:
    """``careful``: no position runs ahead of another. ``window``: of a run that folds, to begin with.
    ``faults`` may be a word of the settings."""
    settings = settings_of(**changes, **({"faults": faults} if isinstance(faults, str) else {}))
    schedule = settings.load_faults() if isinstance(faults, str) else Schedule(faults=tuple(faults))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.log"
        emulation, log, notes = _carry_out(settings, schedule, path, careful, window)
        entries = list(LogReader(path))
    return Ran(emulation, entries, check(entries), log.trace_hash, notes)


def _carry_out(settings: RunSettings, faults: Faults, path: Path, careful: bool, window: int) -> Any:
    while True:
        log = EventLog(path)
        emulation = Emulation(settings, faults, log)
        notes = _listen(emulation)
        if careful:
            emulation.kernel.careful = lambda: None
        if emulation.folds is not None and window:
            emulation.folds.window = window
        try:
            emulation.run()
        except Widen as wider:
            faults, window = wider.faults, wider.window
            continue
        finally:
            log.close()
        return emulation, log, notes


def _listen(emulation: Emulation) -> list[tuple[float, int, str, int, str]]:
    notes, noted = [], emulation.hub.noted

    def listen(process, note, now):
        notes.append((now, process.address[0], note.what, note.round, note.detail))
        noted(process, note, now)

    emulation.hub.noted = listen  # type: ignore[method-assign]
    return notes
