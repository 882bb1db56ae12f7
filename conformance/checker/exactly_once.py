"""Invariant 5, exactly once: along the surviving chain every sample was trained in one step only.

Judged by what the devices computed, not by what the ledger claims:

- A commit needs, of each contributor, every position to have computed (or reused) its round, each
  once, on exactly the ranges that the plan gave it. Then, and only then, do these ranges count.
- From the ranges so counted each stream's cursor is computed anew along the chain: a range must
  begin at the cursor, neither before it (trained twice) nor after it (skipped). The ledger that the
  next plan writes must be this one; after a rollback it must be the target's.
- All that read one row of ranges read the same tokens, at whatever position, in whatever round.
- Gradients are reused only by the rank that computed them, on the same state and ranges, unchanged.
"""

from __future__ import annotations

from .chain import CHAIN_WINDOW
from .entries import Entry
from .invariant import Invariant
from .lives import Life
from .readable import span
from .rounds import Book
from .world import HeadView, World

READ_WINDOW = 16_384  # rows of ranges whose digest is remembered
PINNED = 64  # recorded checkpoints whose ledger is remembered


class ExactlyOnce(Invariant):
    name = "exactly_once"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._root = [0] * world.config.streams
        self._ledgers: dict[str, list[int]] = {}
        self._pinned: dict[str, list[int]] = {world.config.lineage_root: self._root}
        self._read: dict[str, int] = {}

    # -- what devices did --------------------------------------------------------------------

    def on_computed(self, e: Entry, life: Life, book: Book | None) -> None:
        if book is None:
            return
        i = self._take(e, life, book, e[8])
        if i is None:
            return
        first = book.corpus[i]
        if first is None:
            book.corpus[i] = first = self._tokens(book, i, e[9])
        if first != e[9]:
            self._bad(f"{life} rank {e[4]} read other tokens for {span(e[8])} than were read before", e, life)
        life.retained_book[e[4]] = book
        life.retained_grads[e[4]] = e[10]

    def on_reused(self, e: Entry, life: Life, book: Book | None) -> None:
        if book is None or (i := self._take(e, life, book, e[6])) is None:
            return
        old = life.retained_book[e[4]]
        if old is None or old.base_lineage != book.base_lineage or old.ranges[old.index[life.key]] != e[6]:
            self._bad(f"{life} rank {e[4]} reuses gradients that it has not computed on this base", e, life)
        elif life.retained_grads[e[4]] != e[7]:
            self._bad(f"{life} rank {e[4]} reuses gradients that have changed since", e, life)
        elif book.corpus[i] is None:
            book.corpus[i] = old.corpus[old.index[life.key]]

    def _take(self, e: Entry, life: Life, book: Book, ranges: list[list[int]]) -> int | None:
        """Count one rank's work. Returns the contributor's place, or None if the work is not to count."""
        self.checked += 1
        i = book.index.get(life.key)
        if i is None:
            self._bad(f"{life} rank {e[4]} trains in round {book.round} but is no contributor of it", e, life)
            return None
        if ranges != book.ranges[i]:
            planned = span(book.ranges[i])
            self._bad(f"{life} rank {e[4]} trains {span(ranges)}; its plan says {planned}", e, life)
            return None
        if book.done is not None:
            if book.done[i][e[4]]:
                self._bad(f"{life} rank {e[4]} trains round {book.round} twice", e, life)
            else:
                book.done[i][e[4]] = 1
                book.missing[i] -= 1
        return i

    def _tokens(self, book: Book, i: int, digest: int) -> int:
        """The digest that was read first for these ranges, in this round or in an earlier one."""
        key = str(book.ranges[i])
        if len(self._read) >= READ_WINDOW:
            del self._read[next(iter(self._read))]
        return self._read.setdefault(key, digest)

    # -- what the chain makes of it -------------------------------------------------------------

    def on_head(self, e: Entry, head: HeadView) -> None:
        if head.committed and head.done is not None:
            self._commit(e, head, head.done)
        if head.opens is None:
            return
        self.checked += 1
        known = self._ledgers.get(head.end[1]) or self._pinned.get(head.end[1])
        if known is None:
            self._remember(head.end[1], head.opens.base_ledger)  # older than the window: take its word
        elif known != head.opens.base_ledger:
            differ = [
                s for s, (a, b) in enumerate(zip(known, head.opens.base_ledger, strict=False)) if a != b
            ]
            message = f"the plan of round {head.round} has another ledger than was trained: streams {differ}"
            self.fail(message, e, round=head.round)
        self._planned(e, head.opens)

    def _planned(self, e: Entry, book: Book) -> None:
        """The ranges of a plan begin where its own ledger ends, each stream in one hand only."""
        cursors = dict(enumerate(book.base_ledger))
        for owned in book.ranges:
            for stream, start, count in owned:
                if cursors.get(stream) != start or count < 1:
                    planned = span([[stream, start, count]])
                    message = f"round {book.round} plans {planned}; its ledger says {cursors.get(stream)}"
                    self.fail(message, e, round=book.round)
                else:
                    cursors[stream] = start + count

    def _commit(self, e: Entry, head: HeadView, book: Book) -> None:
        for i, missing in enumerate(book.missing):
            self.checked += 1
            if missing:
                r, k = book.contributors[i]
                message = (
                    f"round {book.round} is committed, but {missing} ranks of {r}.{k} have not trained it"
                )
                self.fail(message, e, round=book.round, members=((r, k),))
        cursors = list(self._ledgers.get(book.base_lineage) or self._pinned.get(book.base_lineage, []))
        if not cursors:
            cursors = list(book.base_ledger)
        for owned in book.ranges:
            for stream, start, count in owned:
                self.checked += 1
                if not 0 <= stream < len(cursors) or count < 1 or cursors[stream] != start:
                    self._off(e, book, stream, start, count, cursors)
                else:
                    cursors[stream] = start + count
        self._remember(head.end[1], cursors)

    def _off(self, e: Entry, book: Book, stream: int, start: int, count: int, cursors: list[int]) -> None:
        at = cursors[stream] if 0 <= stream < len(cursors) else "no such stream"
        what = f"round {book.round} trains {span([[stream, start, count]])}; trained so far: {at}"
        self.fail(what, e, round=book.round, members=tuple(book.contributors))
        if 0 <= stream < len(cursors):
            cursors[stream] = start + count

    def _remember(self, lineage: str, cursors: list[int]) -> None:
        self._ledgers[lineage] = cursors
        if len(self._ledgers) > CHAIN_WINDOW:
            del self._ledgers[next(iter(self._ledgers))]

    def on_checkpoint(self, e: Entry) -> None:
        if (cursors := self._ledgers.get(e[4])) is not None:
            self._pinned[e[4]] = cursors
            if len(self._pinned) > PINNED:
                del self._pinned[
                    next(name for name in self._pinned if name != self.world.config.lineage_root)
                ]

    def _bad(self, message: str, e: Entry, life: Life) -> None:
        self.fail(message, e, round=e[5], members=(life.key,))
