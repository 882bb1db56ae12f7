"""One run of a contender in processes of its own: within limits, its memory measured, none left behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import psutil

GIB = 2**30
SPARE = 2 * GIB  # of the machine's memory, left to others whatever the limit
# A name server that does not answer would stall connects; one thread a rank, as ranks outnumber cores.
ENVIRONMENT = {"RES_OPTIONS": "timeout:1 attempts:1", "OMP_NUM_THREADS": "1", "RUST_LOG": "error"}


@dataclass(frozen=True)
class Limits:
    """How much a run may take."""

    gib: float
    seconds: float


@dataclass
class Attempt:
    """How a run went."""

    word: dict[str, Any] = field(default_factory=dict)  # the one JSON object that it prints
    why: str = ""  # what stopped it; empty: it finished
    pss: int = 0  # peak of what was seen, in bytes
    wall: float = 0.0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def proportional_bytes(leader: int) -> int:
    """PSS of a process and all below it: pages that several share are counted once, shared out among them."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(leader)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
                total += one.memory_full_info().pss
    return total


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of ``process``, and wait until none of it is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(200):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.1)


def attempt(command: Sequence[str], folder: str, limits: Limits) -> Attempt:
    """Run ``command`` from ``folder`` until it prints its JSON object, or is over a limit."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            found = _watch(process, limits)
        finally:
            end(process)
        if not found.why and not found.word:
            found.why = f"ended by itself, status {process.returncode}: {_last_line(errors)}"
    return found


def _watch(process: subprocess.Popen[bytes], limits: Limits) -> Attempt:
    assert process.stdout
    found = Attempt()
    began = time.monotonic()
    text = b""
    look_again = began + 1
    free = psutil.virtual_memory().available
    while not text.endswith(b"\n"):
        if select.select([process.stdout], [], [], 0.1)[0]:
            more = os.read(process.stdout.fileno(), 1 << 20)
            if not more:
                break
            text += more
            continue
        if process.poll() is not None:  # its children may hold the pipe open
            break
        now = time.monotonic()
        if now - began > limits.seconds:
            found.why = f"time: over {limits.seconds:g} s"
        elif (left := psutil.virtual_memory().available) < SPARE:
            found.why = "memory: the machine's own is nearly used up"
        elif now > look_again and free - left > limits.gib * GIB * 3 / 4:
            _look(process, found, limits)  # it takes seconds with many processes, so not before it may matter
            look_again = time.monotonic() + max(1.0, 5 * (time.monotonic() - now))
        if found.why:
            return found
    found.wall = time.monotonic() - began
    with contextlib.suppress(ValueError):
        found.word = json.loads(text)
    found.why = str(found.word.get("error") or "").splitlines()[0] if found.word.get("error") else ""
    if not found.why:
        _look(process, found, limits)
    if not found.why and found.wall > limits.seconds:
        found.why = f"time: over {limits.seconds:g} s"
    return found


def _look(process: subprocess.Popen[bytes], found: Attempt, limits: Limits) -> None:
    found.pss = max(found.pss, proportional_bytes(process.pid))
    if found.pss > limits.gib * GIB:
        found.why = f"memory: over {limits.gib:g} GiB"


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no word of why"
