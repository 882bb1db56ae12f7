"""Invariant 6, gradient: each committed update is the sum over exactly the plan's contributors, over
exactly its divisor.

Gradients are added up, for each position, as the devices report them. At the first ``applied`` of a
round at a position the sum, the scalar and the new state are computed anew and compared; the other
replicas' entries must then equal that first one, so each update is recomputed once and compared R
times. The plan's own numbers are held against the configuration. In fidelity ``fingerprint`` each
reported gradient is recomputed as well, from the state and the samples that the device reports. One
that is wrong after a ``corrupt_gradient`` or ``inf_gradient`` fault on its rank is what that fault does: the
protocol cannot know, the sum is still exactly that of its contributors, and the checker counts it as seen.
A rank whose state is corrupt (``corrupt.py``) is no measure for others; its update must follow from what it
has. In fidelity ``tensor`` sums are compared within 1e-6 of the summed magnitudes, and states are opaque.
"""

from __future__ import annotations

import math
from typing import Any

from . import fingerprint
from .entries import Entry, typed
from .invariant import Invariant
from .lives import Life
from .rounds import Book
from .world import HeadView, World

TOLERANCE = 1e-6
BATCH = 512  # gradients that are recomputed together
PLANTED = ("corrupt_gradient", "inf_gradient")


