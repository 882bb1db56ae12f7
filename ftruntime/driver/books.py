"""The entries of the event log that one real rank writes, from what its device did (design 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ftruntime.protocol import effects as f
from ftruntime.protocol.ids import Lineage, Round, Step
from ftruntime.protocol.plan import Plan
from ftruntime.protocol.rank import Rank

from .host import Host
from .job import Settings
from .journal import Journal
from .memory import Bytes
from .worker import Work


class Books:
    """``source``: where the staged state comes from."""

    def __init__(self, settings: Settings, host: Host, rank: Rank) -> None:
        self._host, self._rank, self._position = host, rank, settings.position
        self._audit = settings.audit
        self._log = Journal(settings.journal) if settings.journal is not None else None
        self.source = ""

    def _write(self, kind: str, *fields: object) -> None:
        if self._log is not None:
            self._log([kind, self._log.now(), *self._who(), *fields])

    def _who(self) -> tuple[int, int, int]:
        me = self._rank.member.me
        return me.replica, me.incarnation, self._position

    def note(self, note: f.Note) -> None:
        if note.what == "registered" and self._log is not None:
            replica, life, _ = self._who()
            first = "first" if life == 1 else "restarted"
            self._log(["start", self._log.now(), replica, life, first])

    def initial(self) -> None:
        self._write("initial", self._host.step, self._host.lineage, self._host.digest)

    def computed(self, work: Work) -> None:
        """Every gradient of ``work`` is there, and none has left yet but those of earlier buckets."""
        if self._log is not None:
            state = (work.base, self._host.digest)
            self._write(
                "computed", work.round, *state, _rows(work), work.corpus_digest, self._lists(work.grads)
            )

    def reused(self, round: Round) -> None:
        work = self._host.work
        if self._log is not None and work is not None:
            self._write("reused", round, _rows(work), self._lists(work.grads))

    def applied(
        self, plan: Plan, scalars: Sequence[float], base: tuple[Lineage, int], sums: Sequence[Bytes]
    ) -> Callable[[], None]:
        """What to write once the device holds the new state."""
        if self._log is None:
            return _nothing
        numbers = (list(scalars), plan.divisor, plan.lr_factor)
        contributing = self._rank.member.me in plan.contributors
        lists = self._lists(sums)

        def written() -> None:
            after = (self._host.step, self._host.lineage, self._host.digest)
            self._write("applied", plan.round, contributing, *base, lists, *numbers, *after)
            self._resources()

        return written

    def dropped(self, round: Round) -> None:
        self._write("dropped", round)

    def installed(self, step: Step, lineage: Lineage) -> None:
        self._write("installed", step, lineage, self._host.digest, self.source)

    def over(self, step: Step, lineage: Lineage) -> None:
        self._write("over", step, lineage)

    def _resources(self) -> None:
        counters = {**self._host.resources(), "shares": len(self._rank.member.shares)}
        self._write("resources", self._host.step, 1, counters)

    def shard(self, name: str, step: Step, lineage: Lineage) -> Callable[[], None]:
        """What to write once the shard of checkpoint ``name`` is durable: of the state that is held now."""
        digest = self._host.digest
        return lambda: self._write("shard", name, step, lineage, digest)

    def _lists(self, buffers: Sequence[Bytes]) -> list[list[float]]:
        return self._host.in_lists(buffers) if self._audit else []

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def _rows(work: Work) -> list[list[int]]:
    return [[r.stream, r.start, r.count] for r in work.ranges]


def _nothing() -> None:
    """There is no log."""
