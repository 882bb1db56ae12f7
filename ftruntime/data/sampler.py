"""Which samples come next. The ledger decides, and this only obeys it (design 3.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftruntime.protocol.errors import ProtocolError
from ftruntime.protocol.ids import Replica
from ftruntime.protocol.ledger import Ledger, SampleRange, assign

from .source import SampleId, sample_ids


class LedgerSampler:
    """Turns the ranges of a plan into sample ids, for the state that this replica holds.

    ``ledger`` is the position, all of it: the cursor of each stream in the held state. Taking
    samples does not move it, because a round may be closed and tried again. Only ``follow`` does.

    replicas, samples_per_step, max_stream_lag: as in the job's configuration; used by ``guess``.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        replica: Replica,
        replicas: int,
        samples_per_step: int,
        max_stream_lag: int,
    ) -> None:
        self.replica = replica
        self._replicas = replicas
        self._samples_per_step = samples_per_step
        self._max_stream_lag = max_stream_lag
        self._ledger: Ledger = tuple(ledger)

    @property
    def ledger(self) -> Ledger:
        """The cursor of each stream: samples 0 .. cursor-1 are in the held state."""
        return self._ledger

    def take(self, ranges: Sequence[SampleRange]) -> tuple[SampleId, ...]:
        """The samples of ``ranges``, in order.

        Raises ProtocolError if a range does not begin at its stream's cursor: to train it would
        skip samples or train some twice.
        """
        cursors: dict[int, int] = {}
        for r in ranges:
            if not 0 <= r.stream < len(self._ledger):
                raise ProtocolError(f"range names stream {r.stream}, the ledger has {len(self._ledger)}")
            cursor = cursors.get(r.stream, self._ledger[r.stream])
            if r.start != cursor:
                raise ProtocolError(f"range of stream {r.stream} begins at {r.start}, its cursor is {cursor}")
            cursors[r.stream] = cursor + r.count
        return tuple(sample_ids(ranges))

    def follow(self, ledger: Ledger) -> None:
        """The held state is now one with this ledger: after a commit, an install or a rollback.

        Cursors may go either way. The number of streams is fixed for a job: ProtocolError.
        """
        if len(ledger) != len(self._ledger):
            raise ProtocolError(f"ledger has {len(ledger)} streams, this job has {len(self._ledger)}")
        self._ledger = tuple(ledger)

    def guess(self, ledger: Ledger, contributors: Sequence[Replica]) -> tuple[SampleRange, ...]:
        """What a plan on ``ledger`` with these contributors would give this replica; () for none."""
        if self.replica not in contributors:
            return ()
        owned = assign(ledger, contributors, self._replicas, self._samples_per_step, self._max_stream_lag)
        return owned[self.replica]

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain data that JSON can carry."""
        return {"ledger": list(self._ledger)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position that any replica's ``state_dict`` gave."""
        self.follow(tuple(state["ledger"]))
