"""Invariant 1, agreement: all ranks of a replica that decide a round decide alike.

Deciding is applying or dropping. The first rank of a life that decides a round fixes the verdict
for all others of that life, so a split verdict within a replica is seen at the second rank, and a
rank that applies what it dropped (or drops what it applied) is seen as well.
"""

from __future__ import annotations

from .entries import Entry
from .invariant import Invariant
from .lives import Life
from .rounds import Book

WINDOW = 256  # rounds for which a life's verdict is remembered


class Agreement(Invariant):
    name = "agreement"

    def on_applied(self, e: Entry, life: Life, book: Book | None) -> None:
        self._decide(e, life, "applied")

    def on_dropped(self, e: Entry, life: Life, book: Book | None) -> None:
        self._decide(e, life, "dropped")

    def _decide(self, e: Entry, life: Life, verdict: str) -> None:
        self.checked += 1
        round = e[5]
        first = life.decided.get(round)
        if first == verdict:
            return
        if first is not None:
            message = f"{life} rank {e[4]} has {verdict} round {round}, which {life} has {first} before"
            self.fail(message, e, round=round, members=(life.key,))
            return
        life.decided[round] = verdict
        if len(life.decided) > WINDOW:
            del life.decided[next(iter(life.decided))]
