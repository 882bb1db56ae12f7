"""What `benchmarks/vs_torchft.py` measures: each case on a job of either system, as the survivors see it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .vs_jobs import DEFAULT, Job, Shape

Make = Callable[[Shape], Job]
MB = 1_000_000


@dataclass
class Figure:
    """One measured thing of one system. ``seconds``: each trial; what is over a step that was due.

    step_s:   the median step before the fault
    text:     what is to be said instead of seconds
    """

    case: str
    system: str
    tuned: bool
    seconds: list[float] = field(default_factory=list)
    step_s: float = 0.0
    text: str = ""
    problem: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def stall(job: Job, survivors: list[int], begin: float, end: float) -> tuple[float, float]:
    """Seconds that a survivor's longest step in (begin, end) was longer than its median step, and that."""
    step = max(job.step_s(r, begin) for r in survivors)
    return max(0.0, job.gap(survivors, begin, end) - step), step


def kill(make: Make, patience: float, trials: int) -> tuple[list[float], float]:
    """SIGKILL in the middle of a step, of another replica each time."""
    found, step = [], 0.0
    with make(Shape(patience=patience, rest_s=REST_S.get(patience, 4.0))) as job:
        for trial in range(trials):
            job.whole(25)
            victim = 2 - trial % 3
            survivors = [r for r in range(3) if r != victim]
            began = job.kill(victim)
            _go_on(job, survivors, 0)
            seconds, step = stall(job, survivors, began, job.newest(survivors[0])[0])
            found.append(seconds)
    return found, step


REST_S = {DEFAULT: 20.0}  # until a replica is started again: torchft needs 5 s and more to go on without it


def _go_on(job: Job, replicas: list[int], members: int, steps: int = 8, seconds: float = 150.0) -> None:
    """Until each of ``replicas`` has committed ``steps`` more steps of ``members``; 0: of however many."""
    since = {r: len(job.commits(r)) for r in replicas}

    def there() -> bool:
        return all(
            sum(entry[3] == members or not members for entry in job.commits(r)[since[r] :]) >= steps
            for r in replicas
        )

    job.until(there, seconds, f"{steps} steps of {members} after a fault")


def stop(make: Make, patience: float, trials: int) -> tuple[list[float], float]:
    """A rank of another job each time is stopped when it has given its part to the all-reduce."""
    found, step = [], 0.0
    for _ in range(trials):
        with make(Shape(patience=patience, elements=1 << 18, stop_at={2: 40})) as job:
            job.until(lambda job=job: job.newest(0)[2] >= 38, 90.0, "38 steps")
            job.until(lambda job=job: _said(job, 2, "stopping"), 30.0, "the stop")
            began = _said(job, 2, "stopping")[-1][0]
            _go_on(job, [0, 1], 0)
            seconds, step = stall(job, [0, 1], began, job.newest(0)[0])
            found.append(seconds)
    return found, step


def _said(job: Job, replica: int, what: str) -> list[list[Any]]:
    return [entry for entry in job.entries(replica) if entry[1] == what]


def fetch(make: Make, patience: float, trials: int, size: int, replicas: int) -> tuple[list[float], float]:
    """The last replica joins late, and fetches ``size`` bytes while the others train."""
    found, step = [], 0.0
    others = list(range(replicas - 1))
    shape = Shape(
        replicas=replicas,
        patience=patience,
        state_bytes=size,
        min_replicas=replicas - 1,
        late=(replicas - 1,),
    )
    for _ in range(trials):
        with make(shape) as job:
            seconds, step = _joins(job, others)
            found.append(seconds)
    return found, step


def _joins(job: Job, others: list[int]) -> tuple[float, float]:
    """The last replica is started when ``others`` have trained a while; their stall until it trains, too."""
    _go_on(job, others, len(others), 25)
    begin = job.newest(0)[0]
    job.start(len(others))
    _go_on(job, others, len(others) + 1, seconds=240.0)
    return stall(job, others, begin, job.newest(0)[0])


def die_joining(make: Make, patience: float, trials: int) -> tuple[list[float], float]:
    """A replica joins late, is known to the others, and dies before it has connected; then it comes back."""
    found, step = [], 0.0
    for _ in range(trials):
        with make(Shape(patience=patience, late=(2,), rest_s=REST_S.get(patience, 4.0))) as job:
            job.die_joining = {2}
            seconds, step = _joins(job, [0, 1])
            found.append(seconds)
    return found, step


def split_vote(make: Make) -> str:
    """Two of three fail after a good all-reduce, before they vote. How often was each sample applied?"""
    tell, failed = 60, {0: 30, 1: 30}
    shape = Shape(elements=3 * 400, min_replicas=3, fail_at=failed, tell_at=tell, compute_s=0.02, rest_s=1.0)
    with make(shape) as job:
        job.until(lambda: job.newest(2)[2] >= tell, 120.0, f"{tell} steps")
        batches, times = next(entry[4] for entry in job.commits(2) if entry[4] is not None)
    return counted(times, batches)


def counted(times: list[int], batches: int) -> str:
    """``times[i]``: how often sample i is in the parameters; three streams, each trained from its start."""
    own = len(times) // 3
    streams = [times[i * own : (i + 1) * own] for i in range(3)]
    twice = sum(max(0, n - 1) for n in times)
    never = sum(
        n == 0 for stream in streams for n in stream[: max((i for i, n in enumerate(stream) if n), default=0)]
    )
    distinct = sum(n > 0 for n in times)
    return (
        f"{batches} batches committed, {sum(times)} applied, of {distinct} different ones: "
        f"{twice} applied twice, {never} skipped"
    )


def overhead(make: Make, replicas: int, steps: int) -> list[float]:
    """Seconds of steps that compute nothing and reduce one float."""
    with make(Shape(replicas=replicas, compute_s=0.0, min_replicas=replicas)) as job:
        job.whole(50)
        job.wait(steps * 0.004 * replicas)
        times = [entry[0] for entry in job.commits(0)[50:]]
    return [b - a for a, b in pairwise(times)]
