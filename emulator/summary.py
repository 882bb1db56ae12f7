"""What came of a run: the object of summary.json and ``--json``, and the table that a person reads."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from faultinject import AnyFault, causes_seen, kind_of

from .settings import RunSettings
from .stalls import PHASES, Stalls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = 1


class Counts(Protocol):
    """What the emulation itself knows at its end."""

    now: float
    steps_committed: int
    rounds: int
    messages: int
    faults_injected: Sequence[AnyFault]
    folded: dict[str, Any] | None


class Measured(msgspec.Struct, frozen=True):
    """What was measured around the emulation. ``wall_seconds`` is without the check."""

    wall_seconds: float
    check_seconds: float
    peak_rss_bytes: int
    trace_hash: str
    trace_sums: Mapping[int, tuple[int, int]]
    interrupted: bool = False
    error: str = ""


def summary(
    settings: RunSettings, counts: Counts, stalls: Stalls, invariants: Mapping[str, Any], measured: Measured
) -> dict[str, Any]:
    """The object of summary.json. Times in seconds; ``invariants``: name -> {checked, violated}.

    effective_training_time: share of the virtual time, as ``stalls.py`` defines it
    faults_injected:         how many faults took effect; ``faults_by_kind`` and ``causes`` split them up
    causes:                  all rows of the table of causes when faults are drawn from it, else those seen
    mtbf_seconds:            what they were drawn with
    folded:                  null, or of a run that folds: "positions" run at the end of each replica's
                             ranks_per_replica, and at most; "refolds": how often others began to be run;
                             "window": faults unfolded ahead; "seats": what a replay needs
    complete:                whether all the steps that were asked for are committed
    trace_sums:              replica (or "job") -> [log entries, sum of their hashes]: says where runs differ
    """
    faults = counts.faults_injected
    return {
        "schema": SCHEMA,
        "version": release(),
        "ranks": settings.ranks,
        "replicas": settings.replicas,
        "ranks_per_replica": settings.ranks_per_replica,
        "seed": settings.seed,
        "steps_committed": counts.steps_committed,
        "rounds": counts.rounds,
        "virtual_seconds": round(counts.now, 6),
        "wall_seconds": round(measured.wall_seconds, 3),
        "check_seconds": round(measured.check_seconds, 3),
        "peak_rss_bytes": measured.peak_rss_bytes,
        "messages": counts.messages,
        "faults_injected": len(faults),
        "faults_by_kind": _by_kind(faults),
        "causes": {cause: n for cause, n in causes_seen(faults).items() if n or settings.faults == "table"},
        "mtbf_seconds": settings.mtbf_seconds() if settings.faults == "table" else None,
        "effective_training_time": round(stalls.effective, 6),
        "step_seconds": round(stalls.expected, 6),
        "stall_seconds": {phase: round(stalls.lost[phase], 6) for phase in PHASES},
        "rolled_back_steps": stalls.rolled_back,
        "invariants": dict(invariants),
        "folded": counts.folded,
        "trace_hash": measured.trace_hash,
        "trace_sums": {track(r): [n, f"{total:016x}"] for r, (n, total) in measured.trace_sums.items()},
        "complete": counts.steps_committed >= settings.steps,
        "interrupted": measured.interrupted,
        "error": measured.error,
    }


def track(replica: int) -> str:
    """What a replica is called among the trace sums."""
    return "job" if replica < 0 else str(replica)


def peak_rss() -> int:
    """Bytes of memory that this process had at most."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def release() -> str:
    """Of this package; empty where it runs without having been installed."""
    try:
        return version("fthsdp")
    except PackageNotFoundError:
        return ""


def _by_kind(faults: Sequence[AnyFault]) -> dict[str, int]:
    found: dict[str, int] = {}
    for fault in faults:
        found[kind_of(fault)] = found.get(kind_of(fault), 0) + 1
    return dict(sorted(found.items()))


def show(summary: Mapping[str, Any], expected: frozenset[str], console: Console) -> None:
    """Print the tables of a run. ``expected``: invariants that it should have exercised."""
    console.print(_run_table(summary))
    for what, found in (("cause", summary["causes"]), ("kind", summary["faults_by_kind"])):
        if found:
            console.print(_faults_table(what, found))
    console.print(_invariants_table(summary["invariants"], expected))


def _run_table(s: Mapping[str, Any]) -> Table:
    table = _table(f"{s['replicas']} replicas x {s['ranks_per_replica']} ranks = {s['ranks']:,} ranks")
    table.show_header = False
    rate = s["virtual_seconds"] / s["wall_seconds"] if s["wall_seconds"] else 0.0
    table.add_row("steps committed", f"{s['steps_committed']:,} in {s['rounds']:,} rounds")
    table.add_row("virtual time", f"{clock(s['virtual_seconds'])} ({s['step_seconds']:.1f} s a step)")
    table.add_row("wall time", f"{s['wall_seconds']:.1f} s ({rate:,.0f} x), check {s['check_seconds']:.1f} s")
    table.add_row("peak memory", f"{s['peak_rss_bytes'] / 2**20:,.0f} MiB")
    table.add_row("messages", f"{s['messages']:,}")
    if s.get("corruptions_seen"):
        table.add_row("silent corruptions", f"{s['corruptions_seen']} injected ones seen by the checker")
    drawn = f" (one in {clock(s['mtbf_seconds'])} on average)" if s["mtbf_seconds"] else ""
    table.add_row("faults injected", f"{s['faults_injected']:,}{drawn}")
    table.add_row("effective training time", f"{s['effective_training_time']:.1%}")
    lost = s["stall_seconds"]
    table.add_row(
        "lost", f"{sum(lost.values()):,.1f} s: " + ", ".join(f"{k} {v:,.1f}" for k, v in lost.items())
    )
    if s.get("folded"):
        table.add_row("positions run", _folded(s["folded"], s["ranks_per_replica"]))
    if s["rolled_back_steps"]:
        table.add_row("steps rolled back", f"{s['rolled_back_steps']:,}")
    table.add_row("trace hash", s["trace_hash"])
    return table


def _folded(folded: Mapping[str, Any], ranks: int) -> str:
    times = folded["refolds"]
    return f"{folded['most_positions']:,} of {ranks:,} at most, folded anew {times:,} times"


def _faults_table(what: str, found: Mapping[str, int]) -> Table:
    table = _table(f"faults by {what}")
    table.add_column(what)
    table.add_column("times", justify="right")
    for name, times in found.items():
        table.add_row(name, f"{times:,}")
    return table


def _invariants_table(invariants: Mapping[str, Mapping[str, int]], expected: frozenset[str]) -> Table:
    table = _table("invariants")
    table.add_column("invariant")
    table.add_column("checked", justify="right")
    table.add_column("violated", justify="right")
    table.add_column("")
    for name, found in invariants.items():
        table.add_row(name, f"{found['checked']:,}", f"{found['violated']:,}", verdict(name, found, expected))
    return table


def verdict(name: str, found: Mapping[str, int], expected: frozenset[str]) -> str:
    """One word for an invariant."""
    if found["violated"]:
        return "VIOLATED"
    if found["checked"]:
        return "held"
    return "NEVER CHECKED" if name in expected else "not exercised"


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")


def clock(seconds: float) -> str:
    """Virtual time as days and h:mm:ss."""
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text
