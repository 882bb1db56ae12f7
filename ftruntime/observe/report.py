"""What a leader, or a launcher, tells the store about itself for people to look at: small, and not for ever.

Nothing in the protocol reads it. A store keeps the newest of each source in memory only, and takes no more
than ``MOST_BYTES`` of one and ``MOST_SOURCES`` in all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ftruntime.protocol.ids import Incarnation, Lineage, Replica, Round, Step

MOST_BYTES: Final = 8 << 10
MOST_SOURCES: Final = 16_384
FAILURES: Final = 8  # that a source remembers
WORDS: Final = 240  # characters of a cause


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Something that went wrong, as its observer saw it.

    time:     Unix seconds
    culprit:  the replica held responsible, -1 where it is nobody's or the observer's own fault
    """

    time: float
    round: Round
    culprit: Replica
    cause: str


class Report(msgspec.Struct, frozen=True, array_like=True):
    """One source's newest word.

    source:   "leader" or "launcher"; with ``replica`` it is the key
    time:     Unix seconds at which it was made
    phase:    what the replica is at, by the protocol's own names; a launcher's: how the processes fare
    staged, ranges:  of the state that is being fetched: ranges that are there, and of how many
    step_seconds:    an undisturbed step, as far as it is known
    lost:     seconds by phase of a stall (``stalls.PHASES``)
    """

    source: str
    replica: Replica
    incarnation: Incarnation
    time: float
    phase: str
    step: Step = 0
    lineage: Lineage = ""
    round: Round = 0
    staged: int = 0
    ranges: int = 0
    step_seconds: float = 0.0
    lost: dict[str, float] = {}
    failures: tuple[Failure, ...] = ()

    @property
    def key(self) -> tuple[str, Replica]:
        return self.source, self.replica


def short(cause: str) -> str:
    """One line of ``cause``, not too long."""
    line = " ".join(cause.split())
    return line if len(line) <= WORDS else line[: WORDS - 1] + "…"


class Board:
    """The newest report of each source; what is too large or too much is not taken."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, Replica], Report] = {}

    def put(self, report: Report) -> bool:
        """Whether it was taken."""
        known = report.key in self._reports or len(self._reports) < MOST_SOURCES
        small = len(msgspec.msgpack.encode(report)) <= MOST_BYTES
        if known and small:
            self._reports[report.key] = report
        return known and small

    def all(self) -> tuple[Report, ...]:
        return tuple(self._reports[key] for key in sorted(self._reports))
