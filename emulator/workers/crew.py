"""The workers of one run, seen from worker 0: it starts the others, meets them, and sees them off.

Whatever ends a run, no process stays behind: the others end by themselves when they lose worker 0, and are
ended when they do not.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from faultinject import Schedule

from ..eventlog import EventLog, Sums, added, combine
from ..settings import Faults, RunSettings
from ..summary import peak_rss, release
from .errors import WorkersError
from .split import split

if TYPE_CHECKING:
    from .windows import Windows
    from .wire import Wire

LEAVES_S = 20.0  # for a worker to end by itself


class Part(msgspec.Struct, array_like=True):
    """What one worker has to say at the end."""

    sums: Sums = {}
    entries: int = 0
    messages: int = 0
    events: int = 0
    peak_rss: int = 0


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

    def __init__(self, crossing: Windows | None = None, wire: Wire | None = None) -> None:
        self.crossing, self._wire = crossing, wire
        self.parts: list[Part] = []

    def finish(self) -> None:
        """The run is over: hear what the others have done. Raises WorkersError."""
        if self._wire is not None:
            raw = self._wire.exchange(dict.fromkeys(self._wire.others, b""))
            self.parts = [msgspec.msgpack.decode(raw[rank], type=Part) for rank in self._wire.others]

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
def crew(settings: RunSettings, faults: Faults, log: Path) -> Iterator[Crew]:
    """The workers of a run, started with ``spawn``; they write their logs beside ``log``.

    Raises WorkersError when they do not meet.
    """
    if settings.workers == 1:
        yield Crew()
        return
    from .windows import Windows
    from .wire import Meeting, Wire, free_port

    parted = split(settings.ranks_per_replica, settings.fan_out, settings.workers)
    meeting = Meeting("127.0.0.1", settings.port or free_port(), 0, settings.workers, settings.worker_timeout)
    schedule = faults if isinstance(faults, Schedule) else None
    spawn = multiprocessing.get_context("spawn")
    others = [
        spawn.Process(
            target=work,
            args=(settings, schedule, meeting._replace(rank=rank), part_path(log, rank)),
            name=f"worker {rank}",
            daemon=True,
        )
        for rank in range(1, settings.workers)
    ]
    wire = None
    try:
        with meant_for_one_thread():
            for process in others:
                process.start()
        wire = Wire(meeting, lambda: _ended(others))
        _agree(wire, settings)
        yield Crew(Windows(wire, parted), wire)
    finally:
        if wire is not None:
            wire.close()
        _see_off(others)


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


def _ended(others: list[Any]) -> str:
    """Which of them has ended, and how; "" if none has."""
    ended = [p for p in others if p.exitcode not in (None, 0)]
    return ", ".join(f"{p.name} ended with status {p.exitcode}" for p in ended)


def _see_off(others: list[Any]) -> None:
    for process in others:
        if process.pid is not None:
            process.join(LEAVES_S)
            if process.is_alive():
                process.kill()
                process.join()


def _agree(wire: Wire, settings: RunSettings) -> None:
    """Raises WorkersError if the workers are not of one version, or were not told the same."""
    wire.agree("version", release() or "?")
    wire.agree("settings", shared(settings))


def shared(settings: RunSettings) -> str:
    """What all workers of a run must have alike."""
    import hashlib

    text = msgspec.json.encode(msgspec.structs.replace(settings, port=0, corpus=()))
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def part_path(log: Path, rank: int) -> Path:
    """Where worker ``rank`` writes what worker 0 writes to ``log``."""
    return log.with_name(f"{log.stem}.{rank}{log.suffix}")


def work(settings: RunSettings, schedule: Schedule | None, meeting: Any, log: Path) -> None:
    """What a worker but worker 0 does. Ends with status 0 also when worker 0 is lost: that says why."""
    import signal

    from .wire import Wire

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: worker 0 decides what comes of it
    wire = Wire(meeting)
    try:
        _agree(wire, settings)
        _work(settings, schedule, wire, log)
    except WorkersError:
        pass
    finally:
        wire.close()


def _work(settings: RunSettings, schedule: Schedule | None, wire: Wire, path: Path) -> None:
    import traceback

    from ..emulation import Emulation
    from .windows import Windows

    parted = split(settings.ranks_per_replica, settings.fan_out, settings.workers)
    log = EventLog(path)
    part = Part()
    try:
        faults = settings.load_faults() if schedule is None else schedule
        job = Emulation(settings, faults, log, crossing=Windows(wire, parted))
        try:
            job.run()
        finally:
            log.close()
        part = Part(log.sums(), log.entries, job.messages, job.kernel.events, peak_rss())
    except WorkersError:
        raise
    except Exception:
        path.with_suffix(".error").write_text(traceback.format_exc())
        raise
    wire.exchange({rank: msgspec.msgpack.encode(part) if rank == 0 else b"" for rank in wire.others})
