"""How the emulator grows with the number of ranks: seconds a step, microseconds a rank-step, bytes a rank.

    python benchmarks/scale.py                               1,008 to 1,048,576 ranks; table and plot
    python benchmarks/scale.py --most 100000                 no more than that many ranks
    python benchmarks/scale.py --fold --json                 positions that behave alike run once
    FTHSDP_COMPILED=build/compiled python benchmarks/scale.py

Each size is a fresh process, which runs ``--steps`` steps without a fault; the first, which reads the
initial states and joins, counts as start. Bytes a rank are those beyond an empty interpreter. Phases are
those of replica 0's leader: processor seconds between the ends of two of its spans count for the second.
Writes ``scale.md`` and ``scale.svg`` with ``--out DIR``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from emulator import Emulation, EventLog, RunSettings
from faultinject import Schedule

SIZES = ((12, 84), (12, 341), (12, 1024), (12, 2730), (12, 8192), (16, 65536))  # replicas, ranks of each
PHASES = ("compute", "ftar", "vote", "quorum", "commit")


class Phases:
    """Processor seconds by the phase of replica 0's leader, step by step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._last = time.process_time()
        self._step = dict.fromkeys(PHASES, 0.0)

    def span(self, replica: int, name: str, start: float, end: float, args: dict[str, Any]) -> None:
        """A span of a leader has ended."""
        if replica != 0 or name not in PHASES:
            return
        now = time.process_time()
        self._step[name] += now - self._last
        self._last = now
        if name == "commit":
            self.steps.append(self._step)
            self._step = dict.fromkeys(PHASES, 0.0)


def measure(replicas: int, ranks: int, steps: int, fold: bool) -> dict[str, Any]:
    """One size, in this process: the figures."""
    settings = RunSettings(replicas=replicas, ranks_per_replica=ranks, steps=steps + 1, fold=fold).check()
    empty = psutil.Process().memory_info().rss  # the interpreter and what it has imported
    phases, begun = Phases(), time.process_time()
    emulation = Emulation(settings, Schedule(), EventLog(None), on_span=phases.span)
    emulation.run()
    whole = phases.steps[1:]  # what comes before is the start
    seconds = sum(sum(step.values()) for step in whole) / len(whole)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "ranks": settings.ranks,
        "shape": f"{replicas} x {ranks}",
        "start_cpu_seconds": round(sum(phases.steps[0].values()) + (phases_begin(phases) - begun), 2),
        "step_cpu_seconds": round(seconds, 3),
        "rank_step_us": round(seconds / settings.ranks * 1e6, 1),
        "bytes_a_rank": (rss - empty) // settings.ranks,
        "peak_rss_mib": rss >> 20,
        "events_a_rank_step": round(emulation.kernel.events / settings.ranks / (steps + 1), 1),
        "phases": {name: round(sum(step[name] for step in whole) / len(whole), 3) for name in PHASES},
    }


def phases_begin(phases: Phases) -> float:
    """Processor time at which the first phase was seen to end, less what it took: when spans began."""
    return phases._last - sum(sum(step.values()) for step in phases.steps)


def in_fresh_process(replicas: int, ranks: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one size, or ``{"ranks", "failed"}`` with the last line of what it said."""
    command = [sys.executable, __file__, "--one", f"{replicas}x{ranks}", "--steps", str(options.steps)]
    command += ["--fold"] if options.fold else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_seconds)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"ranks": replicas * ranks, "shape": f"{replicas} x {ranks}", "failed": lines[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as a table in Markdown."""
    names = ("ranks", "shape", "s a step", "us a rank-step", "bytes a rank", "peak MiB", *PHASES)
    head = f"| {' | '.join(names)} |"
    lines = [head, "|" + "---|" * len(names)]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['ranks']:,} | {row['shape']} | {row['failed']} |")
            continue
        phases = " | ".join(f"{row['phases'][name]:.2f}" for name in PHASES)
        lines.append(
            f"| {row['ranks']:,} | {row['shape']} | {row['step_cpu_seconds']:.2f} "
            f"| {row['rank_step_us']:.0f} | {row['bytes_a_rank']:,} | {row['peak_rss_mib']:,} | {phases} |"
        )
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> str:
    """Seconds a step over ranks, both axes logarithmic. Returns a line on what became of it."""
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return "no plot: pip install matplotlib"
    done = [row for row in rows if "failed" not in row]
    ranks = [row["ranks"] for row in done]
    figure, left = pyplot.subplots(figsize=(7, 4))
    bottom = [0.0] * len(done)
    for name in PHASES:
        top = [b + row["phases"][name] for b, row in zip(bottom, done, strict=True)]
        left.fill_between(ranks, bottom, top, label=name, alpha=0.7)
        bottom = top
    left.set(xscale="log", yscale="log", xlabel="emulated ranks", ylabel="processor seconds a step")
    right = left.twinx()
    right.plot(ranks, [row["bytes_a_rank"] for row in done], "k--", label="bytes a rank")
    right.set(ylabel="bytes a rank (dashed)", ylim=(0, None))
    left.axhline(20.0, color="grey", linewidth=0.8)
    left.annotate("the real step", (ranks[0], 20.0), fontsize=8, va="bottom")
    left.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    return f"plot in {path.name}"


def page(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """The table with the command that made it."""
    compiled = "FTHSDP_COMPILED=build/compiled " if os.environ.get("FTHSDP_COMPILED") else ""
    flags = (" --fold" if options.fold else "") + (f" --steps {options.steps}" if options.steps != 2 else "")
    core = "the compiled core" if compiled else "Python alone"
    return (
        f"```sh\n{compiled}python benchmarks/scale.py{flags}\n```\n\n"
        f"One process, {core}, Python {platform.python_version()}; processor seconds.\n\n"
        f"{table(rows)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=1 << 20, help="no size with more ranks than this")
    parser.add_argument("--steps", type=int, default=2, help="steps to measure, beside the first")
    parser.add_argument("--fold", action="store_true", help="run positions that behave alike once")
    parser.add_argument("--limit-seconds", type=float, default=1800.0, help="for each size")
    parser.add_argument("--out", type=Path, help="folder for scale.md and scale.svg")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        replicas, ranks = map(int, options.one.split("x"))
        print(json.dumps(measure(replicas, ranks, options.steps, options.fold)))
        return
    rows = []
    for replicas, ranks in [size for size in SIZES if size[0] * size[1] <= options.most]:
        print(f"{replicas * ranks:,} ranks ...", file=sys.stderr, flush=True)
        rows.append(in_fresh_process(replicas, ranks, options))
    print(json.dumps(rows) if options.json else table(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        name = "scale_fold" if options.fold else "scale"
        (options.out / f"{name}.md").write_text(page(rows, options))
        print(plot(rows, options.out / f"{name}.svg"), file=sys.stderr)


if __name__ == "__main__":
    main()
