"""Runs one case and judges it: every invariant holds, and the job comes to its last step.

Nothing touches the disk. Samples have names and no text, for what they say changes nothing that ranks do.
"""

from __future__ import annotations

import gc
import hashlib
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from conformance.checker import Result, check
from faultinject import kind_of
from faultinject.fuzz import Case
from ftruntime.protocol.ledger import SampleRange

from ..emulation import Emulation
from ..settings import RunSettings
from ..settings_file import convert

AGAIN_S = 0.5  # between two signals that time is up
WALL_SECONDS = 30.0  # a case takes a tenth of one; one that takes this long never ends
SLOW, STUCK = "too slow", "stuck"
COLLECT_EVERY = 16  # cases between two collections of garbage


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case. ``wall_seconds`` alone depends on the machine.

    labels:   what is wrong, as a campaign groups it: invariants, "stuck", an error and where; none: all well
    details:  the same for a person
    checked:  how often each invariant was checked
    faults:   faults that took effect, by kind; ``phases``: by the phase in which they were to strike
    points:   how often each fault point was reached; ``struck``: by how many faults
    events:   what the job went through, by name
    """

    number: int
    labels: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    checked: dict[str, int] = {}
    faults: dict[str, int] = {}
    phases: dict[str, int] = {}
    points: dict[str, int] = {}
    struck: dict[str, int] = {}
    events: dict[str, int] = {}
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0


class Ran(msgspec.Struct, frozen=True):
    """A verdict, and what led to it."""

    verdict: Verdict
    entries: list[Any]
    result: Result | None


class TooSlow(BaseException):
    """The case ran out of wall time. Nobody on the way may take it for an error that can be handled."""


class Names:
    """Samples that are known by their names alone."""

    def tokens(self, stream: int, index: int) -> bytes:
        return f"{stream}/{index}".encode()

    def digest(self, ranges: Sequence[SampleRange]) -> int:
        spelt = "/".join(f"{r.stream}:{r.start}+{r.count}" for r in ranges)
        return int.from_bytes(hashlib.blake2b(spelt.encode(), digest_size=8).digest(), "little")


def settings_of(case: Case) -> RunSettings:
    """Raises ConfigError for a job that cannot run."""
    return convert(case.job)


def judge(case: Case, wall_seconds: float = WALL_SECONDS) -> Verdict:
    return run(case, wall_seconds).verdict


def run(case: Case, wall_seconds: float = WALL_SECONDS) -> Ran:
    """Run ``case`` to its end, or until ``wall_seconds`` are over, and say what is wrong."""
    began = time.monotonic()
    entries: list[Any] = []
    emulation = Emulation(settings_of(case), case.schedule, entries.append, corpus=Names(), points=True)
    labels, details, result = _carry_out(emulation, entries, wall_seconds)
    if not labels and emulation.steps_committed < case.job["steps"]:
        labels, details = (STUCK,), (_stuck(emulation, case),)
    verdict = Verdict(
        number=case.number,
        labels=labels,
        details=details,
        checked={} if result is None else {name: found.checked for name, found in result.invariants.items()},
        faults=dict(Counter(kind_of(fault) for fault in emulation.faults_injected)),
        phases=dict(Counter(str(fault.phase) for fault in emulation.faults_injected if fault.phase)),
        points={} if emulation.points is None else dict(emulation.points.reached),
        struck=dict(Counter(fault.point for fault in emulation.faults_injected if fault.point)),
        events=dict(_events(entries)),
        virtual_seconds=round(emulation.now, 6),
        wall_seconds=time.monotonic() - began,
    )
    return Ran(verdict, entries, result)


def _carry_out(
    emulation: Emulation, entries: list[Any], wall_seconds: float
) -> tuple[tuple[str, ...], tuple[str, ...], Result | None]:
    try:
        with _deadline(wall_seconds):
            emulation.run()
            result = check(entries)
    except TooSlow:
        return (SLOW,), (f"still at it after {wall_seconds:g} s, at {emulation.now:g} virtual seconds",), None
    except Exception as error:  # an assertion of the protocol, or whatever a bug makes of it
        return (_where(error),), tuple(traceback.format_exc().strip().splitlines()), None
    return _labels(result), tuple(_told(result)), result


def _labels(result: Result) -> tuple[str, ...]:
    """Of a checker's failures; the first word of each is the invariant's name."""
    names = [name for name, found in result.invariants.items() if found.violated]
    never = [f"{line.split(':')[0]} never checked" for line in result.failures if "never checked" in line]
    return (*names, *never) or (("checker",) if result.failures else ())


def _told(result: Result) -> Iterator[str]:
    yield from result.failures
    for found in result.invariants.values():
        yield from found.first[:2]


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {last.filename.replace(chr(92), '/').split('/')[-1]}:{last.name}"


def _stuck(emulation: Emulation, case: Case) -> str:
    at = f"step {emulation.steps_committed} of {case.job['steps']}"
    return f"no fault was left, and the job stood at {at} after {emulation.now:,.0f} virtual seconds"


def _events(entries: list[Any]) -> Counter[str]:
    """What a campaign must have seen often, or it has seen little."""
    counts: Counter[str] = Counter()
    for entry in entries:
        if (name := EVENTS.get(entry[0])) is not None:
            counts[name] += 1
        elif entry[0] == "head":
            counts.update(_of_head(entry))
        elif entry[0] == "register" and entry[3] > 1:
            counts["lives after a restart"] += 1
    return counts


EVENTS = {
    "installed": "shards installed",
    "reused": "gradients reused",
    "dropped": "rounds dropped by a rank",
    "checkpoint": "checkpoints",
    "fenced": "requests fenced",
}


def _of_head(entry: Any) -> Iterator[str]:
    if entry[7] is not None:
        yield f"rounds {entry[7]['outcome']}"
    if entry[9]:
        yield "rollbacks"


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raises TooSlow in the body when its time is up; by a signal, for a bug may loop anywhere. The signal
    comes again until it is heeded: what is raised in a callback of the collector is swallowed."""

    def up(number: int, frame: object) -> None:
        raise TooSlow

    try:
        before = signal.signal(signal.SIGALRM, up)
    except (ValueError, AttributeError):  # not in the main thread, or not on this system: no deadline
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def many() -> Iterator[Any]:
    """For many short runs: garbage is collected every few cases (call what this yields after each), and what
    was there before is left out of it."""
    enabled, done = gc.isenabled(), 0
    gc.collect()
    gc.freeze()
    gc.disable()

    def count() -> None:
        nonlocal done
        done += 1
        if done % COLLECT_EVERY == 0:
            gc.collect()

    try:
        yield count
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
