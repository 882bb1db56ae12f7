"""A virtual day of 98,304 ranks, folded: 4,320 steps of 20 s, one failure every 18 minutes, and its check.

    python benchmarks/virtual_day.py
    python benchmarks/virtual_day.py --steps 200 --profile      where the time goes
    python benchmarks/virtual_day.py --json --run-dir runs/day  and keep what it leaves behind

Processor seconds are of this process alone (all of its threads), so another job on the machine disturbs them
less than wall time.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any

from emulator.execute import run
from emulator.progress import progress
from emulator.rundir import EVENTS, RunDir
from emulator.settings import RunSettings


def settings_of(options: argparse.Namespace) -> RunSettings:
    return RunSettings(
        replicas=options.replicas,
        ranks_per_replica=options.ranks_per_replica,
        steps=options.steps,
        seed=options.seed,
        faults="table",
        mtbf_minutes=options.mtbf_minutes,
        fold=True,
    ).check()


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run and check it once; the figures."""
    settings = settings_of(options)
    begun, wall = os.times(), time.perf_counter()
    with progress(settings.steps, quiet=options.json) as told:
        outcome = run(settings, settings.load_faults(), RunDir.create(folder, settings), told)
    spent, found = os.times(), outcome.summary
    folded = found["folded"]
    return {
        "ranks": found["ranks"],
        "steps": found["steps_committed"],
        "cpu_seconds": round(spent.user + spent.system - begun.user - begun.system, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "check_wall_seconds": found["check_seconds"],
        "virtual_seconds": found["virtual_seconds"],
        "effective_training_time": found["effective_training_time"],
        "stall_seconds": found["stall_seconds"],
        "faults": found["faults_injected"],
        "positions_at_most": folded["most_positions"],
        "folded_anew": folded["refolds"],
        "faults_ahead": folded["window"],
        "messages": found["messages"],
        "peak_rss_mib": found["peak_rss_bytes"] >> 20,
        "log_mib": round((folder / EVENTS).stat().st_size / 2**20, 1),
        "failures": outcome.failures or outcome.error,
        "trace_hash": found["trace_hash"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=12)
    parser.add_argument("--ranks-per-replica", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=4320)
    parser.add_argument("--mtbf-minutes", type=float, default=18.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.run_dir or Path(scratch) / "day"
        profiler = cProfile.Profile()
        figures = (profiler.runcall if options.profile else _plain)(measure, options, folder)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:>24}  {value}")
    if options.profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def _plain(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


if __name__ == "__main__":
    main()
