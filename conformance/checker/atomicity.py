"""Invariant 2, atomicity: between steps, all ranks of a live replica have one (step, lineage).

Decisions come down a tree, so for a moment one rank is a decision ahead of another; "between
steps" must not forbid that. What it forbids, precisely:

- All ranks of a life walk the same row of states in the same order. A rank whose k-th state is not
  the k-th state of the others has left them, however briefly.
- No rank applies a round that its replica contributes to while another rank is still behind: to
  contribute, every rank has voted for the round, and a rank votes only on the state of that round.
- Device and history agree: the state that a rank computes on, or applies to, is the last one that
  it reported. All ranks of a life compute one round on one state.
- Where other positions are run from some time on (``refold``), all ranks of the life hold one state then,
  and those that were not run before hold the one that the life goes to next.
- At the end no rank that the run calls healthy is elsewhere than the others of its life.
"""

from __future__ import annotations

from .entries import Entry
from .invariant import Invariant
from .lives import MAX_SPREAD, Life, State
from .readable import short
from .rounds import Book


class Atomicity(Invariant):
    name = "atomicity"

    def on_computed(self, e: Entry, life: Life, book: Book | None) -> None:
        self.checked += 1
        at = life.index[e[4]] - life.offset
        if life.strays or at < 0 or life.walk[at][1] != e[6]:
            self._holds(e, life, e[6])
        round = e[5]
        if round == life.base_round:
            if life.base != e[6]:
                what = f"{life} computes round {round} on {short(life.base)} and on {short(e[6])}"
                self.fail(what, e, round=round, members=(life.key,))
        elif round > life.base_round:
            life.base_round = round
            life.base = e[6]

    def on_reused(self, e: Entry, life: Life, book: Book | None) -> None:
        self.checked += 1
        if book is not None:
            self._holds(e, life, book.base_lineage)

    def on_applied(self, e: Entry, life: Life, book: Book | None) -> None:
        at = life.index[e[4]] - life.offset
        if life.strays or at < 0 or life.walk[at][1] != e[7]:
            self._holds(e, life, e[7])
        if e[6] and life.at_top != life.width and life.leads(e[4]):
            behind = life.width - life.at_top
            message = f"{life} rank {e[4]} applies round {e[5]} while {behind} of its replica's ranks lag"
            self.fail(message, e, round=e[5], members=(life.key,))
        self._move(e, life, (e[13], e[14]))

    def on_installed(self, e: Entry, life: Life) -> None:
        self._move(e, life, (e[5], e[6]))

    def on_initial(self, e: Entry, life: Life) -> None:
        self._move(e, life, (e[5], e[6]))

    def _holds(self, e: Entry, life: Life, lineage: str) -> None:
        held = life.state_of(e[4])
        if held is None or held[1] != lineage:
            last = "nothing" if held is None else f"step {held[0]} {short(held[1])}"
            message = f"{life} rank {e[4]} works on {short(lineage)}, but last reported to hold {last}"
            self.fail(message, e, members=(life.key,))

    def _move(self, e: Entry, life: Life, state: State) -> None:
        self.checked += 1
        expected = life.move(e[4], state)
        if expected is not None:
            message = (
                f"{life} rank {e[4]} goes to step {state[0]} {short(state[1])} where its replica "
                f"went to step {expected[0]} {short(expected[1])}"
            )
            self.fail(message, e, members=(life.key,))
        elif len(life.walk) == MAX_SPREAD:
            self.fail(f"{life} has a rank that is {MAX_SPREAD} states behind", e, members=(life.key,))

    def on_refold(self, e: Entry) -> None:
        for replica, incarnation, step, lineage, fresh in e[4]:
            life = self.world.life(replica, incarnation)
            self.checked += 1
            if life is None or life.level is None:
                self.fail(f"{replica}.{incarnation} has ranks that differ when others begin to be run", e)
                continue
            life.reseat(e[2])
            for position, _ in fresh:
                self._stands(e, life, position, (step, lineage))

    def _stands(self, e: Entry, life: Life, position: int, state: State) -> None:
        self.checked += 1
        if life.move(position, state) is not None:
            self.fail(f"{life} rank {position} begins to be run at another state", e, members=(life.key,))

    def on_end(self, e: Entry) -> None:
        for replica, incarnation, *_, healthy in e[2]:
            life = self.world.lives.get((replica, incarnation))
            if not healthy or life is None:
                continue
            self.checked += 1
            if life.strays:
                ranks = ", ".join(str(p) for p in sorted(life.strays)[:5])
                message = f"{life} ends with ranks that hold other states than the rest: {ranks}"
                self.fail(message, e, members=(life.key,))
