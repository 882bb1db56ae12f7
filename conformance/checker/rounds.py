"""What is known of one round while entries about it may still come: its plan, its outcome, its sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .entries import Member


class Book:
    """One round.

    index:    contributor -> its place in the plan
    done:     for each contributor one flag a position: it has computed (or reused) its gradients
    missing:  for each contributor how many positions have not
    corpus:   for each contributor the digest of the samples that it read
    sums:     for each position the sum of gradients so far, one number a bucket
    counts:   for each position how many contributors are in that sum
    after:    for each position the verified digest of the state after the round
    """

    __slots__ = (
        "after", "base_ledger", "base_lineage", "base_step", "by", "catchers", "contributors", "corpus",
        "counts", "divisor", "done", "index", "kind", "lineage_after", "lr_factor", "missing", "opened",
        "outcome", "ranges", "round", "scalars", "step_after", "sums",
    )  # fmt: skip

    def __init__(self, round: int, t: float, plan: dict[str, Any], ranks: int, run: int) -> None:
        """``run`` of the ``ranks`` positions are run."""
        self.round = round
        self.opened = t
        self.kind: str = plan["kind"]
        self.base_step: int = plan["base_step"]
        self.base_lineage: str = plan["base_lineage"]
        self.base_ledger: list[int] = list(plan["base_ledger"])
        self.contributors: list[Member] = [(r, k) for r, k in plan["contributors"]]
        self.ranges: list[list[list[int]]] = plan["ranges"]
        self.catchers: list[Any] = plan["catchers"]
        self.divisor: int = plan["divisor"]
        self.lr_factor: float = plan["lr_factor"]
        self.index = {member: i for i, member in enumerate(self.contributors)}
        self.outcome: str | None = None
        self.step_after = -1
        self.lineage_after = ""
        self.by: Member | None = None
        self.scalars: list[float] | None = None
        self._open_tables(len(self.contributors), ranks, run)

    def _open_tables(self, n: int, width: int, run: int) -> None:
        self.done: list[bytearray] | None = [bytearray(width) for _ in range(n)]
        self.missing = [run] * n
        self.corpus: list[int | None] = [None] * n
        self.sums: list[Any] | None = [None] * width if n else None
        self.counts = [0] * width if n else []
        self.after: list[int | None] | None = [None] * width if n else None

    def reseat(self, positions: Sequence[int]) -> None:
        """Other positions are run from here on."""
        if self.done is not None:
            self.missing = [sum(not done[position] for position in positions) for done in self.done]

    def free_done(self) -> None:
        """The round is decided: who computed it has been checked."""
        self.done = None

    def free_sums(self) -> None:
        """The round is closed, or too old for its updates to be looked at again."""
        self.sums = self.after = None
        self.counts = []

    def samples(self) -> int:
        """Samples that the plan's contributors train together."""
        return sum(count for owned in self.ranges for _, _, count in owned)


class Books:
    """The books of recent rounds: ``light`` rounds with their plans, ``heavy`` ones with their sums.

    Both are windows, so that memory does not grow with the number of rounds.
    """

    def __init__(self, width: int) -> None:
        self.heavy = max(8, min(1024, 131_072 // width))
        self.light = 1024
        self._books: dict[int, Book] = {}
        self._heavy: list[Book] = []
        self.oldest = 0

    def add(self, book: Book) -> None:
        self._books[book.round] = book
        if len(self._books) > self.light:
            del self._books[next(iter(self._books))]
            self.oldest = next(iter(self._books))

    def decided(self, book: Book) -> None:
        """``book`` has its outcome: a closed round's sums go at once, a committed one's later."""
        book.free_done()
        if book.outcome != "committed":
            book.free_sums()
            return
        self._heavy.append(book)
        if len(self._heavy) > self.heavy:
            self._heavy.pop(0).free_sums()

    def get(self, round: int) -> Book | None:
        return self._books.get(round)

    def forgotten(self, round: int) -> bool:
        """Whether ``round`` may have been opened but is too old to be known."""
        return round < self.oldest
