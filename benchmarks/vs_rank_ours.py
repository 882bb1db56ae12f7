"""One rank of ours, for `benchmarks/vs_torchft.py`: the real driver with a trainee that needs no torch.

    python benchmarks/vs_rank_ours.py '{"replica": 0, "life": 0, "report": "file", ...}'

It does what `vs_rank_torchft.py` does: sleeps, gives a gradient that has a one for each sample, applies sums.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.vs_rank_torchft import Job, Report, die_with_parent
from ftruntime.data import sample_ids
from ftruntime.driver import Driver, Settings, Stopped
from ftruntime.driver.memory import Bytes
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.plan import Plan
from ftruntime.wire import Endpoint


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Counts:
    """Parameters that count the samples that were applied, and other state of so many bytes."""

    dtype = "float32"

    def __init__(self, job: Job, report: Report) -> None:
        self.job, self.report = job, report
        self.params = np.zeros(job["elements"], np.float32)
        self.blob = np.zeros(job["state_bytes"] // 4, np.float32)
        self.blob += job["replica"] * 0.0  # touched, so that it is there

    def state(self) -> list[memoryview]:
        return [memoryview(part.view(np.uint8)) for part in (self.params, self.blob)]

    def apply(self, sums: Sequence[Bytes], plan: Plan, scalars: Sequence[float]) -> None:
        self.params += sums[0].view(np.float32)
        step = plan.base.step + 1
        told = None
        if step == self.job["tell_at"]:
            told = [sum(plan.result().ledger), [round(float(x)) for x in self.params]]
        self.report("commit", step, len(plan.contributors), told)

    def installed(self) -> None:
        self.report("installed")

    def warm_up(self) -> None:
        """It has registered, and the others know it."""
        if self.job["die_joining"]:
            die()


def fail_once_reduced(driver: Driver, step: int, report: Report) -> None:
    """Die when the buckets of the attempt at ``step`` are summed, before this rank can vote."""
    measure: Callable[..., Any] = driver.host.measure

    def measured(*args: Any) -> None:
        if driver.host.step == step:
            report("failing", step)
            die()
        measure(*args)

    driver.host.measure = measured  # type: ignore[method-assign]


def train(job: Job) -> None:
    report = Report(job["report"])
    trainee = Counts(job, report)
    host, _, port = job["store"].rpartition(":")
    config = msgspec.convert(job["config"], JobConfig)
    driver = Driver(
        Settings(config, job["replica"], 0, job["life"], Endpoint(host, int(port)), job["token"], "lo"),
        trainee,
    )
    if job["fail_at"] >= 0:
        fail_once_reduced(driver, job["fail_at"], report)
    driver.start()
    own = job["elements"] // config.stream_count
    while True:
        try:
            work = driver.worker.next()
        except Stopped:
            return
        time.sleep(job["compute_s"])
        gradient = work.grads[0].view(np.float32)
        gradient[:] = 0
        for stream, index in sample_ids(work.ranges):
            gradient[(stream * own + index % own) if own else 0] += 1
        work.ready(0)
        if work.step == job["stop_at"]:
            report("stopping", work.step)
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    die_with_parent()
    train(json.loads(sys.argv[1]))
