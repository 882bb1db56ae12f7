"""What the log has told so far: the one picture that all invariants look at.

It only keeps; it judges nothing. Of a head it is told after the invariants have looked at it, so
that they see what was before; of everything else before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .chain import Chain, Link
from .corrupt import Corrupt
from .entries import Config, Entry, Member
from .faults import Faults
from .lives import Life
from .rounds import Book, Books


class HeadView:
    """A head entry taken apart. ``end`` is the end of the chain that this head should leave.

    done:      the round that it decides, if that round was open and its book is known
    committed: the round was committed
    opens:     the book of the round that it opens, unless it is a recovering head
    target:    the link that it rolls back to, if it does and the link is on the chain
    """

    __slots__ = (
        "by", "closed", "committed", "done", "end", "entry", "epoch", "opens", "recovering",
        "rollback", "round", "t", "target", "version",
    )  # fmt: skip

    def __init__(self, entry: Entry, world: World) -> None:
        _, self.t, self.version, self.epoch, self.round, status, by, closed, plan, rollback = entry
        self.entry = entry
        self.recovering: bool = status == "recovering"
        self.by: Member | None = None if by is None else (by[0], by[1])
        self.closed: dict[str, Any] | None = closed
        self.rollback: dict[str, Any] | None = rollback
        self.committed = closed is not None and closed["outcome"] == "committed"
        self.done = world.open
        self.target = world.chain.find(rollback["to_lineage"]) if rollback else None
        self.opens: Book | None = None
        if plan is not None and not self.recovering:
            self.opens = Book(self.round, self.t, plan, world.config.ranks_per_replica, len(world.positions))
        self.end = (world.chain.end.step, world.chain.end.lineage)
        if closed is not None and self.committed:
            self.end = (closed["step_after"], closed["lineage_after"])
        if rollback:
            self.end = (rollback["to_step"], rollback["to_lineage"])


class World:
    """Config, lives, books of rounds, chain and faults. Memory: a few words a rank."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.positions: Sequence[int] = config.positions or range(config.ranks_per_replica)  # that are run
        self.chain = Chain(config.lineage_root)
        self.books = Books(config.ranks_per_replica)
        self.open: Book | None = None
        self.recovering = False
        self.recovering_since = 0.0
        self.faults = Faults()
        self.corrupt = Corrupt()
        self.lives: dict[Member, Life] = {}
        self.gone: dict[Member, Life] = {}
        self.registered = [0] * config.replicas
        self.epoch = config.store_epoch
        self.now = 0.0
        self.commits = 0
        self.crashes = 0
        self.rollbacks = 0
        self.commits_after_crash = 0
        self.ended = False
        self.final = False  # the job is over
        self.last_fault: float | None = None

    # -- lives -------------------------------------------------------------------------------

    def life(self, replica: int, incarnation: int) -> Life | None:
        """The life of this name; made at its first mention; None if it is over.

        Raises IndexError for a replica that the job does not have."""
        key = (replica, incarnation)
        found = self.lives.get(key)
        if found is None and key not in self.gone:
            if not 0 <= replica < self.config.replicas:
                raise IndexError(replica)
            found = Life(key, self.config.ranks_per_replica, self.positions, self.now)
            self.lives[key] = found
        return found

    def on_start(self, entry: Entry) -> None:
        self.life(entry[2], entry[3])

    def on_register(self, entry: Entry) -> None:
        self.life(entry[2], entry[3])
        self.registered[entry[2]] = max(self.registered[entry[2]], entry[3])

    def on_crash(self, entry: Entry) -> None:
        self.crashes += 1
        self.commits_after_crash = 0
        life = self.life(entry[2], entry[3])
        if life is not None and life.crashed is None:
            life.crashed = entry[1]

    def on_fenced(self, entry: Entry) -> None:
        life = self.life(entry[2], entry[3])
        if life is not None and life.fenced is None:
            life.fenced = entry[1]

    def on_exit(self, entry: Entry) -> None:
        life = self.life(entry[2], entry[3])
        if life is not None:
            life.exited = entry[1]
            self.gone[life.key] = self.lives.pop(life.key)
            life.forget()
        self.faults.life_over(entry[1], entry[2])
        self.corrupt.forget((entry[2], entry[3]))

    # -- faults and the end ---------------------------------------------------------------------

    def on_fault(self, entry: Entry) -> None:
        self.faults.begin(entry[1], entry[2])
        self.corrupt.plant(entry[2], self.registered)

    def on_heal(self, entry: Entry) -> None:
        self.faults.heal(entry[1], entry[2])

    def on_checkpoint(self, entry: Entry) -> None:
        self.chain.pin(entry[4])

    def on_refold(self, entry: Entry) -> None:
        self.positions = entry[2]
        if self.open is not None:
            self.open.reseat(entry[2])

    def on_end(self, entry: Entry) -> None:
        self.ended = True

    def on_final(self, entry: Entry) -> None:
        self.final = True

    def on_goes_on(self, entry: Entry) -> None:
        self.final = False

    def on_last_fault(self, entry: Entry) -> None:
        self.last_fault = entry[1]

    # -- heads -----------------------------------------------------------------------------------

    def adopt(self, head: HeadView) -> None:
        """Take over what ``head`` says, after everyone has looked at it."""
        if head.epoch > self.epoch:
            self.epoch = head.epoch
            self.faults.new_epoch(head.t)
        if head.done is not None:
            self._decide(head.done, head)
        if head.rollback is not None:
            self.rollbacks += 1
            step, lineage = head.end
            self.chain.cut(head.target or Link(step, lineage, 0, head.t))
        if head.recovering and not self.recovering:
            self.recovering_since = head.t
        self.recovering = head.recovering
        self.open = head.opens
        if head.opens is not None:
            self.books.add(head.opens)

    def _decide(self, book: Book, head: HeadView) -> None:
        book.outcome = "committed" if head.committed else "closed"
        if head.committed and head.closed is not None:
            book.step_after, book.lineage_after = head.closed["step_after"], head.closed["lineage_after"]
            book.by = head.by
            neighbour = self._right_of(head.by, book)
            self.chain.extend(
                Link(book.step_after, book.lineage_after, book.round, head.t, head.by, neighbour)
            )
            self.commits += 1
            self.commits_after_crash += 1
        self.books.decided(book)

    def _right_of(self, by: Member | None, book: Book) -> Member | None:
        if by is None or by not in book.index:
            return None
        place = book.index[by] + 1
        if place == len(book.contributors) and self.config.catch_up == "zeros" and book.catchers:
            return None  # its neighbour sends zeros and may hold another state
        neighbour = book.contributors[place % len(book.contributors)]
        return None if neighbour == by else neighbour

    # -- who is well -------------------------------------------------------------------------------

    def well(self) -> list[Life]:
        """Lives that run and that no fault touches now."""
        faults = self.faults
        return [v for v in self.lives.values() if v.crashed is None and not faults.on(v.key[0])]

    def enough(self) -> bool:
        """Whether the job should make progress: not over, enough replicas well, the store there."""
        replicas = {life.key[0] for life in self.well()}
        return not self.final and len(replicas) >= self.config.min_replicas and not self.faults.store_away()
