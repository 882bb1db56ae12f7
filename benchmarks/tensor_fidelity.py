"""What tensor fidelity costs: the ranks of a replica in one call, against each by itself.

    python benchmarks/tensor_fidelity.py                      4 x 64, ten steps
    python benchmarks/tensor_fidelity.py --replicas 12 --steps 20
    python benchmarks/tensor_fidelity.py --baseline ../old    against another checkout's emulator, too

Ways alternate, each in a process of its own, which runs the job twice. The first figure is the processor
seconds of the process up to the end of the first run, imports included (``torch.optim`` imports
much at its first step); the second is those of the second run, and the ratio is of these. Each is the least
of several: another job on the machine makes a run slower, never faster. Traces must be equal, or the
figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("pooled", "pooled, rings chunk by chunk", "alone", "alone, rings chunk by chunk")


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """The job twice in this process. ``way`` "before": as the emulator comes."""
    import torch

    torch.set_num_threads(1)
    trace = emulate(way, options)
    first = time.process_time()
    assert emulate(way, options) == trace
    return {"first": first, "again": time.process_time() - first, "trace_hash": trace}


def emulate(way: str, options: argparse.Namespace) -> str:
    """Run the job; its trace hash."""
    from emulator import Emulation, EventLog, RunSettings
    from faultinject import Schedule

    names = ("replicas", "ranks_per_replica", "steps")
    settings = RunSettings(fidelity="tensor", **{name: getattr(options, name) for name in names})
    log = EventLog(None)
    emulation = Emulation(settings.check(), Schedule(), log)
    if way.startswith("alone"):
        emulation.pooled = False
    if way.endswith("chunk by chunk"):
        emulation.kernel.runner = emulation.kernel.run_each
    emulation.run()
    log.close()
    return log.trace_hash


def run(way: str, root: Path, arguments: list[str]) -> dict[str, Any]:
    """``measure`` in a fresh process, with the packages of ``root``."""
    command = [sys.executable, __file__, "--way", way, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--ranks-per-replica", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--baseline", type=Path, help="root of a checkout to compare with")
    parser.add_argument("--way", choices=("before", *WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.way, options)))
        return
    compare(options)


def compare(options: argparse.Namespace) -> None:
    """Alternate, and print each run (first/again), the least of each way, and its ratio to the first."""
    ways = [("before", options.baseline.resolve())] if options.baseline else []
    ways += [(way, ROOT) for way in WAYS]
    names = ("replicas", "ranks_per_replica", "steps")
    arguments = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]
    found = []
    for _ in range(options.runs):
        found.append([run(way, root, arguments) for way, root in ways])
        print(*(f"{each['first']:.2f}/{each['again']:.2f}" for each in found[-1]), flush=True)
    assert len({each["trace_hash"] for row in found for each in row}) == 1, "the traces differ"
    print(f"{'':>28}  {'first run':>9}  {'again':>6}  {'ratio':>5}")
    first = 0.0
    for column, (way, _) in enumerate(ways):
        least = [min(row[column][key] for row in found) for key in ("first", "again")]
        first = first or least[1]
        print(f"{way:>28}  {least[0]:9.2f}  {least[1]:6.2f}  {first / least[1]:5.1f}")


if __name__ == "__main__":
    main()
