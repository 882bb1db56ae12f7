"""The workers of one run, seen from worker 0: it starts the others, meets them, and sees them off.

Whatever ends a run, no process stays behind: the others end by themselves when they lose worker 0, and are
ended when they do not.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from faultinject import Schedule
from ftruntime.log.eventlog import EventLog, Sums, added, combine

from ..settings import Faults, RunSettings
from ..summary import peak_rss, release
from .errors import WorkersError
from .split import split

if TYPE_CHECKING:
    from .windows import Windows
    from .wire import Meeting, Wire

LEAVES_S = 20.0  # for a worker to end by itself
ORPHANED_S = 5.0
QUIET = 3  # exit status of a worker that has lost another
ERROR = ".error"  # suffix of the file that has the traceback of a worker
PIECE = 4 << 20  # bytes of a log that are sent at a time


class Part(msgspec.Struct, array_like=True):
    """What one worker has to say at the end."""

    sums: Sums = {}
    entries: int = 0
    messages: int = 0
    events: int = 0
    peak_rss: int = 0
    log_bytes: int = 0  # of its log, which follows; 0: it lies beside worker 0's


class Total(NamedTuple):
    """What the logs of all workers come to, and the bytes of memory that all had at most."""

    trace_hash: str
    sums: Sums
    entries: int
    peak_rss: int


class Crew:
    """All workers of a run; ``parts`` of the others once they have ended.

    crossing: what the emulation of worker 0 needs of them; None where it runs everything by itself
    """

    def __init__(
        self, crossing: Windows | None = None, wire: Wire | None = None, log: Path | None = None
    ) -> None:
        self.crossing, self._wire, self._log = crossing, wire, log
        self.parts: list[Part] = []

    @contextmanager
    def gently(self) -> Iterator[None]:
        """Let the first Ctrl-C end the run between two windows, where workers have come equally far, and the
        second at once. Raises KeyboardInterrupt in either case."""
        crossing = self.crossing
        if crossing is None or threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(*_: object) -> None:
            crossing.interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if crossing.interrupted:
            raise KeyboardInterrupt

    def finish(self) -> None:
        """The run is over: hear what the others have done. Raises WorkersError."""
        if self._wire is not None:
            for rank in self._wire.others:
                part = msgspec.msgpack.decode(self._wire.hear(rank), type=Part)
                self.parts.append(part)
                if part.log_bytes:
                    self._take_log(self._wire, rank, part.log_bytes)

    def _take_log(self, wire: Wire, rank: int, size: int) -> None:
        """Put the log of a worker elsewhere beside this one's."""
        assert self._log is not None
        with part_path(self._log, rank).open("wb") as file:
            while size > 0:
                size -= file.write(wire.hear(rank))

    @property
    def messages(self) -> int:
        """That ranks of the other workers sent."""
        return sum(part.messages for part in self.parts)

    def total(self, log: EventLog) -> Total:
        """Of all workers; ``log`` is this one's."""
        every = [log.sums(), *(part.sums for part in self.parts)]
        entries = log.entries + sum(part.entries for part in self.parts)
        memory = peak_rss() + sum(part.peak_rss for part in self.parts)
        return Total(combine(every), added(every), entries, memory)


@contextmanager
def crew(settings: RunSettings, faults: Faults, log: Path, meeting: Meeting | None = None) -> Iterator[Crew]:
    """The workers of a run. They write their logs beside ``log``.

    meeting: where workers that somebody else has started are met; None: this one starts the others
    Raises WorkersError when they do not meet.
    """
    if settings.workers == 1:
        yield Crew()
        return
    from .windows import Windows
    from .wire import LOOPBACK, Meeting, Wire, free_port

    parted = split(settings.ranks_per_replica, settings.fan_out, settings.workers)
    others: list[Any] = []
    if meeting is None:
        port = settings.port or free_port()
        meeting = Meeting(LOOPBACK, port, 0, settings.workers, settings.worker_timeout)
        others = _others(settings, faults, meeting, log)
    wire = None
    try:
        with meant_for_one_thread():
            for process in others:
                process.start()
        wire = Wire(meeting, lambda: _ended(others, log))
        agree(wire, settings)
        yield Crew(Windows(wire, parted), wire, log)
    finally:
        if wire is not None:
            wire.close()
        _see_off(others)


