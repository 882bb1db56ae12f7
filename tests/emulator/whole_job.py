"""Runs a small emulated job to its end, and has its log checked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conformance.checker import LogReader, Result, check
from emulator.emulation import Emulation
from emulator.eventlog import EventLog
from emulator.settings import RunSettings
from faultinject import AnyFault, Schedule

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


def run(faults: Sequence[AnyFault] = (), careful: bool = False, **changes: Any) -> Ran:
    """``careful``: no position runs ahead of another."""
    settings = settings_of(**changes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.log"
        log = EventLog(path)
        emulation = Emulation(settings, Schedule(job=settings.shape(), faults=tuple(faults)), log)
        notes = _listen(emulation)
        if careful:
            emulation.kernel.careful = lambda: None
        emulation.run()
        log.close()
        entries = list(LogReader(path))
    return Ran(emulation, entries, check(entries), log.trace_hash, notes)


def _listen(emulation: Emulation) -> list[tuple[float, int, str, int, str]]:
    notes, noted = [], emulation.noted

    def listen(process, note, now):
        notes.append((now, process.address[0], note.what, note.round, note.detail))
        noted(process, note, now)

    emulation.noted = listen  # type: ignore[method-assign]
    return notes
