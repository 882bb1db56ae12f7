"""How fast one process emulates a whole job: seconds a step, memory, and where the time goes.

    python benchmarks/one_process.py                          98,304 ranks, three steps
    python benchmarks/one_process.py --crash                  and one rank crashes in FTAR of step 1
    python benchmarks/one_process.py --each                   every position runs by itself, none follows
    python benchmarks/one_process.py --ranks-per-replica 1024 --profile --json

Processor seconds are of this process alone, so another job on the machine disturbs them less than wall
time; what it does to caches it still does. The trace hash is printed: the same with and without --each.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import resource
import tempfile
import time
from pathlib import Path

from emulator import Emulation, EventLog, RunSettings
from faultinject import Schedule, loads

CRASH = '{"schema": 1, "faults": [{"kind": "crash", "rank": [3, 17], "step": 1, "phase": "ftar"}]}'


class Rounds:
    """Processor and wall seconds at the first look after each round began."""

    def __init__(self) -> None:
        self.at: dict[int, tuple[float, float]] = {}

    def look(self, emulation: Emulation) -> None:
        self.at.setdefault(emulation.rounds, (time.process_time(), time.perf_counter()))

    def seconds(self) -> list[dict[str, float]]:
        """Of each round that was seen from beginning to end."""
        found = []
        for (number, (cpu, wall)), (_, (cpu_after, wall_after)) in zip(
            list(self.at.items()), list(self.at.items())[1:], strict=False
        ):
            found.append({"round": number, "cpu": cpu_after - cpu, "wall": wall_after - wall})
        return found


def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run the job once; the figures."""
    settings = RunSettings(
        replicas=options.replicas, ranks_per_replica=options.ranks_per_replica, steps=options.steps
    ).check()
    faults = loads(CRASH, settings.shape()) if options.crash else Schedule()
    begun = time.process_time(), time.perf_counter()
    log = EventLog(folder / "events.log")
    emulation = Emulation(settings, faults, log)
    if options.each:
        emulation.kernel.runner = emulation.kernel.run_each
    rounds = Rounds()
    emulation.run(rounds.look)
    log.close()
    cpu, wall = time.process_time() - begun[0], time.perf_counter() - begun[1]
    return {
        "ranks": settings.ranks,
        "steps": emulation.steps_committed,
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 2),
        "rounds": [{name: round(value, 2) for name, value in each.items()} for each in rounds.seconds()],
        "messages": emulation.messages,
        "events": emulation.kernel.events,
        "positions_that_followed": emulation.alike.folded,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "log_bytes": log.bytes_written,
        "trace_hash": log.trace_hash,
    }


def profile(options: argparse.Namespace, folder: Path) -> tuple[dict[str, object], str]:
    """The figures under a profiler (which slows all down), and its table by own time."""
    profiler = cProfile.Profile()
    figures = profiler.runcall(measure, options, folder)
    table = io.StringIO()
    pstats.Stats(profiler, stream=table).sort_stats("tottime").print_stats(25)
    return figures, table.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=12)
    parser.add_argument("--ranks-per-replica", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--crash", action="store_true", help="one rank crashes in FTAR of step 1")
    parser.add_argument("--each", action="store_true", help="run every position by itself")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = ""
        if options.profile:
            figures, table = profile(options, Path(folder))
        else:
            figures = measure(options, Path(folder))
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:>24}  {value}")
    print(table)


if __name__ == "__main__":
    main()
