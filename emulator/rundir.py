"""The folder that a run leaves behind, and what lies in it.

settings.json        what was asked for; with it a folder is known as a run's
schedule.json        every fault that happened: a schedule that can be run again
events.log           the event log; events.1.log ...: of other workers, read together with it
summary.json         what came of it
trace.perfetto.json  for ui.perfetto.dev
workers.json         with --clock wall, while it runs: its worker processes
error.txt            only if the emulation itself failed: the traceback

Every file but the log is written beside its place and moved there, so none is ever half there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import faultinject
from faultinject import AnyFault, JobShape, Schedule
from ftruntime.protocol.errors import ConfigError

from .settings import RunSettings
from .settings_file import SCHEMA_KEY, make_settings, to_json

SETTINGS, SCHEDULE, EVENTS = "settings.json", "schedule.json", "events.log"
PIDS = "workers.json"
SUMMARY, TRACE, ERROR = "summary.json", "trace.perfetto.json", "error.txt"
OF_WORKERS = ("events.*.log", "events.*.error")
FILES = (SETTINGS, SCHEDULE, EVENTS, SUMMARY, TRACE, ERROR, PIDS)
RUNS = Path("runs")  # where a run goes that names no folder
MOST_BYTES = 64 << 20  # of a summary
MOST_NAMES = 1_000


class RunDir:
    """One run's folder. ``create`` makes it for a new run, ``open`` finds a finished one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path | None, settings: RunSettings) -> RunDir:
        """A folder with nothing but the settings in it. A run that lay there is replaced.

        None: a new folder in ``runs``. Raises ConfigError for a folder that is in use for something else.
        """
        try:
            if path is None:
                return cls(_new_folder(settings.seed))._begin(settings)
            _check_free(path)
            path.mkdir(parents=True, exist_ok=True)
            return cls(path)._begin(settings)
        except OSError as error:
            where = error.filename or path
            raise ConfigError(
                f"cannot write to {where}: {error.strerror or error}; choose another --run-dir"
            ) from None

    def _begin(self, settings: RunSettings) -> RunDir:
        self._clear()
        write_atomic(self.path / SETTINGS, to_json(settings))
        return self

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """The folder of an earlier run. Raises ConfigError if ``path`` is none."""
        if not path.exists():
            raise ConfigError(f"{path}: no such folder; name a run's, as {RUNS}/...")
        if not path.is_dir():
            raise ConfigError(f"{path} is a file; name the folder of a run")
        if not is_run(path):
            raise ConfigError(f"{path} is not the folder of a run: it has no {SETTINGS} of one")
        return cls(path)

    def settings(self) -> RunSettings:
        """Raises ConfigError."""
        return make_settings({}, self.path / SETTINGS)

    def schedule(self, shape: JobShape) -> Schedule:
        """The faults that happened. Raises ScheduleError."""
        return faultinject.load(self.path / SCHEDULE, shape)

    def summary(self) -> dict[str, Any]:
        """Raises ConfigError for one that is missing or damaged."""
        path = self.path / SUMMARY
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ConfigError(f"{path} is longer than {MOST_BYTES} bytes: it is no summary")
            found = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read ({error.strerror}): the run has not ended; run it again"
            ) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}; run it again") from None
        if not isinstance(found, dict):
            raise ConfigError(f"{path} is no summary; run it again")
        return found

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_atomic(self.path / SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")

    def write_schedule(self, shape: JobShape, happened: Iterable[AnyFault]) -> None:
        """Raises ScheduleError if the driver hands over what is no valid fault."""
        text = faultinject.dumps(Schedule(job=shape, faults=tuple(happened)))
        write_atomic(self.path / SCHEDULE, text.encode())

    def discard(self) -> None:
        """Nothing was run: take away what ``create`` made, and the folder if nothing else is in it."""
        self._clear()
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _clear(self) -> None:
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        for pattern in OF_WORKERS:
            for path in self.path.glob(pattern):
                path.unlink()

    def write_error(self, traceback: str) -> Path:
        write_atomic(self.path / ERROR, traceback.encode())
        return self.path / ERROR


def is_run(path: Path) -> bool:
    """Whether a run wrote ``path``: its settings bear the mark."""
    try:
        with (path / SETTINGS).open("rb") as file:
            return f'"{SCHEMA_KEY}"'.encode() in file.read(200)
    except OSError:
        return False


def write_atomic(path: Path, content: bytes) -> None:
    """Whoever looks sees the old file or the new one, never a part. Raises OSError."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _check_free(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--run-dir {path} is a file; name a folder")
    if path.is_dir() and any(path.iterdir()) and not is_run(path):
        raise ConfigError(
            f"--run-dir {path} is not empty and holds no earlier run; name a new or empty folder"
        )


def _new_folder(seed: int) -> Path:
    """One that nobody has: two runs may start in the same second."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    for number in range(1, MOST_NAMES):
        path = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise ConfigError(f"{RUNS}/{name} exists {MOST_NAMES} times over; choose a --run-dir")
