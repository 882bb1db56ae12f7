"""Invariant 11, durability: a committed step is lost only when all of its holders are.

Judged when the chain is cut. Holders of a lost commit, found from what ranks did, not from what
records say: a live life all of whose ranks are at a lost state; and, though it may not have applied
it, the life that committed it and its right neighbour in the ring, for a committer votes only when
it has every bucket and its neighbour has acknowledged every chunk (design 3.3). A life counts only if no
fault was on it, nor on the store, since some time before the recovery began: whoever cannot reach
the store is rightly taken for lost. Besides, a rollback follows a recovering head; the records that
it is made of are true when it is made, and there is one of each live member in reach; it goes to the
best state that such a record offers; it says what it loses. Where a crash costs nothing, the commit
that follows it on the whole chain is the check.
"""

from __future__ import annotations

from .chain import Link
from .entries import Entry
from .invariant import Invariant
from .lives import Life
from .readable import short
from .world import HeadView, World


class Durability(Invariant):
    name = "durability"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.lost_steps = 0
        self._beginning = (0, world.config.lineage_root)

    def on_head(self, e: Entry, head: HeadView) -> None:
        world = self.world
        if head.rollback is not None:
            self._rollback(e, head)
        elif head.committed and world.crashes and not world.commits_after_crash:
            self.checked += 1
            if head.closed is None or head.closed["step_after"] <= world.chain.end.step:
                self._bad("a step is committed anew after a crash without a rollback", e, head)

    def _rollback(self, e: Entry, head: HeadView) -> None:
        rollback = head.rollback
        assert rollback is not None
        self.checked += 1
        lost = self.world.chain.beyond(rollback["to_step"])
        self.lost_steps += len(lost)
        if not self.world.recovering:
            self._bad("the chain is cut without a recovering head before", e, head)
        self._says(e, head, lost)
        for life in list(self.world.lives.values()):
            if life.crashed is None and self._reachable(life):
                self._holder(e, head, life, lost)
        self._asked(e, head)
        self._records(e, head)

    def _says(self, e: Entry, head: HeadView, lost: list[Link]) -> None:
        assert head.rollback is not None
        said = head.rollback["lost_steps"]
        steps = sorted(said) if isinstance(said, list) else said
        actual = [link.step for link in lost]
        if steps != actual and steps != len(actual):
            self._bad(f"the rollback says that it loses {said}, but it loses steps {actual}", e, head)

    def _reachable(self, life: Life) -> bool:
        return self.world.faults.clean_since(life.key[0], self._settled_since())

    def _settled_since(self) -> float:
        """Whoever has lived, and been in reach, since then must have a lease."""
        return self.world.recovering_since - self.world.config.stall_bound_s

    def _holder(self, e: Entry, head: HeadView, life: Life, lost: list[Link]) -> None:
        self.checked += 1
        gone = {link.lineage for link in lost}
        states = life.states()
        if not lost or not states:
            return
        if all(state is not None and state[1] in gone for state in states):
            held = min(state[0] for state in states if state is not None)
            self._bad(f"{life} is live and holds step {held}, which this rollback gives up", e, head, life)
            return
        for link in lost:
            if life.key in (link.by, link.next) and life.since <= link.t:
                message = f"{life} is live and had every bucket of round {link.round} when it was committed"
                self._bad(f"{message}; step {link.step} is given up", e, head, life)
                return

    def _asked(self, e: Entry, head: HeadView) -> None:
        assert head.rollback is not None
        asked = {(record[0], record[1]) for record in head.rollback["live"]}
        for life in self.world.lives.values():
            current = life.key[1] == self.world.registered[life.key[0]]
            settled = life.crashed is None and life.since < self._settled_since()
            if current and settled and life.key not in asked and self._reachable(life):
                self._bad(f"{life} is live, yet the rollback was made without its record", e, head, life)

    def _records(self, e: Entry, head: HeadView) -> None:
        assert head.rollback is not None
        best = 0
        for replica, incarnation, step, lineage in head.rollback["live"]:
            life = self.world.lives.get((replica, incarnation))
            if life is None or life.crashed is not None:
                continue
            self.checked += 1
            # A rank that has not said yet where it begins has begun where every process does.
            if {state or self._beginning for state in life.states()} != {(step, lineage)}:
                said = f"step {step} {short(lineage)}"
                self._bad(f"the record of {life} says {said}, which its ranks do not hold", e, head, life)
            link = self.world.chain.find(lineage)
            if link is not None and self._reachable(life):
                best = max(best, link.step)
        if head.rollback["to_step"] < best:
            message = f"rollback to step {head.rollback['to_step']}, though a live record offers step {best}"
            self._bad(message, e, head)

    def _bad(self, message: str, e: Entry, head: HeadView, life: Life | None = None) -> None:
        self.fail(message, e, round=head.round, members=(life.key,) if life else ())
