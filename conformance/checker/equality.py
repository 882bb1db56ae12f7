"""Invariant 4, equality: equal lineage at equal position means equal bits.

Every digest of a state that the log carries is held against the first one seen for the same
(lineage, position), over all replicas and lives: initial states, states computed on, states applied
to and applied, installed states, shards of checkpoints. In fidelity ``fingerprint`` the states of
step 0 are held against their formula as well. The table covers the newest lineages; step 0 and
recorded checkpoints stay.
"""

from __future__ import annotations

from . import fingerprint
from .entries import Entry
from .invariant import Invariant
from .lives import Life
from .readable import short
from .rounds import Book
from .world import World

PINNED = 8  # recorded checkpoints whose digests are kept


class _Shards:
    """Which shards of the newest checkpoints were written, and by whom: the last to write is who counts."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[tuple[int, int], set[int], int]] = {}

    def add(self, e: Entry, width: int) -> None:
        """A shard of ``width`` was written."""
        writer, name = (e[2], e[3]), e[5]
        known = self._written.get(name)
        if known is None or known[0] != writer:
            known = self._written[name] = (writer, set(), width)
        known[1].add(e[4])
        if len(self._written) > PINNED:
            del self._written[next(iter(self._written))]

    def missing(self, name: str) -> int | str:
        """How many shards of checkpoint ``name`` were not written."""
        known = self._written.get(name)
        return "all" if known is None else known[2] - len(known[1])


class Equality(Invariant):
    name = "equality"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._width = world.config.ranks_per_replica
        self._window = max(8, min(512, 131_072 // self._width))
        self._tables: dict[str, list[int | None]] = {}
        root: list[int | None] = [None] * self._width
        if world.config.fidelity == "fingerprint":
            root = [fingerprint.initial(world.config.seed, p) for p in range(self._width)]
        self._pinned: dict[str, list[int | None]] = {world.config.lineage_root: root}
        self._shards = _Shards()

    def on_computed(self, e: Entry, life: Life, book: Book | None) -> None:
        table = self._tables.get(e[6])
        if table is not None and table[e[4]] == e[7]:
            self.checked += 1
        else:
            self._same(e, e[4], e[6], e[7])

    def on_applied(self, e: Entry, life: Life, book: Book | None) -> None:
        position, tables = e[4], self._tables
        table = tables.get(e[7])
        if table is not None and table[position] == e[8]:
            self.checked += 1
        else:
            self._same(e, position, e[7], e[8])
        table = tables.get(e[14])
        if table is not None and table[position] == e[15]:
            self.checked += 1
        else:
            self._same(e, position, e[14], e[15])

    def on_installed(self, e: Entry, life: Life) -> None:
        self._same(e, e[4], e[6], e[7])

    def on_initial(self, e: Entry, life: Life) -> None:
        self._same(e, e[4], e[6], e[7])

    def on_refold(self, e: Entry) -> None:
        for *_, lineage, fresh in e[4]:
            for position, digest in fresh:
                self._same(e, position, lineage, digest)

    def on_shard(self, e: Entry, life: Life) -> None:
        self._same(e, e[4], e[7], e[8])
        self._shards.add(e, len(self.world.positions))

    def on_checkpoint(self, e: Entry) -> None:
        missing = self._shards.missing(e[2])
        if missing:
            self.fail(f"checkpoint {e[2]} lacks {missing} shards", e)
            return
        if e[4] in self._tables:
            self._pinned[e[4]] = self._tables.pop(e[4])
        while len(self._pinned) > PINNED + 1:
            root = self.world.config.lineage_root
            del self._pinned[next(name for name in self._pinned if name != root)]

    def _same(self, e: Entry, position: int, lineage: str, digest: int) -> None:
        table = self._tables.get(lineage)
        if table is None:
            table = self._pinned.get(lineage) or self._table(lineage)
        first = table[position]
        if first is None:
            table[position] = digest
            return
        self.checked += 1
        if first != digest:
            message = f"two states of lineage {short(lineage)} at position {position}: {first} and {digest}"
            self.fail(message, e, members=((e[2], e[3]),) if isinstance(e[2], int) else ())

    def _table(self, lineage: str) -> list[int | None]:
        self._tables[lineage] = [None] * self._width
        if len(self._tables) > self._window:
            del self._tables[next(iter(self._tables))]
        return self._tables[lineage]
