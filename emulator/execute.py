"""One emulation from settings to summary: runs it into a folder, checks its log, writes what came of it.

Whatever ends a run early (Ctrl-C, a failure of the emulation itself), what there is by then is written.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from conformance.checker import Checker, InvariantResult, LogReader, Result
from faultinject import ScheduleError
from ftruntime.log.eventlog import EventLog, LogError

from .folds import Widen
from .memory import OutOfMemory
from .perfetto import TraceWriter
from .progress import Progress
from .rundir import EVENTS, TRACE, RunDir
from .settings import Faults, RunSettings
from .stalls import Stalls, Timeline
from .summary import Measured, summary
from .workers.crew import Crew, Total, crew
from .workers.errors import WorkersError

if TYPE_CHECKING:
    from .workers.wire import Meeting

CHECK_EVERY = 1 << 15  # entries between two words about the progress of the check
OnSpan = Callable[[int, str, float, float, dict[str, Any]], None]


class RunError(Exception):
    """The run cannot be carried out (disk full, mock GPU too small): one line for the user."""


@dataclass
class Outcome:
    """What came of a run. ``offending``: the first events of each violated invariant."""

    summary: dict[str, Any]
    expected: frozenset[str] = frozenset()
    failures: list[str] = field(default_factory=list)
    offending: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False
    error: str = ""


@dataclass
class Checked:
    """What the log says of the invariants and of the time. ``error``: traceback if the check broke off."""

    result: Result
    stalls: Stalls
    interrupted: bool = False
    error: str = ""


class Ended(NamedTuple):
    """How the emulation ended. ``error``: traceback of its failure, or "". Wall seconds."""

    interrupted: bool
    error: str
    wall_seconds: float
    check_seconds: float


def make_emulation(
    settings: RunSettings, faults: Faults, log: EventLog, on_span: OnSpan | None, crossing: Any = None
) -> Any:
    """The driver of emulated ranks. The one place that knows which; tests put another in its place.

    crossing: the way to other workers that run a part of the job
    """
    from .emulation import Emulation

    return Emulation(settings, faults, log, on_span=on_span, crossing=crossing)


def run(
    settings: RunSettings,
    faults: Faults,
    folder: RunDir,
    progress: Progress,
    meeting: Meeting | None = None,
) -> Outcome:
    """Run, check, write.

    meeting: where workers are met that somebody else has started
    A run that folds begins anew, with more faults known ahead, when one struck a rank that was folded.
    Raises RunError or ConfigError for what the user can mend, OSError of the disk.
    """
    began, window = time.perf_counter(), 0
    while True:
        try:
            return _run(settings, faults, folder, progress, window, began, meeting)
        except Widen as wider:
            progress.widening(wider.window)
            faults, window = wider.faults, wider.window
        except WorkersError as error:
            raise RunError(str(error)) from None


def _run(
    settings: RunSettings,
    faults: Faults,
    folder: RunDir,
    progress: Progress,
    window: int,
    began: float,
    meeting: Meeting | None,
) -> Outcome:
    emulation = None
    try:
        path = folder.path / EVENTS
        with (
            TraceWriter(folder.path / TRACE, settings.replicas) as trace,
            _crew(settings, faults, path, meeting) as team,
        ):
            log = EventLog(path)
            emulation = build(settings, faults, log, trace.span, progress, team.crossing)
            if window:
                emulation.folds.window = window
            interrupted, error = drive(emulation, log, progress, team)
            if not error:
                team.finish()
            if team.messages:
                emulation.messages_of_the_dead += team.messages
            total = team.total(log)
            wall = time.perf_counter() - began
            not_kept = _keep_faults(settings, folder, emulation)
            began = time.perf_counter()
            checked = check(path, total.entries, settings.steps, trace, progress)
            spent = time.perf_counter() - began
    except BaseException:
        if emulation is None:
            folder.discard()
        raise
    return _write(
        settings, folder, emulation, total, checked, Ended(interrupted, error or not_kept, wall, spent)
    )


def _crew(
    settings: RunSettings, faults: Faults, path: Path, meeting: Meeting | None
) -> AbstractContextManager[Any]:
    if settings.clock == "wall":
        from .wall import host_crew

        return host_crew(settings, path)
    return crew(settings, faults, path, meeting)


def _keep_faults(settings: RunSettings, folder: RunDir, emulation: Any) -> str:
    """Before anything else goes wrong: the faults make the run repeatable. Returns why they are not kept."""
    try:
        folder.write_schedule(settings.shape(), emulation.faults_injected)
    except ScheduleError:
        return traceback.format_exc()
    return ""


def build(
    settings: RunSettings,
    faults: Faults,
    log: EventLog,
    on_span: OnSpan | None,
    progress: Progress,
    crossing: Any = None,
) -> Any:
    """The emulation, ready to run; ``log`` is closed if it cannot be made. Raises RunError, ConfigError."""
    progress.building(settings.ranks)
    try:
        return make_emulation(settings, faults, log, on_span, crossing)
    except BaseException as error:
        log.close()
        if isinstance(error, OutOfMemory | LogError):
            raise RunError(str(error)) from None
        raise


def drive(emulation: Any, log: EventLog, progress: Progress, team: Crew | None = None) -> tuple[bool, str]:
    """Run the emulation to its end and close ``log``. Raises RunError when the log cannot be written, Widen
    when a run that folds must begin anew.

    Returns (interrupted, traceback of a failure of the emulation itself or "").
    """
    interrupted, error = False, ""
    try:
        try:
            with (team or Crew()).gently():
                emulation.run(progress.update)
        except KeyboardInterrupt:
            interrupted = True
        except (LogError, Widen, WorkersError):
            raise
        except Exception:
            error = traceback.format_exc()
        finally:
            log.close()
    except LogError as failure:
        raise RunError(str(failure)) from None
    return interrupted, error


def check(path: Path, entries: int, steps: int, trace: TraceWriter, progress: Progress) -> Checked:
    """One pass over the log for the invariants, the lost time, and the instants of the trace.

    Ctrl-C, or a log that cannot be read on, ends the pass; what was found until then stands.
    """
    reader, timeline = LogReader(path), Timeline(steps)
    checker: Checker | None = None
    interrupted, error = False, ""
    try:
        for number, entry in enumerate(reader):
            if checker is None:
                checker = Checker(entry)
            else:
                checker.observe(entry)
            timeline.observe(entry)
            trace.entry(entry)
            if not number % CHECK_EVERY:
                progress.checking(number, entries)
    except KeyboardInterrupt:
        interrupted = True
    except Exception:
        error = traceback.format_exc()
    result = _result(checker, reader, bool(error))
    return Checked(result, timeline.finish(), interrupted, error)


def _result(checker: Checker | None, reader: LogReader, failed: bool) -> Result:
    if checker is None:
        return Result({}, failures=["the event log is empty: nothing was checked"])
    if not failed:
        return checker.finish(reader.truncated)
    # The checker may be in the middle of something: only what it has counted is to be had.
    found = {v.name: InvariantResult(v.checked, v.violated, v.violations) for v in checker.invariants}
    lines = [f"{name}: violated {each.violated} times" for name, each in found.items() if each.violated]
    return Result(found, failures=lines, entries=checker.entries)


def _write(
    settings: RunSettings, folder: RunDir, emulation: Any, total: Total, checked: Checked, ended: Ended
) -> Outcome:
    failed = ended.error or checked.error
    if failed:
        folder.write_error(failed)
    last = failed.strip().splitlines()[-1] if failed else ""
    interrupted = ended.interrupted or checked.interrupted
    times = (ended.wall_seconds, ended.check_seconds)
    measured = Measured(*times, total.peak_rss, total.trace_hash, total.sums, interrupted, last)
    result = checked.result
    found = summary(settings, emulation, checked.stalls, result.as_json(), measured)
    found["corruptions_seen"] = result.corruptions_seen
    folder.write_summary(found)
    return _outcome(found, result, interrupted, last)


def _outcome(found: dict[str, Any], result: Result, interrupted: bool, error: str) -> Outcome:
    offending = {name: each.first for name, each in result.invariants.items() if each.violated}
    failures = result.failures
    if interrupted or error:  # what was never checked may just not have come yet
        failures = [line for line in failures if line.split(":")[0] in offending]
    return Outcome(found, result.expected, failures, offending, interrupted, error)
