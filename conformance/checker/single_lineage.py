"""Invariant 3, single lineage: one commit a step, and no state but the chain's is worked on.

- Heads go forward in (epoch, version), and rounds in number. A round is decided at most once: only the
  round that is open can be committed, only while running, and only a training round.
- A commit extends the end of the chain by one step, with a lineage that no commit had before. Only a
  recorded rollback shortens the chain, and only to a state on it. Every plan builds on the end of the
  chain. Since lineages never come twice, a state that was cut can never be a base again.
- A rank computes round r only on the base of r's plan; it applies r only after the head that committed
  r, and gets exactly that commit's state; it installs only states that were committed once.
- Once the job is over, nothing is committed or rolled back unless it is asked to go on; whoever ends well,
  ends with the last state.
"""

from __future__ import annotations

from .entries import Entry
from .invariant import Invariant
from .lives import Life
from .readable import short
from .rounds import Book
from .world import HeadView, World


class SingleLineage(Invariant):
    name = "single_lineage"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._order = (-1, -1)
        self._round = -1
        self._final: tuple[int, str] | None = None

    # -- the heads ----------------------------------------------------------------------------

    def on_head(self, e: Entry, head: HeadView) -> None:
        self.checked += 1
        order = (head.epoch, head.version)
        if order <= self._order:
            self._bad(f"head v{head.version} of epoch {head.epoch} is not after v{self._order[1]}", e, head)
        if head.round <= self._round:
            self._bad(f"round {head.round} is opened after round {self._round}", e, head)
        if self._final is not None and (head.committed or head.rollback is not None):
            self._bad(f"the job was over at step {self._final[0]}, and its chain changes", e, head)
        self._order, self._round = order, head.round
        if head.committed:
            self._commit(e, head)
        if head.rollback is not None:
            self._rollback(e, head)
        if head.opens is not None and (head.opens.base_step, head.opens.base_lineage) != head.end:
            base = f"step {head.opens.base_step} {short(head.opens.base_lineage)}"
            end = f"step {head.end[0]} {short(head.end[1])}"
            self._bad(f"the plan of round {head.round} builds on {base}; the chain ends with {end}", e, head)

    def _commit(self, e: Entry, head: HeadView) -> None:
        closed, book, end = head.closed, head.done, self.world.chain.end
        assert closed is not None
        if book is None or closed["round"] != book.round:
            self._bad(f"round {closed['round']} is committed, but it was not open", e, head)
        elif book.kind != "train" or not book.contributors:
            self._bad(f"round {book.round} is committed, but it trained nothing", e, head)
        if closed["step_after"] != end.step + 1:
            self._bad(f"step {closed['step_after']} is committed after step {end.step}", e, head)
        if self.world.chain.was_committed(closed["lineage_after"]):
            self._bad(f"{short(closed['lineage_after'])} is committed a second time", e, head)

    def _rollback(self, e: Entry, head: HeadView) -> None:
        target, rollback, end = head.target, head.rollback, self.world.chain.end
        assert rollback is not None
        if target is None or target.step != rollback["to_step"]:
            state = f"step {rollback['to_step']} {short(rollback['to_lineage'])}"
            self._bad(f"rollback to {state}, which is not on the chain", e, head)
        if rollback["from_step"] != end.step:
            self._bad(f"rollback from step {rollback['from_step']}, the chain ends at {end.step}", e, head)

    def _bad(self, message: str, e: Entry, head: HeadView) -> None:
        self.fail(message, e, round=head.round, members=(head.by,) if head.by else ())

    def on_final(self, e: Entry) -> None:
        self.checked += 1
        self._final, end = (e[2], e[3]), self.world.chain.end
        if self._final != (end.step, end.lineage):
            self.fail(f"the job ends with step {e[2]} {short(e[3])}, which is not the end of the chain", e)

    def on_goes_on(self, e: Entry) -> None:
        self._final = None

    def on_over(self, e: Entry, life: Life) -> None:
        self.checked += 1
        if (e[5], e[6]) != self._final:
            message = f"{life} rank {e[4]} ends well with step {e[5]} {short(e[6])}, not with the last state"
            self.fail(message, e, members=(life.key,))

    # -- the ranks ------------------------------------------------------------------------------

    def on_computed(self, e: Entry, life: Life, book: Book | None) -> None:
        self.checked += 1
        if book is None:
            self._unknown(e, life)
        elif e[6] != book.base_lineage:
            message = f"{life} rank {e[4]} computes round {e[5]} on {short(e[6])}, not on the plan's base"
            self.fail(message, e, round=e[5], members=(life.key,))

    def on_reused(self, e: Entry, life: Life, book: Book | None) -> None:
        self.checked += 1
        if book is None:
            self._unknown(e, life)

    def on_applied(self, e: Entry, life: Life, book: Book | None) -> None:
        self.checked += 1
        if book is None:
            self._unknown(e, life)
        elif e[14] != book.lineage_after or e[13] != book.step_after or e[7] != book.base_lineage:
            self._misapplied(e, life, book)

    def _misapplied(self, e: Entry, life: Life, book: Book) -> None:
        if book.outcome != "committed":
            fate = "closed" if book.outcome else "still open"
            message = f"{life} rank {e[4]} applies round {book.round}, which is {fate}"
        else:
            message = (
                f"{life} rank {e[4]} applies round {book.round} from {short(e[7])} to step {e[13]} "
                f"{short(e[14])}; committed was {short(book.base_lineage)} to step {book.step_after} "
                f"{short(book.lineage_after)}"
            )
        self.fail(message, e, round=book.round, members=(life.key,))

    def _unknown(self, e: Entry, life: Life) -> None:
        if not self.world.books.forgotten(e[5]):
            message = f"{life} rank {e[4]} takes part in round {e[5]}, which no head has opened"
            self.fail(message, e, round=e[5], members=(life.key,))

    def on_installed(self, e: Entry, life: Life) -> None:
        self._state(e, life.key, e[5], e[6])

    def on_initial(self, e: Entry, life: Life) -> None:
        self._state(e, life.key, e[5], e[6])

    def on_shard(self, e: Entry, life: Life) -> None:
        self._state(e, life.key, e[6], e[7])

    def on_refold(self, e: Entry) -> None:
        for replica, incarnation, step, lineage, _ in e[4]:
            self._state(e, (replica, incarnation), step, lineage)

    def on_checkpoint(self, e: Entry) -> None:
        self.checked += 1
        link = self.world.chain.find(e[4])
        if link is None or link.step != e[3]:
            self.fail(f"checkpoint {e[2]} of step {e[3]} {short(e[4])} is not of a state on the chain", e)

    def on_end(self, e: Entry) -> None:
        for replica, incarnation, step, lineage, healthy in e[2]:
            if healthy:
                self._state(e, (replica, incarnation), step, lineage)

    def _state(self, e: Entry, member: tuple[int, int], step: int, lineage: str) -> None:
        self.checked += 1
        chain = self.world.chain
        if not chain.was_committed(lineage) or chain.known.get(lineage, step) != step:
            message = f"{member[0]}.{member[1]} holds step {step} {short(lineage)}, which was never committed"
            self.fail(message, e, members=(member,))
