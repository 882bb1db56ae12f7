"""Invariant 9, fencing: nothing stale has an effect.

From the moment that the head has accepted (replica, k), an earlier life (replica, j < k) changes no
head, and no plan made from then on counts on it: neither as contributor nor as catcher.
Incarnations only grow. Whoever made a commit is a contributor of its plan. A write is refused only to
a life that has been succeeded, and that life then ends, without being started again, and does nothing after.
(A round that was planned before the register may still commit with the old life's gradients in
its sum: they are the gradients of that plan.)
"""

from __future__ import annotations

from collections.abc import Iterator

from .entries import Entry, Member
from .invariant import Invariant
from .readable import member
from .rounds import Book
from .world import HeadView, World


class Fencing(Invariant):
    name = "fencing"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._latest = [0] * world.config.replicas

    def on_register(self, e: Entry) -> None:
        replica, incarnation = e[2], e[3]
        self.checked += 1
        if incarnation <= self._latest[replica]:
            message = f"{replica}.{incarnation} is registered after {replica}.{self._latest[replica]}"
            self.fail(message, e, members=((replica, incarnation),))
        self._latest[replica] = max(incarnation, self._latest[replica])

    def on_head(self, e: Entry, head: HeadView) -> None:
        if head.by is not None:
            self.checked += 1
            if head.by[1] != self._latest[head.by[0]]:
                message = (
                    f"{member(head.by)} changes the head, though {self._successor(head.by)} is registered"
                )
                self.fail(message, e, round=head.round, members=(head.by,))
        if head.committed and head.done is not None and head.by not in head.done.index:
            who = member(head.by) if head.by else "nobody"
            self.fail(
                f"{who} commits round {head.done.round} but is no contributor of it", e, round=head.round
            )
        if head.opens is not None:
            self._planned(e, head, head.opens)

    def _planned(self, e: Entry, head: HeadView, book: Book) -> None:
        for who, role in self._named(book):
            self.checked += 1
            if who[1] != self._latest[who[0]]:
                message = f"round {head.round} is planned with {role} {member(who)}, though"
                message = f"{message} {self._successor(who)} is registered"
                self.fail(message, e, round=head.round, members=(who,))

    def _named(self, book: Book) -> Iterator[tuple[Member, str]]:
        for contributor in book.contributors:
            yield contributor, "contributor"
        for catcher in book.catchers:
            yield (catcher[0], catcher[1]), "catcher"

    def _stale(self, who: Member) -> bool:
        return who[1] < self._latest[who[0]]

    def _successor(self, who: Member) -> str:
        return f"{who[0]}.{self._latest[who[0]]}"

    def on_fenced(self, e: Entry) -> None:
        self.checked += 1
        if not self._stale((e[2], e[3])):
            self.fail(
                f"a write of {e[2]}.{e[3]} is refused, though it is current", e, members=((e[2], e[3]),)
            )

    def on_exit(self, e: Entry) -> None:
        life = self.world.gone.get((e[2], e[3]))
        if life is not None and life.fenced is not None:
            self.checked += 1
            if e[5] and life.crashed is None:
                self.fail(f"{life} was fenced, yet is to start again", e, members=(life.key,))

    def ghost(self, e: Entry) -> None:
        """An entry of a life that is over."""
        self.fail(f"{e[2]}.{e[3]} acts after it has exited", e, members=((e[2], e[3]),))

    def on_end(self, e: Entry) -> None:
        for life in self.world.lives.values():
            if life.fenced is not None:
                self.checked += 1
                if e[1] - life.fenced > self.world.config.progress_bound_s:
                    since = e[1] - life.fenced
                    self.fail(f"{life} was fenced {since:.3f} s ago and still runs", e, members=(life.key,))
