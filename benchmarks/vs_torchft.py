"""Beside torchft, on this machine, in one run: what a fault costs, and what a step costs without one.

    python benchmarks/vs_torchft.py --torchft-python PATH      everything; writes benchmarks/vs_torchft.md
    python benchmarks/vs_torchft.py --torchft-python PATH --quick --only kill --json

Three replicas of one rank train in each system, one process a rank: ours with its real driver, store and
launcher, torchft with its Manager and lighthouse. Both run with their default time-outs and with short ones.
 A stall is the longest step of a survivor less its median step. About 12 minutes; needs 6 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import psutil  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.markdown import Markdown  # noqa: E402

from benchmarks import vs_cases as c  # noqa: E402
from benchmarks import vs_quorum as q  # noqa: E402
from benchmarks.peer_figures import markdown, seconds_text  # noqa: E402
from benchmarks.peers import machine, versions  # noqa: E402
from benchmarks.vs_cases import Figure  # noqa: E402
from benchmarks.vs_jobs import DEFAULT, Job, Lost, Ours, Shape, TorchFT  # noqa: E402

TUNED = 2.0  # seconds of patience on both sides
SYSTEMS: dict[str, type[Ours] | type[TorchFT]] = {"ours": Ours, "torchft": TorchFT}
Timed = Callable[[c.Make, float, int], tuple[list[float], float]]
STALLS: dict[str, tuple[str, Timed, int]] = {
    "kill": ("a replica is ended by SIGKILL", c.kill, 3),
    "stop": ("a rank stops (SIGSTOP) in the all-reduce", c.stop, 1),
    "fetch": ("a joiner fetches 200 MB, 3 replicas", lambda m, p, n: c.fetch(m, p, n, 200 * c.MB, 3), 1),
    "fetch-1gb": ("a joiner fetches 1 GB, 2 replicas", lambda m, p, n: c.fetch(m, p, n, 1000 * c.MB, 2), 1),
    "die-joining": ("a joiner dies while it joins", c.die_joining, 1),
}
ONCE = "split-vote"
OVERHEAD, QUORUM = "overhead", "quorum"
CLIENTS = (2, 12, 64, 256, 512, 1024)
VOTES = 64  # clients up to which a whole round with all votes is measured
NOTES = HERE / "vs_torchft_notes.md"


def stalls(name: str, python: str, quick: bool) -> Iterator[Figure]:
    """One case on both systems, each with its defaults and with little patience."""
    title, case, trials = STALLS[name]
    for tuned in (False, True):
        for system, kind in SYSTEMS.items():
            if quick and not tuned and system == "torchft":
                continue  # its defaults take minutes
            figure = Figure(title, system, tuned)
            count = trials if tuned and not quick else 1
            try:
                make = _maker(kind, python)
                figure.seconds, figure.step_s = case(make, TUNED if tuned else DEFAULT, count)
            except Lost as error:
                figure.problem = str(error).splitlines()[0]
            yield figure


def _maker(kind: type[Ours] | type[TorchFT], python: str) -> c.Make:
    def make(shape: Shape) -> Job:
        return kind(shape, python)

    return make


def exactly_once(python: str) -> Iterator[Figure]:
    for system, kind in SYSTEMS.items():
        figure = Figure("two of three fail between all-reduce and vote", system, False)
        try:
            figure.text = c.split_vote(_maker(kind, python))
        except Lost as error:
            figure.problem = str(error).splitlines()[0]
        yield figure


def quiet(limit_s: float) -> None:
    """Wait until others use a fifth of the processors at most, but not for longer than ``limit_s``."""
    end = time.monotonic() + limit_s
    while psutil.cpu_percent(1.0) > 20 and time.monotonic() < end:
        continue


def overheads(python: str, quick: bool) -> Iterator[Figure]:
    """In turns, since the machine is never twice the same; each when nobody else is busy, if that comes."""
    for replicas in (2, 4):
        found: dict[str, list[float]] = {system: [] for system in SYSTEMS}
        for _ in range(1 if quick else 3):
            quiet(1 if quick else 8)
            for system, kind in SYSTEMS.items():
                times = c.overhead(_maker(kind, python), replicas, 100 if quick else 400)
                found[system].append(statistics.median(times))
        for system, medians in found.items():
            yield Figure(f"a step of {replicas} replicas that computes nothing", system, False, medians)


def quorums(python: str, quick: bool) -> Iterator[Figure]:
    for count in CLIENTS[:3] if quick else CLIENTS:
        quiet(1 if quick else 10)
        rounds = 9 if count <= 256 else 5
        title = f"{count:,} clients know of a decision"
        commits, whole = q.ours(count, rounds, VOTES)
        yield Figure(title, "ours", False, commits)
        if whole:
            yield Figure(f"{title}, with a vote of each", "ours", False, whole)
        yield Figure(title, "torchft", False, q.torchft(python, count, rounds))


def measured(options: argparse.Namespace) -> Iterator[Figure]:
    python, quick = options.torchft_python, options.quick
    wanted = options.only or [*STALLS, ONCE, QUORUM, OVERHEAD]
    for name in wanted:
        if name in STALLS:
            yield from stalls(name, python, quick)
        elif name == ONCE:
            yield from exactly_once(python)
        elif name == OVERHEAD:
            yield from overheads(python, quick)
        else:
            yield from quorums(python, quick)


def told(figure: Figure | None) -> str:
    """A cell: the median, with the best and the worst where there were several trials."""
    if figure is None:
        return "-"
    if figure.problem or figure.text:
        return figure.problem or figure.text
    spread = " to ".join(seconds_text(x) for x in (min(figure.seconds), max(figure.seconds)))
    return seconds_text(figure.median) + (f" ({spread})" if len(figure.seconds) > 1 else "")


def tables(figures: list[Figure]) -> str:
    """Stalls in one table, the rest in another, in Markdown."""
    found = {(f.case, f.system, f.tuned): f for f in figures}
    names = [title for title, _, _ in STALLS.values() if any(f.case == title for f in figures)]
    lines = [
        [title, *(told(found.get((title, s, tuned))) for s in ("torchft", "ours") for tuned in (False, True))]
        for title in names
    ]
    parts = []
    if lines:
        patience = f"{TUNED:g} s"
        heads = [f"torchft, {patience}", "torchft, defaults", f"ours, {patience}", "ours, defaults"]
        parts.append(markdown(["survivors' stall while", heads[1], heads[0], heads[3], heads[2]], lines))
    others = list(dict.fromkeys(f.case for f in figures if f.case not in names))
    if others:
        rows = [
            [title, *(told(found.get((title, s, False))) for s in ("torchft", "ours"))] for title in others
        ]
        parts.append(markdown(["what", "torchft", "ours"], rows))
    return "\n\n".join(parts)


def page(figures: list[Figure], options: argparse.Namespace) -> str:
    """What is written to vs_torchft.md."""
    words = ["PATH" if word == options.torchft_python else word for word in sys.argv[1:]]
    return "\n\n".join(
        [
            "# Beside torchft",
            f"{date.today().isoformat()}; {machine()}. "
            f"{versions(options.torchft_python, 'torchft-nightly')}. "
            f"Load average over 15 minutes, at the end: {os.getloadavg()[2]:.1f}. Made by",
            f"```sh\n{shlex.join(['python', 'benchmarks/vs_torchft.py', *words])}\n```",
            tables(figures),
            NOTES.read_text(encoding="utf-8").strip(),
        ]
    ) + "\n"  # fmt: skip


def arguments() -> argparse.Namespace:
    """The command line; a torchft that cannot be imported is refused at once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*STALLS, ONCE, OVERHEAD, QUORUM]
    parser.add_argument("--only", action="append", choices=names, help="may be given again; writes no page")
    parser.add_argument("--torchft-python", default=sys.executable, metavar="PATH", help="that has torchft")
    parser.add_argument("--quick", action="store_true", help="few trials, no waiting; writes no page")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    if subprocess.run([options.torchft_python, "-c", "import torchft"], capture_output=True).returncode:
        parser.error(
            f"{options.torchft_python} has no torchft: pip install torchft-nightly, or --torchft-python PATH"
        )
    return options


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, interrupt)
    console = Console(stderr=True)
    figures: list[Figure] = []
    whole = False
    try:
        for figure in measured(options):
            figures.append(figure)
            how = "" if figure.case not in {t for t, _, _ in STALLS.values()} else f", tuned: {figure.tuned}"
            console.print(
                f"{figure.case}: {figure.system}{how}: {told(figure)}", highlight=False, markup=False
            )
        whole = True
    except KeyboardInterrupt:
        console.print("interrupted: all that ran is ended; this is what was measured until then")
    if options.json:
        print(json.dumps({"machine": machine(), "figures": [asdict(figure) for figure in figures]}))
    else:
        Console().print(Markdown(tables(figures)))
    if not whole:
        sys.exit(130)
    if not options.quick and not options.only:
        (HERE / "vs_torchft.md").write_text(page(figures, options), encoding="utf-8")


if __name__ == "__main__":
    main()
