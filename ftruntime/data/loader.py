"""Reads the samples of a plan, and reads ahead what the next plan will most likely ask for.

Reading ahead is speculation (design 3.6): it is never the position. The plan alone says what is
trained, and a sample that was guessed wrong is thrown away unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from itertools import islice
from typing import Any

from ftruntime.protocol.ledger import Ledger, SampleRange, advance
from ftruntime.protocol.plan import Plan

from .sampler import LedgerSampler
from .source import SampleId, SampleSource, sample_ids


class StatefulLoader:
    """One replica's view of the corpus, used like torchdata's stateful loaders.

    Each round: ``read`` the ranges of the plan, ``speculate`` on the next, and ``follow`` the
    ledger of the state once the round is decided. A closed round needs no call at all.

    max_ahead:  the most samples kept that no plan has asked for yet; 0 turns reading ahead off
    executor:   where to read ahead; None reads within ``speculate``. It is not shut down here.
    """

    def __init__(
        self,
        source: SampleSource,
        sampler: LedgerSampler,
        *,
        max_ahead: int = 64,
        executor: Executor | None = None,
    ) -> None:
        self._source = source
        self._sampler = sampler
        self._max_ahead = max_ahead
        self._executor = executor
        self._ahead: dict[SampleId, Future[bytes]] = {}

    @property
    def ahead(self) -> frozenset[SampleId]:
        """The samples that have been read, or are being read, ahead of need."""
        return frozenset(self._ahead)

    def read(self, ranges: Sequence[SampleRange]) -> list[bytes]:
        """The tokens of every sample of ``ranges``, in order; as often as asked.

        Raises ProtocolError if the ranges are not those of a plan on the held state.
        """
        return [self._sample(i) for i in self._sampler.take(ranges)]

    def speculate(self, plan: Plan) -> None:
        """Read ahead as if ``plan`` will commit and its contributors will stay.

        Samples read ahead for another guess are thrown away, except those of this one.
        """
        ledger = advance(plan.base.ledger, plan.ranges_by_replica())
        guess = self._sampler.guess(ledger, [m.replica for m in plan.contributors])
        wanted = tuple(islice(sample_ids(guess), self._max_ahead))
        self._discard(keep=frozenset(wanted))
        for sample in wanted:
            if sample not in self._ahead:
                self._ahead[sample] = self._start(sample)

    def follow(self, ledger: Ledger) -> None:
        """The held state is now one with this ledger. What was read ahead stays until it is wrong."""
        self._sampler.follow(ledger)

    def close(self) -> None:
        """Throw away all that was read ahead."""
        self._discard(keep=frozenset())

    def state_dict(self) -> dict[str, Any]:
        """The position only: never what was read ahead."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position that any replica's ``state_dict`` gave."""
        self._sampler.load_state_dict(state)
        self.close()

    def _sample(self, sample: SampleId) -> bytes:
        ahead = self._ahead.pop(sample, None)
        # A guess that failed or was cancelled is only a guess: read again, and let that one fail.
        if ahead is None or ahead.cancel() or ahead.exception() is not None:
            return self._source.tokens(*sample)
        return ahead.result()

    def _start(self, sample: SampleId) -> Future[bytes]:
        if self._executor is not None:
            return self._executor.submit(self._source.tokens, *sample)
        done: Future[bytes] = Future()
        try:
            done.set_result(self._source.tokens(*sample))
        except Exception as error:
            done.set_exception(error)
        return done

    def _discard(self, keep: frozenset[SampleId]) -> None:
        for sample in self._ahead.keys() - keep:
            self._ahead.pop(sample).cancel()
