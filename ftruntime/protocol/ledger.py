"""The ledger: how far each stream of the data has been trained, and who trains what next.

The ledger holds no owners (design 3.1): who trains which samples is a pure, sticky function
of the ledger and the contributors, so every planner and every replay agrees on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .ids import Replica

Ledger = tuple[int, ...]  # cursor of each stream: samples 0 .. cursor-1 have been trained


class SampleRange(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Samples ``start`` .. ``start + count - 1`` of stream ``stream``."""

    stream: int
    start: int
    count: int


def assign(
    ledger: Ledger,
    contributors: Sequence[Replica],
    replicas: int,
    samples_per_step: int,
    max_lag: int,
) -> dict[Replica, tuple[SampleRange, ...]]:
    """Give each contributor ``samples_per_step`` samples of one stream.

    A stream belongs to replica ``stream % replicas``. One that lags by more than ``max_lag`` goes to
    whoever is there, the most lagging first; contributors that are left over take their own most
    lagging stream. So the leading cursor moves only in a step that serves every lagging stream, and
    no stream ever lags by more than ``max_lag + samples_per_step``, whoever comes and goes.
    """
    assert len(ledger) >= replicas, "more replicas than streams"
    present = sorted(contributors)
    own = {r: min(range(r, len(ledger), replicas), key=lambda s: ledger[s]) for r in present}
    given: dict[Replica, int] = {}
    for stream in _lagging(ledger, max_lag)[: len(present)]:
        owner = stream % replicas
        if owner not in own or owner in given:
            # Who is furthest ahead with its own streams can best leave them for a step.
            owner = max((r for r in present if r not in given), key=lambda r: (ledger[own[r]], -r))
        given[owner] = stream
    return {
        replica: (SampleRange(stream, ledger[stream], samples_per_step),)
        for replica, stream in sorted((own | given).items())
    }


def _lagging(ledger: Ledger, max_lag: int) -> list[int]:
    """Streams that lag by more than ``max_lag``, the most lagging first, then by number."""
    front = max(ledger)
    return sorted((s for s, c in enumerate(ledger) if front - c > max_lag), key=lambda s: ledger[s])


def advance(ledger: Ledger, ranges: dict[Replica, tuple[SampleRange, ...]]) -> Ledger:
    """The ledger after every range of ``ranges`` has been trained."""
    cursors = list(ledger)
    for owned in ranges.values():
        for r in owned:
            assert cursors[r.stream] == r.start, "a range must begin at its stream's cursor"
            cursors[r.stream] += r.count
    return tuple(cursors)
