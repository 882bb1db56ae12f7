"""Between the control thread and the training thread: what is to be computed, and what has been.

The training thread sleeps in ``Worker.next`` without holding the interpreter. Orders come in the order in
which the protocol gave them; a step of the optimizer and a gradient can never overtake each other.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from ftruntime.protocol.ids import Lineage, Round, Step
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Plan

from .memory import Bytes


class Trainee(Protocol):
    """The model and all that goes with it, at one rank. Everything is called on the training thread,
    except ``state``, which a copying thread reads while nothing changes it.

    Equal state and sums must give equal bits, whatever the replica (design 3.1).
    """

    dtype: str

    def state(self) -> Sequence[memoryview]:
        """Live views of all bytes that make up the state, in a fixed order and of fixed sizes."""

    def apply(self, sums: Sequence[Bytes], plan: Plan, scalars: Sequence[float]) -> None:
        """The optimizer step: ``sums`` (read-only) over ``plan.divisor``, with ``plan.lr_factor``."""

    def installed(self) -> None:
        """The bytes of ``state`` were replaced: whatever is derived from them is of no use any more."""

    def warm_up(self) -> None:
        """A throw-away step, which leaves the state as it is."""


class Work:
    """Forward and backward of ``ranges`` on the state ``base``.

    grads:  memory for each bucket's raw sum over the own samples
    round:  for which it is wanted now: a round that is tried again takes it over
    """

    def __init__(
        self,
        base: Lineage,
        step: Step,
        ranges: tuple[SampleRange, ...],
        round: Round,
        grads: list[Bytes],
        ready: Callable[[Work, int], object],
    ) -> None:
        self.base, self.step, self.ranges, self.round, self.grads = base, step, ranges, round, grads
        self.corpus_digest = 0
        self._report = ready

    def ready(self, bucket: int) -> None:
        """The training thread: the gradient of ``bucket`` is there, in ``grads``."""
        self._report(self, bucket)


class Order(NamedTuple):
    """Something other than a gradient. ``after``: copies that must be complete before the state changes."""

    act: Callable[[], None]
    done: Callable[[], object]
    after: tuple[Future[Any], ...] = ()


class Stopped(Exception):
    """The job is over for this rank: there is nothing more to train."""


class Worker:
    """The training thread's side: an inbox, bounded by what the protocol may have asked for."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Work | Order | None] = queue.SimpleQueue()

    def put(self, item: Work | Order | None) -> None:
        """From the control thread. None: stop."""
        self._inbox.put(item)

    def works(self) -> Iterator[Work]:
        """``next`` until there is nothing more to train."""
        while True:
            try:
                work = self.next()
            except Stopped:
                return
            yield work

    def next(self) -> Work:
        """Carry out orders until there is work. Raises Stopped.

        Work that nobody wants any more is done all the same: the ranks of a replica compute together, and
        one of them may have begun.
        """
        while True:
            item = self._inbox.get()
            if item is None:
                raise Stopped
            if isinstance(item, Work):
                return item
            for copy in item.after:
                copy.result()
            item.act()
            item.done()
