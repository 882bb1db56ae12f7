"""A campaign's cases over the machines of a Ray cluster (the optional extra ``ray``).

Only where a case is run differs from the local engine: cases are functions of the seed and their number, and
verdicts are handed out in order of number.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any


class NoRay(Exception):
    """Ray is not installed, or its cluster cannot be reached: one line."""


def in_cluster(
    run: Callable[[int, range], list[Any]], seed: int, jobs: int, ahead: int, batches: Iterator[range]
) -> Iterator[Any]:
    """What ``run(seed, numbers)`` returns for each of ``batches``, in order.

    jobs:   tasks at a time; where no cluster is running yet, one of so many processors is started here
    ahead:  batches that wait for each of them
    Raises NoRay.
    """
    ray = _connect(jobs)
    task = ray.remote(num_cpus=1)(run)
    waiting: deque[Any] = deque()
    try:
        for numbers in batches:
            waiting.append(task.remote(seed, numbers))
            if len(waiting) >= ahead * jobs:
                yield from ray.get(waiting.popleft())
        while waiting:
            yield from ray.get(waiting.popleft())
    except ray.exceptions.WorkerCrashedError as error:
        raise NoRay(f"a process of the cluster died (out of memory?): {error}") from None
    finally:
        ray.shutdown()


def _connect(jobs: int) -> Any:
    """A cluster that RAY_ADDRESS names, or one of this machine alone."""
    try:
        import ray
    except ImportError:
        raise NoRay('Ray is not installed; pip install "fthsdp[ray]", or use --engine local') from None
    fresh = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, logging_level="error", **fresh)
    except (ConnectionError, OSError, RuntimeError) as error:
        raise NoRay(f"cannot reach the Ray cluster: {error}; check RAY_ADDRESS") from None
    return ray