class Gradient(Invariant):
    name = "gradient"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._exact = world.config.fidelity == "fingerprint"
        self._buckets = world.config.buckets
        self._computed: list[Entry] = []
        self._planted: dict[tuple[int, int], int] = {}  # rank -> injected corruptions not yet seen
        self.corruptions_seen = 0

    def on_fault(self, e: Entry) -> None:
        fault = e[2]
        if fault.get("kind") in PLANTED and fault.get("rank") is not None:
            replica, position = fault["rank"]
            self._planted[replica, position] = self._planted.get((replica, position), 0) + 1

    # -- the plan ------------------------------------------------------------------------------

    def on_head(self, e: Entry, head: HeadView) -> None:
        book = head.opens
        if book is None or book.kind != "train":
            return
        self.checked += 1
        config = self.world.config
        if config.divisor == "contributors":
            divisor = book.samples()
        else:
            divisor = config.replicas * config.samples_per_step
        if book.divisor != divisor:
            self.fail(f"round {book.round} divides by {book.divisor}, not {divisor}", e, round=book.round)
        share = len(book.contributors) / config.replicas
        factor = {"none": 1.0, "linear": share, "sqrt": math.sqrt(share)}[config.lr_scaling]
        if not math.isclose(book.lr_factor, factor, rel_tol=1e-12):
            message = f"round {book.round} scales the learning rate by {book.lr_factor}, not {factor}"
            self.fail(message, e, round=book.round)

    # -- what goes into the sum ------------------------------------------------------------------

    def on_computed(self, e: Entry, life: Life, book: Book | None) -> None:
        grads = e[10]
        if self._exact:
            self._computed.append(e)
            if len(self._computed) == BATCH:
                self._recompute()
        if book is not None and book.sums is not None and life.key in book.index:
            self._add(book, life, e[4], grads)

    def _recompute(self) -> None:
        """Compute the gradients of what has been put by anew, all at once, and singly if any is wrong."""
        batch, self._computed = self._computed, []
        self.checked += len(batch)
        states, corpora, positions = [e[7] for e in batch], [e[9] for e in batch], [e[4] for e in batch]
        for bucket in range(self._buckets):
            said = [e[10][bucket] if len(e[10]) == self._buckets else -1 for e in batch]
            expected = fingerprint.all_gradients(states, corpora, positions, bucket)
            if expected is None or expected != fingerprint.pack(said):
                return self._singly(batch)

    def _singly(self, batch: list[Entry]) -> None:
        for e in batch:
            typed(e)
            if e[10] == fingerprint.gradients(e[7], e[9], e[4], self._buckets):
                continue
            if self._planted.get((e[2], e[4]), 0) > 0:
                self._planted[e[2], e[4]] -= 1
                self.corruptions_seen += 1
            else:
                message = f"{e[2]}.{e[3]} rank {e[4]}: the gradients are not those of its state and samples"
                self.fail(message, e, round=e[5], members=((e[2], e[3]),))

    def finish(self) -> None:
        self._recompute()

    def on_reused(self, e: Entry, life: Life, book: Book | None) -> None:
        if book is not None and book.sums is not None and life.key in book.index:
            self._add(book, life, e[4], e[7])

    def _add(self, book: Book, life: Life, position: int, grads: list[Any]) -> None:
        assert book.sums is not None
        if book.after is not None and book.after[position] is not None:
            return  # the update is out already; that it came without this one is known
        book.counts[position] += 1
        row = book.sums[position]
        if not self._exact:
            book.sums[position] = parts = row or {}
            parts[book.index[life.key]] = grads
        elif row is None:
            book.sums[position] = grads.copy()
        else:
            for bucket, grad in enumerate(grads):
                row[bucket] += grad

    # -- what comes out ----------------------------------------------------------------------------

    def on_applied(self, e: Entry, life: Life, book: Book | None) -> None:
        if book is None:
            return
        self.checked += 1
        if e[11] != book.divisor or e[12] != book.lr_factor:
            message = f"{life} rank {e[4]} applies divisor {e[11]}, lr x {e[12]}; the plan says "
            self._bad(f"{message}{book.divisor}, lr x {book.lr_factor}", e, life)
        if e[6] != (life.key in book.index):
            self._bad(f"{life} rank {e[4]} misstates whether it contributes to round {e[5]}", e, life)
        after, sums = book.after, book.sums
        if after is None or sums is None:
            return
        known = after[e[4]]
        if self.world.corrupt.has(life.key, e[4]):
            self._on_its_own(e, life, sums[e[4]] if known is not None else None)
        elif known is None:
            self._first(e, life, book)
        elif known != e[15] or sums[e[4]] != e[9] or e[10] != book.scalars:
            self._bad(f"{life} rank {e[4]} applies another update than its peers in round {e[5]}", e, life)

    def _on_its_own(self, e: Entry, life: Life, sums: Any) -> None:
        """An update of a state that nobody else has, by the same sums as others'."""
        if sums is not None and sums != e[9]:
            self._bad(f"{life} rank {e[4]} applies another sum than its peers in round {e[5]}", e, life)
        if self._exact and e[15] != fingerprint.after(e[8], e[9], e[11], e[12], e[10]):
            self._bad(f"{life} rank {e[4]}: the new state does not follow from the update", e, life)

    def _first(self, e: Entry, life: Life, book: Book) -> None:
        """The first update of this round at this position: compute it anew."""
        assert book.sums is not None and book.after is not None
        position = e[4]
        missing = len(book.contributors) - book.counts[position]
        if missing:
            message = f"round {e[5]} at position {position}: {missing} of {len(book.contributors)} "
            self._bad(f"{message}contributors are not in the sum", e, life)
        elif not (self._exact_sum(e, book) if self._exact else self._close_sum(e, book)):
            self._bad(f"round {e[5]} at position {position}: not the sum of its contributors", e, life)
        if book.scalars is None:
            book.scalars = self._scalars(e, book)
        if e[10] != book.scalars:
            self._bad(f"{life} rank {position} applies scalars {e[10]}, not {book.scalars}", e, life)
        if self._exact and e[15] != fingerprint.after(e[8], e[9], e[11], e[12], e[10]):
            self._bad(f"{life} rank {position}: the new state does not follow from the update", e, life)
        book.sums[position] = e[9]
        book.after[position] = e[15]

    def _exact_sum(self, e: Entry, book: Book) -> bool:
        assert book.sums is not None
        return bool([total & fingerprint.MASK for total in book.sums[e[4]]] == e[9])

    def _close_sum(self, e: Entry, book: Book) -> bool:
        assert book.sums is not None
        parts = [grads for _, grads in sorted(book.sums[e[4]].items())]
        return len(e[9]) == len(parts[0]) and all(
            len(got) == len(terms[0])
            and all(_close(x, column) for x, *column in zip(got, *terms, strict=True))
            for got, *terms in zip(e[9], *parts, strict=True)
        )

    def _scalars(self, e: Entry, book: Book) -> list[float]:
        """What must ride on the votes; where it cannot be computed, what the first rank says.

        Rows of positions that have no update yet hold sums that are not reduced; others are.
        """
        assert book.sums is not None
        if not self._exact or not e[10] or any(row is None for row in book.sums):
            return list(e[10])
        return [fingerprint.scalar(row[-1] & fingerprint.MASK for row in book.sums)]

    def _bad(self, message: str, e: Entry, life: Life) -> None:
        self.fail(message, e, round=e[5], members=(life.key,))


def _close(got: float, terms: list[float]) -> bool:
    if not all(map(math.isfinite, terms)):
        return got == sum(terms) or (math.isnan(got) and math.isnan(sum(terms)))
    scale = math.fsum(abs(term) for term in terms)
    return abs(got - math.fsum(terms)) <= TOLERANCE * scale + 1e-300
