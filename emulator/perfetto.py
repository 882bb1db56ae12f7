"""trace.perfetto.json: the run as tracks that Perfetto (ui.perfetto.dev) or chrome://tracing draw.

Written in the Chrome trace-event format, as a stream: spans and instants go to disk as they come, in any
order. A replica is a process, so that its track opens and closes as one; what it does at the same time
goes to different lanes in it, for slices of one lane must not overlap. Times are virtual, in microseconds.
Source: "Trace Event Format", the JSON object form with complete (X), instant (i) and metadata (M) events.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

FLUSH_EVENTS = 512
MOST_LANES = 16  # of one name and replica; overlapping slices beyond it share the last
LANES = {
    "compute": "step", "vote": "step", "commit": "step",
    "ftar": "ftar", "quorum": "quorum",
    "restart": "recovery", "catch-up": "recovery", "warm-up": "warm-up",
}  # fmt: skip
NAMES = ("step", "ftar", "quorum", "recovery", "warm-up", "other")  # order of lanes in a replica
THREADS = 128  # of a process, at most
JOB = -1  # the track of what belongs to no replica
FAULT_TARGETS = ("rank", "host")

_encode = msgspec.json.Encoder().encode


class TraceWriter:
    """Streams a trace to ``path``, which appears when it is complete: at ``close``, or at a context's end.

    When the context is left by an exception, no file is made. ``span`` is what the driver calls; ``entry``
    takes the log's entries, for faults and rollbacks. Raises OSError when the disk fails.
    """

    def __init__(self, path: Path, replicas: int, steps_name: str = "job") -> None:
        self.path = path
        self._part = path.with_name(path.name + ".part")
        self._file = self._part.open("wb")
        self._file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        self._pending: list[bytes] = []
        self._first = True
        self._ends: dict[tuple[int, str], list[float]] = {}  # when each lane of a name is free again
        self.events = 0
        self._process(JOB, steps_name)
        for replica in range(replicas):
            self._process(replica, f"replica {replica}")

    def span(
        self, replica: int, name: str, start: float, end: float, args: Mapping[str, Any] | None = None
    ) -> None:
        """Something took from ``start`` to ``end`` (virtual seconds) in ``replica``."""
        lane = self._lane(replica, LANES.get(name, "other"), start, end)
        event = {"ph": "X", "name": name, **_track(replica, lane), "ts": _us(start)}
        self._put({**event, "dur": max(0.0, _us(end) - _us(start)), "args": dict(args or {})})

    def instant(self, replica: int, name: str, time: float, args: Mapping[str, Any]) -> None:
        """Something happened at ``time``; JOB for what belongs to no replica."""
        event = {"ph": "i", "name": name, **_track(replica, 0), "ts": _us(time), "s": "p"}
        self._put({**event, "args": dict(args)})

    def entry(self, entry: Any) -> None:
        """An entry of the event log; those that are neither fault nor rollback are passed over."""
        kind, time = entry[0], entry[1]
        if kind == "fault":
            self.instant(_struck(entry[2]), f"fault: {entry[2].get('kind', '?')}", time, entry[2])
        elif kind == "heal":
            self.instant(_struck(entry[2]), f"healed: {entry[2].get('kind', '?')}", time, entry[2])
        elif kind == "crash":
            args = {"incarnation": entry[3], "position": entry[4], "cause": entry[5]}
            self.instant(entry[2], "crash", time, args)
        elif kind == "head" and entry[9] is not None:
            shown = ("from_step", "to_step", "lost_steps", "source")
            self.instant(JOB, "rollback", time, {key: entry[9].get(key) for key in shown})

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._file.close()
            self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Complete the file and put it in its place."""
        self._flush()
        self._file.write(b"\n]}\n")
        self._file.close()
        os.replace(self._part, self.path)

    def _process(self, replica: int, name: str) -> None:
        self._meta(replica, 0, "process_name", {"name": name})
        self._meta(replica, 0, "process_sort_index", {"sort_index": replica + 1})

    def _meta(self, replica: int, lane: int, name: str, args: Mapping[str, Any]) -> None:
        self._put({"ph": "M", "name": name, **_track(replica, lane), "args": args})

    def _lane(self, replica: int, name: str, start: float, end: float) -> int:
        """The first lane of this name that is free at ``start``; a new one is named when it is made."""
        ends = self._ends.setdefault((replica, name), [])
        number = next((n for n, free in enumerate(ends) if free <= start + 1e-9), len(ends))
        lane = 1 + NAMES.index(name) * MOST_LANES + min(number, MOST_LANES - 1)
        if number < min(len(ends), MOST_LANES):
            ends[number] = end
        elif number < MOST_LANES:
            ends.append(end)
            self._meta(replica, lane, "thread_name", {"name": name if not number else f"{name} {number + 1}"})
            self._meta(replica, lane, "thread_sort_index", {"sort_index": lane})
        return lane

    def _put(self, event: dict[str, Any]) -> None:
        self.events += 1
        self._pending.append(_encode(event))
        if len(self._pending) >= FLUSH_EVENTS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._file.write((b"" if self._first else b",\n") + b",\n".join(self._pending))
            self._first = False
            self._pending.clear()


def _track(replica: int, lane: int) -> dict[str, int]:
    """No process is 0, which Perfetto takes for the idle one, and no thread is in two processes."""
    process = replica + 2
    return {"pid": process, "tid": process * THREADS + lane}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _struck(fault: Mapping[str, Any]) -> int:
    """The replica whose track shows a fault, as a schedule writes it."""
    for name in FAULT_TARGETS:
        if fault.get(name) is not None:
            return int(fault[name][0])
    replica = fault.get("replica")
    return JOB if replica is None else int(replica)
