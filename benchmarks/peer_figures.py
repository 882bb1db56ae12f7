"""The arithmetic of `benchmarks/peers.py`: the search for the largest size, ratios, and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

HEADINGS = (
    "what ran",
    "ranks that finished",
    "did not finish",
    "what stopped it",
    "memory a rank",
    "seconds to start",
    "seconds a step",
)
RATIOS = ("against the emulator", "ranks", "memory a rank", "ranks x steps a second", "same job, a step")


@dataclass
class Row:
    """What was found about one contender."""

    name: str
    title: str
    replicas: int = 0  # of the largest job that finished
    ranks: int = 0
    failed: int = 0  # ranks of the smallest job that did not finish; 0: every job did
    why: str = ""
    bytes_a_rank: float = 0.0
    start_seconds: float | None = None  # None: part of the step's
    step_seconds: float = 0.0
    versions: str = ""
    same_job_seconds: float | None = None  # the emulator's step with as many replicas and ranks
    same_job_why: str = ""
    tried: list[dict[str, object]] = field(default_factory=list)


def largest(
    start: int, finishes: Callable[[int], bool], refine: int = 1, top: int = 1 << 24
) -> tuple[int, int]:
    """The largest size that finishes, and the smallest that does not (0: none was met).

    Doubles from ``start`` (or halves, where that is too large already), then looks ``refine`` times between
    the two. A size that cannot finish is taken to rule out all above it.
    """
    good, bad, size = 0, 0, start
    while size <= top:
        if not finishes(size):
            bad = size
            break
        good, size = size, size * 2
    while not good and bad > 1:
        size = bad // 2
        if finishes(size):
            good = size
        else:
            bad = size
    for _ in range(refine):
        middle = (good + bad) // 2
        if good and bad and good < middle < bad:
            if finishes(middle):
                good = middle
            else:
                bad = middle
    return good, bad


def quotient(a: float, b: float) -> float | None:
    """``a`` over ``b``; None where either was not measured."""
    return a / b if a and b else None


def ratios(row: Row, emulator: Row) -> dict[str, float | None]:
    """How many times better the emulator did than ``row``; below 1 it did worse."""
    rate = quotient(row.ranks, row.step_seconds) or 0.0
    emulated = quotient(emulator.ranks, emulator.step_seconds) or 0.0
    return {
        "ranks": quotient(emulator.ranks, row.ranks),
        "bytes_a_rank": quotient(row.bytes_a_rank, emulator.bytes_a_rank),
        "rank_steps_a_second": quotient(emulated, rate),
        "same_job_step_seconds": quotient(row.step_seconds, row.same_job_seconds or 0.0),
    }


def bytes_text(count: float) -> str:
    """In the unit that leaves one to three digits before the point."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def seconds_text(seconds: float) -> str:
    """Three digits, in milliseconds below one second."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def times_text(ratio: float | None) -> str:
    """A ratio with two or three digits, thousands in groups; a dash where it was not measured."""
    if ratio is None:
        return "-"
    return f"{ratio:,.0f} x" if ratio >= 100 else f"{ratio:.2g} x"


def cells(row: Row) -> list[str]:
    """A line of the table of what was measured."""
    if not row.ranks:
        failed = f"{row.failed:,}" if row.failed else "-"
        return [row.title, "-", failed, row.why, "-", "-", "-"]
    start = "in the step's" if row.start_seconds is None else seconds_text(row.start_seconds)
    return [
        row.title,
        f"{row.ranks:,} ({row.replicas:,} x {row.ranks // row.replicas:,})",
        f"{row.failed:,}" if row.failed else "-",
        row.why or "nothing: the search ended",
        bytes_text(row.bytes_a_rank),
        start,
        seconds_text(row.step_seconds),
    ]


def ratio_cells(row: Row, emulator: Row) -> list[str]:
    """A line of the table of ratios."""
    found = [times_text(ratio) for ratio in ratios(row, emulator).values()]
    if row.same_job_why:
        found[-1] = f"the emulator did not finish it: {row.same_job_why}"
    return [row.title, *found]


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; a bar in a cell would end it, so it becomes a slash."""
    table = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in table)
