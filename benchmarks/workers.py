"""One job by one worker and by several: wall seconds of each step, memory, and the same trace.

    python benchmarks/workers.py                                98,304 ranks, clean and with a crash in FTAR
    python benchmarks/workers.py --workers 2 --replicas 16 --ranks-per-replica 65536 --steps 2 --no-crash
    FTHSDP_COMPILED=build/compiled python benchmarks/workers.py --json

A step is counted from commit to commit, as worker 0 sees them; the first, with the build and the join, is
"start". The step that a crash hits ends with the commit after it. Memory is the peak of all workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from emulator import Emulation, EventLog, RunSettings
from emulator.workers.crew import crew
from faultinject import Schedule, loads

CRASH = '{"schema": 1, "faults": [{"kind": "crash", "rank": [3, 17], "step": 2, "phase": "ftar"}]}'


class Commits:
    """A log that notes when each commit came. ``at``: wall seconds by step."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.at = log, [time.perf_counter()]

    def __call__(self, entry: Any) -> None:
        self.log(entry)
        if entry[0] == "head" and entry[7] is not None and entry[7]["outcome"] == "committed":
            self.at.append(time.perf_counter())


def measure(settings: RunSettings, faults: Schedule) -> dict[str, Any]:
    """One run: seconds of the start and of each further step, MiB, trace hash."""
    with tempfile.TemporaryDirectory(prefix="fthsdp-workers-") as folder:
        path = Path(folder) / "events.log"
        with crew(settings, faults, path) as team:
            commits = Commits(EventLog(path))
            Emulation(settings, faults, commits, crossing=team.crossing).run()
            commits.log.close()
            team.finish()
            total = team.total(commits.log)
    seconds = [round(b - a, 2) for a, b in zip(commits.at, commits.at[1:], strict=False)]
    return {
        "workers": settings.workers,
        "crash": bool(faults.faults),
        "start_s": seconds[0],
        "steps_s": seconds[1:],
        "peak_mib": total.peak_rss >> 20,
        "trace_hash": total.trace_hash,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers to compare"
    )
    parser.add_argument("--replicas", type=int, default=12)
    parser.add_argument("--ranks-per-replica", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--no-crash", action="store_true", help="only the run without faults")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shape = {"replicas": options.replicas, "ranks_per_replica": options.ranks_per_replica}
    found = []
    for faults in ["", *([] if options.no_crash else [CRASH])]:
        for workers in options.workers:
            settings = RunSettings(**shape, steps=options.steps, workers=workers).check()
            schedule = loads(faults, settings.shape()) if faults else Schedule()
            found.append(measure(settings, schedule))
            if not options.json:
                print(row(found[-1]), flush=True)
    core = "compiled core" if os.environ.get("FTHSDP_COMPILED") else "Python"
    if options.json:
        print(json.dumps({"core": core, "python": platform.python_version(), **shape, "runs": found}))
    else:
        print(f"{core}, Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f} at the end")
    for crash in (False, True):
        assert len({run["trace_hash"] for run in found if run["crash"] is crash}) <= 1, "traces differ"


def row(run: dict[str, Any]) -> str:
    what = "crash in FTAR of step 3" if run["crash"] else "no fault"
    steps = ", ".join(f"{seconds:.1f}" for seconds in run["steps_s"])
    return (
        f"{run['workers']} workers, {what}: start {run['start_s']:.1f} s, steps {steps} s, "
        f"{run['peak_mib']:,} MiB, {run['trace_hash']}"
    )


if __name__ == "__main__":
    main()
