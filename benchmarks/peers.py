"""The emulator beside its public peers: on this machine, how many ranks can each run, at what cost?

    python benchmarks/peers.py --torchft-python PATH      everything; writes benchmarks/peers.md
    python benchmarks/peers.py --quick                    small limits, to see that all runs; writes nothing
    python benchmarks/peers.py --only emulate --only gloo-fork --json

A job is one step's control and an all-reduce of one small buffer over replicas, with commit where there is
one, a few times over. Each contender's job grows until it is over a limit or breaks; then the emulator runs a
job of each peer's own shape and size. Every process is in a group of its own that is killed at its end.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import NoReturn

import psutil
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from benchmarks.peer_attempts import GIB, Attempt, Limits, attempt  # noqa: E402
from benchmarks.peer_figures import (  # noqa: E402
    HEADINGS,
    RATIOS,
    Row,
    cells,
    largest,
    markdown,
    ratio_cells,
    ratios,
    seconds_text,
)

STEPS = 3
EMULATE = "from emulator.cli import main; main()"


@dataclass(frozen=True)
class Contender:
    """What runs a job of ``replicas`` x ``ranks_per_replica``, of which one grows and the other is fixed."""

    name: str
    title: str
    start: int  # first size of what grows
    replicas: int = 0  # 0: replicas grow, each of one rank
    kind: str = ""  # of peer_ranks.py; empty: the emulator
    how: str = ""  # fork or fresh; of the emulator: each
    needs: tuple[str, str] = ("", "")  # what to import, and the package that has it

    def shape(self, size: int) -> tuple[int, int]:
        return (self.replicas, size) if self.replicas else (size, 1)

    def command(self, python: str, size: int, seconds: float, folder: str, steps: int = STEPS) -> list[str]:
        """What to run for a job of this size; run directories go to ``folder``."""
        replicas, per = self.shape(size)
        shape = [
            "--replicas",
            str(replicas),
            "--ranks-per-replica",
            str(per),
            "--steps",
            str(steps),
            "--json",
        ]
        if self.how == "each":
            return [python, "benchmarks/one_process.py", "--each", *shape]
        if not self.kind:
            return [python, "-c", EMULATE, "emulate", *shape, "--quiet", "--run-dir", f"{folder}/run"]
        job = {"kind": self.kind, "start": self.how, "replicas": replicas, "ranks_per_replica": per}
        return [python, "benchmarks/peer_ranks.py", json.dumps(job | {"steps": STEPS, "seconds": seconds})]


TORCH = ("torch.distributed", "torch")
TORCHFT = ("torchft", "torchft-nightly")
CONTENDERS = (
    Contender("emulate", "fthsdp emulate, 12 replicas", 512, 12),
    Contender("emulate-each", "one_process.py --each, 12 replicas", 512, 12, how="each"),
    Contender("emulate-replicas", "fthsdp emulate, replicas of 1 rank", 64),
    Contender("torchft-hsdp", "torchft, 12 replicas, ranks forked", 4, 12, "torchft", "fork", TORCHFT),
    Contender("torchft", "torchft, replicas of 1 rank, forked", 64, 0, "torchft", "fork", TORCHFT),
    Contender("torchft-fresh", "torchft, replicas of 1 rank, fresh", 4, 0, "torchft", "fresh", TORCHFT),
    Contender("gloo-fork", "gloo, a forked process a rank", 128, 0, "gloo", "fork", TORCH),
    Contender("gloo", "gloo, a fresh process a rank", 4, 0, "gloo", "fresh", TORCH),
    Contender("threads", "MultiThreadedPG, a thread a rank", 512, 0, "threads", "", TORCH),
)


def figures(found: Attempt) -> tuple[float, float | None, float]:
    """Bytes of all ranks together, seconds to start (None: in the step's), and seconds a step."""
    word = found.word
    if "seconds" in word:
        return found.pss, word["start_seconds"], statistics.median(word["seconds"])
    peak = word.get("peak_rss_bytes") or word["peak_rss_mib"] * 2**20
    done = word.get("steps_committed") or word["steps"]
    return max(peak, found.pss), None, word["wall_seconds"] / done


def violated(found: Attempt) -> str:
    """What the emulator's own check found wrong; empty: nothing, or it was no run of the emulator."""
    checks = found.word.get("invariants", {})
    names = [name for name, check in checks.items() if check["violated"]]
    return f"violated: {', '.join(names)}" if names else ""


def missing(contender: Contender, python: str) -> str:
    """What to say where the contender's package cannot be imported; empty: it can."""
    module, package = contender.needs
    if not module or not subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
        return ""
    return f"not installed: pip install {package}"


def versions(python: str, package: str) -> str:
    """Of a peer's package and its torch, as its own interpreter finds them."""
    names = [name for name in dict.fromkeys((package, "torch")) if name]
    code = (
        f"from importlib.metadata import version as v; print(*(f'{{n}} {{v(n)}}' for n in {names}), sep=', ')"
    )
    return (
        subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip() if package else ""
    )


def measure(
    contender: Contender, python: str, limits: Limits, refine: int, say: Callable[[str], None]
) -> Row:
    """Let the contender's job grow as far as it goes."""
    row = Row(contender.name, contender.title, why=missing(contender, python))
    if row.why:
        return row
    row.versions = versions(python, contender.needs[1])

    def finishes(size: int) -> bool:
        replicas, per = contender.shape(size)
        with tempfile.TemporaryDirectory() as folder:
            command = contender.command(python, size, limits.seconds, folder)
            found = attempt(command, str(ROOT), limits)
        found.why = found.why or violated(found)
        told = {"ranks": replicas * per, "why": found.why, "wall_seconds": round(found.wall, 2)}
        say(f"{contender.title}: {replicas * per:,} ranks: {found.why or seconds_text(found.wall)}")
        if found.why:
            row.tried.append(told)
            row.why = found.why
            return False
        total, row.start_seconds, row.step_seconds = figures(found)
        row.replicas, row.ranks, row.bytes_a_rank = replicas, replicas * per, total / (replicas * per)
        row.tried.append(told | {"bytes": total, "step_seconds": row.step_seconds})
        return True

    good, failed = largest(contender.start, finishes, refine)
    if good and not contender.kind and not contender.how and refine:
        start, step, why = emulated(contender, good, limits, say, STEPS - 1)
        if not why:
            row.start_seconds, row.step_seconds = start, step
    row.failed = failed * max(1, contender.replicas)
    return row


def emulated(
    like: Contender, size: int, limits: Limits, say: Callable[[str], None], more: int
) -> tuple[float, float, str]:
    """Seconds to start and seconds a step, of a run of one step and one with ``more`` steps."""
    walls = []
    for steps in (1, 1 + more):
        with tempfile.TemporaryDirectory() as folder:
            command = like.command(sys.executable, size, limits.seconds, folder, steps)
            found = attempt(command, str(ROOT), limits)
        replicas, per = like.shape(size)
        why = found.why or violated(found)
        said = why or seconds_text(found.word["wall_seconds"])
        say(f"{like.title}: {replicas * per:,} ranks, steps: {steps}: {said}")
        if why:
            return 0.0, 0.0, why
        walls.append(found.word["wall_seconds"])
    step = max(walls[1] - walls[0], 0.001) / more
    return max(walls[0] - step, 0.0), step, ""


def emulate_same(row: Row, limits: Limits, say: Callable[[str], None]) -> None:
    """Let the emulator run the largest job that the row's contender finished."""
    like = Contender("same", f"fthsdp emulate, the job of: {row.title}", 1, row.replicas)
    _, seconds, row.same_job_why = emulated(like, row.ranks // row.replicas, limits, say, 4)
    row.same_job_seconds = seconds or None


def machine() -> str:
    """What it ran on, without a name."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = psutil.virtual_memory().total / GIB
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores ({model or platform.machine()}), {memory:.0f} GiB, "
        f"Linux {platform.release().partition('-')[0]}, {files:,} open files a process, "
        f"Python {platform.python_version()}, torch {importlib.metadata.version('torch')}"
    )


def page(rows: list[Row], emulator: Row | None, options: argparse.Namespace, command: str) -> str:
    """What is written to peers.md."""
    peers = [row for row in rows if emulator and row is not emulator and row.ranks]
    parts = [
        "# The emulator beside its public peers",
        f"{date.today().isoformat()}; {machine()}. Load average over 15 minutes, at the end: "
        f"{os.getloadavg()[2]:.1f}. Made by",
        f"```sh\n{command}\n```",
        f"A size is over its limit at {options.limit_gib:g} GiB (PSS of all its processes) or "
        f"{options.limit_seconds:g} s from start to the last rank's last step.",
        markdown(HEADINGS, [cells(row) for row in rows]),
    ]
    if emulator and peers:
        said = "How many times better `emulate` did; below 1 it did worse. What each column compares: below."
        parts += [said, markdown(RATIOS, [ratio_cells(row, emulator) for row in peers])]
    found = sorted({row.versions for row in rows if row.versions})
    parts += ["Peers: " + "; ".join(found) + "."] if found else []
    notes = (HERE / "peers_notes.md").read_text(encoding="utf-8").strip()
    return "\n\n".join([*parts, notes]) + "\n"


def show(rows: list[Row], emulator: Row | None) -> None:
    """The tables, on the terminal."""
    console = Console()
    table = Table(*HEADINGS, title=machine())
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    if emulator:
        table = Table(*RATIOS)
        for row in rows:
            if row is not emulator and row.ranks:
                table.add_row(*ratio_cells(row, emulator))
        console.print(table)


def arguments() -> argparse.Namespace:
    """The command line; --quick lowers what was not given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", action="append", choices=names, help="may be given again")
    parser.add_argument("--limit-gib", type=float, help="memory (PSS) of a run  [default: 12]")
    parser.add_argument("--limit-seconds", type=float, help="wall time of a run  [default: 120]")
    parser.add_argument("--torchft-python", default=sys.executable, metavar="PATH", help="that has torchft")
    parser.add_argument("--quick", action="store_true", help="2 GiB and 10 s, no refining; writes no page")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    options.limit_gib = options.limit_gib or (2 if options.quick else 12)
    options.limit_seconds = options.limit_seconds or (10 if options.quick else 120)
    return options


def command_line() -> str:
    """The command as another reader would give it: without this machine's path of an interpreter."""
    words: list[str] = []
    for word in sys.argv[1:]:
        if words and words[-1] == "--torchft-python":
            word = "PATH"
        elif word.startswith("--torchft-python="):
            word = "--torchft-python=PATH"
        words.append(word)
    return shlex.join(["python", "benchmarks/peers.py", *words])


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, interrupt)
    limits = Limits(options.limit_gib, options.limit_seconds)
    console = Console(stderr=True)
    rows: list[Row] = []

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    whole = False
    try:
        for contender in CONTENDERS:
            if not options.only or contender.name in options.only:
                python = options.torchft_python if contender.kind == "torchft" else sys.executable
                rows.append(measure(contender, python, limits, 0 if options.quick else 1, say))
        for row in rows:
            if rows[0].name == "emulate" and row.ranks and not row.name.startswith("emulate"):
                emulate_same(row, limits, say)
        whole = True
    except KeyboardInterrupt:
        say("interrupted: all that ran is ended; this is what was measured until then")
    emulator = next((row for row in rows if row.name == "emulate" and row.ranks), None)
    if options.json:
        told = [asdict(row) | {"ratios": ratios(row, emulator) if emulator else None} for row in rows]
        print(json.dumps({"machine": machine(), "limits": asdict(limits), "steps": STEPS, "rows": told}))
    else:
        show(rows, emulator)
    if not whole:
        sys.exit(130)
    if not options.quick and not options.only:
        (HERE / "peers.md").write_text(page(rows, emulator, options, command_line()), encoding="utf-8")


if __name__ == "__main__":
    main()
