"""What a worker process of a run against real time does."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from faultinject import Schedule
from ftruntime.log.eventlog import EventLog
from ftruntime.protocol.ids import Replica

from ..emulation import Emulation
from ..settings import RunSettings
from ..summary import peak_rss
from .words import Farewell
from .worker_side import WorkerSide

FAREWELL_S = 2.0  # for the last word to be sent


def work(
    settings: RunSettings,
    number: int,
    replicas: tuple[Replica, ...],
    port: int,
    zero: float | None,
    path: Path,
) -> None:
    """Run ``replicas`` until the hub says that all is over, or is gone. Never returns: gloo's threads do not
    end by themselves, and waiting for them has no bound."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the hub decides what comes of it
    sys.setswitchinterval(0.001)  # who waits for a message should not wait for another thread
    status = 0
    try:
        _work(settings, number, port, zero, path)
    except BaseException:
        path.with_suffix(".error").write_text(traceback.format_exc())
        status = 1
    os._exit(status)


def _work(settings: RunSettings, number: int, port: int, zero: float | None, path: Path) -> None:
    log = EventLog(path)
    side = WorkerSide(number, port, settings.speed, settings.ranks_per_replica, zero)
    job = Emulation(settings, Schedule(job=settings.shape()), log, crossing=side)
    try:
        job.run()
    finally:
        log.close()
    side.leave(Farewell(side.until, job.standing(), job.messages, peak_rss()), FAREWELL_S)