def _others(settings: RunSettings, faults: Faults, meeting: Meeting, log: Path) -> list[Any]:
    """Processes for all workers but worker 0."""
    schedule = faults if isinstance(faults, Schedule) else None
    spawn = multiprocessing.get_context("spawn")
    return [
        spawn.Process(
            target=_spawned,
            args=(settings, schedule, meeting._replace(rank=rank), part_path(log, rank)),
            name=f"worker {rank}",
            daemon=True,
        )
        for rank in range(1, settings.workers)
    ]


@contextmanager
def meant_for_one_thread() -> Iterator[None]:
    """Workers share the cores among them: a pool of threads in each would only get in the way."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _ended(others: list[Any], log: Path) -> str:
    """Which of them has ended, and how; "" if none has."""
    for rank, process in enumerate(others, 1):
        if process.exitcode not in (None, 0, QUIET):
            error = part_path(log, rank).with_suffix(ERROR)
            if not error.exists():
                return f"worker {rank} ended with status {process.exitcode}"
            last = error.read_text().strip().splitlines()[-1]
            return f"worker {rank} failed: {last} (traceback: {error})"
    return ""


def _see_off(others: list[Any]) -> None:
    for process in others:
        if process.pid is not None:
            process.join(LEAVES_S)
            if process.is_alive():
                process.kill()
                process.join()


def agree(wire: Wire, settings: RunSettings) -> None:
    """Raises WorkersError if the workers are not of one version, or were not told the same."""
    wire.agree("version", release() or "?")
    told = msgspec.json.encode(msgspec.structs.replace(settings, port=0, corpus=()))
    wire.agree("settings", hashlib.blake2b(told, digest_size=8).hexdigest())


def part_path(log: Path, rank: int) -> Path:
    """Where worker ``rank`` writes what worker 0 writes to ``log``."""
    return log.with_name(f"{log.stem}.{rank}{log.suffix}")


def _spawned(settings: RunSettings, schedule: Schedule | None, meeting: Meeting, log: Path) -> None:
    """A worker that worker 0 has started, and that it speaks for: nothing is printed here."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(settings, schedule, meeting, log)
    except WorkersError:
        os._exit(QUIET)
    except BaseException:
        log.with_suffix(ERROR).write_text(traceback.format_exc())
        os._exit(1)


def _end_with_parent() -> None:
    """Whatever this process waits for, it does not outlive worker 0."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(ORPHANED_S)  # it may see for itself, and close its log
    os._exit(QUIET)


def work(
    settings: RunSettings, schedule: Schedule | None, meeting: Meeting, log: Path, elsewhere: bool = False
) -> None:
    """What a worker but worker 0 does, to its end.

    elsewhere: ``log`` lies where worker 0 does not see it, and is sent
    Raises WorkersError when the workers do not meet, do not match, or one is lost.
    """
    from .wire import Wire

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: worker 0 decides what comes of it
    wire = Wire(meeting)
    try:
        agree(wire, settings)
        _work(settings, schedule, wire, log, elsewhere)
    finally:
        wire.close()


def _work(settings: RunSettings, schedule: Schedule | None, wire: Wire, path: Path, elsewhere: bool) -> None:
    from ..emulation import Emulation
    from .windows import Windows

    parted = split(settings.ranks_per_replica, settings.fan_out, settings.workers)
    log = EventLog(path)
    try:
        faults = settings.load_faults() if schedule is None else schedule
        job = Emulation(settings, faults, log, crossing=Windows(wire, parted))
        job.run()
    finally:
        log.close()
    size = path.stat().st_size if elsewhere else 0
    part = Part(log.sums(), log.entries, job.messages, job.kernel.events, peak_rss(), size)
    wire.tell(0, msgspec.msgpack.encode(part))
    with path.open("rb") as file:
        while size > 0:
            size -= len(piece := file.read(PIECE))
            wire.tell(0, piece)
