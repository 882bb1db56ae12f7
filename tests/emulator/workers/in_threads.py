"""A job run by several workers that are threads of this process: many, and quick to start."""

from __future__ import annotations

import queue
import threading
from typing import Any

from emulator.emulation import Emulation
from emulator.settings import RunSettings
from emulator.workers import split
from emulator.workers.errors import WorkersError
from emulator.workers.windows import Windows
from ftruntime.log.eventlog import EventLog, combine

LONG_S = 120.0


class ThreadWire:
    """As ``Wire``, over queues."""

    def __init__(self, rank: int, workers: int, ways: dict[tuple[int, int], queue.Queue[Any]]) -> None:
        self.rank, self.workers, self._ways = rank, workers, ways
        self.others = [other for other in range(workers) if other != rank]

    def exchange(self, packets: dict[int, bytes]) -> dict[int, bytes]:
        for other, packet in packets.items():
            self._ways[self.rank, other].put(packet)
        found = {other: self._ways[other, self.rank].get(timeout=LONG_S) for other in self.others}
        if None in found.values():
            raise WorkersError("a worker has failed")
        return found

    def fail(self) -> None:
        for other in self.others:
            self._ways[self.rank, other].put(None)


class Worker(threading.Thread):
    def __init__(self, settings: RunSettings, faults: Any, wire: ThreadWire) -> None:
        super().__init__(daemon=True)
        self.wire = wire
        self.log = EventLog(None, keep=1_000_000)
        parted = split(settings.ranks_per_replica, settings.fan_out, wire.workers)
        self.windows = Windows(wire, parted)  # type: ignore[arg-type]
        self.job = Emulation(settings, faults(), self.log, crossing=self.windows)
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.job.run()
        except BaseException as error:
            self.error = error
            self.wire.fail()


def run_in(settings: RunSettings, faults: Any, workers: int) -> tuple[Any, list[Worker]]:
    """(what must not depend on ``workers``, the workers). ``faults``: makes them, anew for each worker."""
    pairs = [(a, b) for a in range(workers) for b in range(workers)]
    ways: dict[tuple[int, int], queue.Queue[Any]] = {pair: queue.Queue() for pair in pairs}
    crew = [Worker(settings, faults, ThreadWire(rank, workers, ways)) for rank in range(workers)]
    for worker in crew:
        worker.start()
    for worker in crew:
        worker.join()
    for worker in crew:
        if worker.error is not None and not isinstance(worker.error, WorkersError):
            raise worker.error
    hub = crew[0].job
    said = (
        combine([worker.log.sums() for worker in crew]),
        sum(worker.job.messages for worker in crew),
        hub.rounds,
        hub.steps_committed,
        hub.now,
    )
    return said, crew
