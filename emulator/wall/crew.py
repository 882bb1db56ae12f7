"""The worker processes of a run against real time: started, watched, buried and, whatever happens, ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

from conformance.checker import LogReader
from ftruntime.log.eventlog import EventLog, whole_blocks
from ftruntime.protocol.ids import Replica

from ..rundir import PIDS, write_atomic
from ..settings import RunSettings
from ..summary import peak_rss
from ..workers.crew import Total, part_path
from ..workers.errors import WorkersError
from .hub_side import HubSide
from .link import LOOPBACK

REAPED_S = 1.0  # until a process that lost its connection is seen to have ended
LEAVES_S = 2.0  # for a worker that has said farewell to end


class HostProcess:
    """One worker process."""

    def __init__(self, process: Any, number: int, replicas: tuple[Replica, ...]) -> None:
        self.process, self.number, self.replicas = process, number, replicas
        self._seen = psutil.Process(process.pid)

    @property
    def dead(self) -> bool:
        return self.process.exitcode is not None

    @property
    def stopped(self) -> bool:
        """Whether it stands still: SIGSTOP."""
        with contextlib.suppress(psutil.Error):
            return bool(self._seen.status() == psutil.STATUS_STOPPED)
        return False

    @property
    def how(self) -> str:
        """How it ended."""
        code = self.process.exitcode
        if code is None:
            return "is cut off"
        return f"ended with status {code}" if code >= 0 else f"was killed ({signal.Signals(-code).name})"

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


class HostCrew:
    """All workers of a run. ``crossing``: what the emulation of the hub needs of them."""

    def __init__(self, settings: RunSettings, log: Path, port: int) -> None:
        self._settings, self._log, self._port = settings, log, port
        self._workers: dict[int, HostProcess] = {}
        self._spawn = multiprocessing.get_context("spawn")
        shares = [tuple(range(w, settings.replicas, settings.workers)) for w in range(settings.workers)]
        self.crossing = HubSide(
            port, settings.speed, shares, settings.worker_timeout, self._start, self._bury
        )

    def _start(self, number: int, replicas: tuple[Replica, ...], zero: float | None) -> HostProcess:
        from .worker import work

        part = part_path(self._log, number)
        process = self._spawn.Process(
            target=work,
            args=(self._settings, number, replicas, self._port, zero, part),
            name=f"worker {number}",
            daemon=True,
        )
        process.start()
        worker = self._workers[number] = HostProcess(process, number, replicas)
        self._tell_pids()
        return worker

    def _bury(self, worker: HostProcess) -> None:
        """Nobody has seen the effect of what it had not finished to write. Raises WorkersError if it failed
        by itself."""
        worker.process.join(REAPED_S)
        worker.end()
        del self._workers[worker.number]
        self._tell_pids()
        whole_blocks(part_path(self._log, worker.number))
        code = worker.process.exitcode
        if code is not None and code > 0:
            error = part_path(self._log, worker.number).with_suffix(".error")
            raise WorkersError(f"worker {worker.number} failed by itself, with status {code}: see {error}")

    def _tell_pids(self) -> None:
        """Who runs what, for whoever wants to kill one."""
        found = [
            {"worker": w.number, "pid": w.process.pid, "replicas": w.replicas} for w in self._workers.values()
        ]
        write_atomic(self._log.with_name(PIDS), msgspec.json.encode(found) + b"\n")

    def gently(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C ends the run at once: the time of workers does not stand still."""
        return contextlib.nullcontext()

    def finish(self) -> None:
        """The run is over, and workers were seen off by the hub."""

    @property
    def messages(self) -> int:
        """That ranks sent."""
        return sum(word.messages for word in self.crossing.farewells)

    def total(self, log: EventLog) -> Total:
        """Of all workers, those that were killed too: read off what they have logged."""
        every = EventLog(None)
        for entry in LogReader(self._log):
            every(entry)
        every.close()
        memory = peak_rss() + sum(word.peak_rss for word in self.crossing.farewells)
        return Total(every.trace_hash, every.sums(), every.entries, memory)

    def close(self) -> None:
        """End all that are left, stopped ones too."""
        for worker in self._workers.values():
            if worker.number in self.crossing.gone:
                worker.process.join(LEAVES_S)
            worker.end()
            whole_blocks(part_path(self._log, worker.number))
        for link in self.crossing.links.values():
            link.close()
        self._log.with_name(PIDS).unlink(missing_ok=True)


@contextmanager
def host_crew(settings: RunSettings, log: Path) -> Iterator[HostCrew]:
    """The workers of a run against real time; they write their logs beside ``log``. Raises WorkersError."""
    import datetime

    import torch.distributed as dist

    from ..workers.crew import meant_for_one_thread
    from ..workers.wire import free_port

    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # a name look-up may take 5 s without
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # that a store is gone at the end is no news
    port, limit = settings.port or free_port(), datetime.timedelta(seconds=settings.worker_timeout)
    try:
        store = dist.TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, timeout=limit)
    except RuntimeError as error:
        raise WorkersError(
            f"port {LOOPBACK}:{port} cannot be had ({str(error).splitlines()[0]}): choose another --port"
        ) from None
    team = HostCrew(settings, log, port)
    try:
        with meant_for_one_thread():
            yield team
    finally:
        team.close()
        del store
