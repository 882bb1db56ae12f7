"""Runs the cases of a campaign, in this process or in several, and hands out verdicts in order of number."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import count

from faultinject.fuzz import draw_case

from .ray_engine import in_cluster
from .run import Verdict, judge, many

BATCH = 8  # cases that a process is asked for at a time: less than a second
AHEAD = 3  # batches that wait for each process, so that none is idle while the first is slow
LOCAL, RAY = ENGINES = ("local", "ray")


class Broken(Exception):
    """A process of the campaign died: one line."""


def verdicts(
    seed: int, jobs: int, schedules: int | None, seconds: float | None, engine: str = LOCAL
) -> Iterator[Verdict]:
    """Verdicts of cases 0, 1, 2 and so on: ``schedules`` of them, or as many as end within ``seconds``.

    The same for a seed whatever ``jobs`` and ``engine`` are. Raises Broken when a process dies, NoRay.
    """
    numbers = _batches(schedules, None if seconds is None else time.monotonic() + seconds)
    if engine == RAY:
        return in_cluster(_batch, seed, jobs, AHEAD, numbers)
    return _here(seed, numbers) if jobs == 1 else _in_processes(seed, jobs, numbers)


def _batches(schedules: int | None, end: float | None) -> Iterator[range]:
    for first in count(0, BATCH):
        beyond = first + BATCH if schedules is None else min(first + BATCH, schedules)
        if first >= beyond or (end is not None and time.monotonic() >= end):
            return
        yield range(first, beyond)


def _here(seed: int, batches: Iterator[range]) -> Iterator[Verdict]:
    with many() as ran:
        for numbers in batches:
            for number in numbers:
                yield judge(draw_case(seed, number))
                ran()


def _in_processes(seed: int, jobs: int, batches: Iterator[range]) -> Iterator[Verdict]:
    """Fresh processes (spawn), for a fork of one with threads may hang."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _leave_ctrl_c_to_the_parent)
    waiting: deque[Future[list[Verdict]]] = deque()
    try:
        for numbers in batches:
            waiting.append(pool.submit(_batch, seed, numbers))
            if len(waiting) >= AHEAD * jobs:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenProcessPool:
        raise Broken("a process of the campaign died (out of memory?); lower --jobs") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _batch(seed: int, numbers: range) -> list[Verdict]:
    return list(_here(seed, iter((numbers,))))
