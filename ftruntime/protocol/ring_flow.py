"""Slots and credits of one rank's ring, as a handful of integers (design 3.4).

Two cursors run over the numbers of ``geometry``: ``consumed`` over what the left neighbour sends and
``filled`` over what goes to the right one. Both move strictly in order:

* *give*: an own share (step 0) may be filled once its bucket is ready and a send slot is free;
* *take*: a received chunk is consumed together with the give that it becomes (number + p), when that give
  is next and a slot is free; at the last step of a piece it becomes nothing and needs no slot.

A send slot is free when the chunk C numbers before is acknowledged. With C == 1 that is too late (below), and
the end of the transfer itself, ``Sent``, frees it. A filled slot is transferred when fewer than
min(congestion window, C) chunks are posted and unacknowledged. Consumption is acknowledged every
A = max(1, C // 2) chunks, at the end, and at once for a chunk with ``push``, which the sender sets when
the chunk fills its window.

Why this cannot deadlock. Let c_i, f_i be the cursors of member i, all buckets ready, every message
delivered, nobody able to move, and i a member with the smallest c_i < total. Always c_i <= f_i; they are
equal only before the own shares of a piece; and f_i = c_i + p while a piece is being forwarded, with p <= A.
The acks that i has seen lag behind c_{i+1} >= c_i by less than A. Take C >= 2, so that 2A <= C.

1. The chunk c_i is here. If it becomes nothing it can be taken. Otherwise f_i <= c_i + p: the missing own
   shares or the give need slots up to c_i + p + (A - 1) < c_i + C, which are free. Contradiction.
2. It is not, and the left neighbour j = i-1 has filled it but may not post it: its window is full, while
   everything posted is consumed (posted_j = c_i). The chunk that filled the window had ``push``, so it is
   acknowledged and the window is not full. (One that shrank was posted again: ``_rewind``.) Contradiction.
3. It is not filled: f_j = c_i <= c_j <= f_j, so j has c_j = f_j and stands before the own shares of a
   piece, with at most A - 1 < C unacknowledged chunks: a slot is free. Contradiction.

With C == 1 every p and A is 1 and acks are exact. A slot that waited for an ack would deadlock at once: all
fill chunk 0, and all need its slot to take the chunk 0 that they got. Freed by ``Sent``, it is busy only with
a chunk that is filled and unposted, while an earlier one is unacknowledged: c_{i+1} < c_i. Contradiction.
"""

from __future__ import annotations

from typing import Final

from .congestion import Window
from .effects import Effect, Post, Send
from .geometry import Geometry
from .ids import Address, MemberId, Position, Round
from .messages import Ack

FLOW_SLOTS: Final = (
    "_ack_at",
    "_ack_every",
    "_credit_end",
    "_fill_piece",
    "_forward_end",
    "_highest",
    "_own_end",
    "_own_first",
    "_per_step",
    "_push_at",
    "_slot_end",
    "_take_piece",
    "_to_left",
    "_to_right",
    "acked",
    "acknowledged",
    "consumed",
    "contributing",
    "filled",
    "freed",
    "geometry",
    "joined",
    "left",
    "left_up",
    "me",
    "posted",
    "ready",
    "received",
    "right",
    "right_up",
    "round",
    "sealed",
    "total",
    "window",
)


class Flow:
    """Counters of one rank in one round, and the moves that they allow. Copied by ``copy.copy``.

    received, consumed:  chunks 0 .. n-1 arrived from the left neighbour / used up
    acknowledged:        what the left neighbour has been told of ``consumed``
    filled, posted:      chunks 0 .. n-1 got into their send slots / went to the right neighbour
    acked, freed:        chunks 0 .. n-1 are consumed by it / no longer need their send slots
    """

    __slots__ = FLOW_SLOTS

    def __init__(
        self,
        geometry: Geometry,
        me: MemberId,
        left: MemberId,
        right: MemberId,
        position: Position,
        round: Round,
        window: Window,
        contributing: bool,
    ) -> None:
        assert window.limit == geometry.slots, "the window must be bounded by the slots"
        self.geometry, self.total, self.round = geometry, geometry.total, round
        self.me, self.left, self.right = me, left, right
        self._to_left: Address = (left.replica, position)
        self._to_right: Address = (right.replica, position)
        self.window, self.contributing = window, contributing
        self.received = self.consumed = self.acknowledged = 0
        self.filled = self.posted = self.acked = self.freed = self._highest = 0
        self.ready = 0  # buckets 0 .. n-1 have their local gradient
        self.joined = self.sealed = False
        self.left_up = self.right_up = True  # False: a fresh connection is being made
        self._push_at = 0
        self._ack_every = self._ack_at = max(1, geometry.slots // 2)
        self._slot_end, self._credit_end = geometry.slots, 0
        self._take_piece = self._fill_piece = 0
        self._enter_take_piece()
        self._enter_fill_piece()

    @property
    def in_flight(self) -> int:
        """Chunks posted and not acknowledged: at most C."""
        return self.posted - self.acked

    @property
    def complete(self) -> bool:
        """Every bucket of the round is reduced here."""
        return self.consumed == self.total and self.ready == len(self.geometry.buckets)

    @property
    def acked_all(self) -> bool:
        """The right neighbour has consumed every chunk."""
        return self.acked == self.total

    @property
    def buckets_complete(self) -> int:
        """Buckets 0 .. n-1 are reduced here. O(buckets)."""
        if self.geometry.members == 1:
            return self.ready
        return sum(end <= self.consumed for end in self.geometry.bucket_end[: self.ready])

    @property
    def finished_count(self) -> int:
        """Finished chunks 0 .. n-1, in the order of finishing, are in the reduced buffer."""
        if self.geometry.members == 1:
            return self.geometry.finished_end[self.ready - 1] if self.ready else 0
        if self._take_piece == len(self.geometry.pieces):
            return self.geometry.finished_total
        piece = self.geometry.pieces[self._take_piece]
        sums = piece.first + (self.geometry.members - 2) * piece.per_step
        return piece.finished + max(0, self.consumed - sums)

    # -- the moves ---------------------------------------------------------------------------

    def _flow(self, out: list[Effect]) -> None:
        """Do everything that slots, credits and received chunks allow. The general, slow way."""
        if not self.sealed:
            self._fill_and_take(out)
        self._post_filled(out)
        if self.consumed >= self._ack_at or self._push_at > self.acknowledged or self.consumed == self.total:
            self._ack_if_due(out)
        assert 0 <= self.posted - self.acked <= self.geometry.slots, "more in flight than slots"
        assert self.posted <= self.filled <= self.freed + self.geometry.slots, "a slot was filled twice"
        assert self.consumed <= self.received and self.consumed <= self.filled <= self.total

    def _fill_and_take(self, out: list[Effect]) -> None:
        while True:
            give, take = self.filled, self.consumed
            if self._own_first <= give < self._own_end and give < self._slot_end:
                self._give(-1, give, out)
                if self.filled == self._own_first + self.geometry.pieces[self._fill_piece].per_step:
                    self._fill_piece += 1
                    self._enter_fill_piece()
            elif take == self.received:
                return
            elif take >= self._forward_end:
                out.append(Post(self.round, take, -1, False, False))
                self._took()
            elif give == take + self._per_step and give < self._slot_end:
                self._give(take, give, out)
                self._took()
            else:
                return

    def _give(self, take: int, give: int, out: list[Effect]) -> None:
        """Fill the slot of ``give``, and transfer it at once unless credits or earlier slots forbid."""
        self.filled = after = give + 1
        if give == self.posted and give < self._credit_end:
            self.posted = after
            out.append(Post(self.round, take, give, True, after == self._credit_end))
        else:
            out.append(Post(self.round, take, give, False, False))

    def _took(self) -> None:
        self.consumed += 1
        piece = self.geometry.pieces[self._take_piece]
        if self.consumed == piece.first + self.geometry.steps * piece.per_step:
            self._take_piece += 1
            self._enter_take_piece()

    def _enter_take_piece(self) -> None:
        """``_forward_end``: chunks below it become a give, ``_per_step`` numbers later."""
        if self._take_piece == len(self.geometry.pieces):
            self._per_step, self._forward_end = 0, self.total
            return
        piece = self.geometry.pieces[self._take_piece]
        self._per_step = piece.per_step
        self._forward_end = piece.first + (self.geometry.steps - 1) * piece.per_step

    def _enter_fill_piece(self) -> None:
        """Own shares ``_own_first`` .. ``_own_end - 1`` may be filled; none before the bucket is ready."""
        if self._fill_piece == len(self.geometry.pieces) or self.geometry.members == 1:
            self._own_first = self._own_end = self.total
            return
        piece = self.geometry.pieces[self._fill_piece]
        self._own_first = self._own_end = piece.first
        if piece.bucket < self.ready:
            self._own_end += piece.per_step

    def _post_filled(self, out: list[Effect]) -> None:
        """Transfer what is filled, as far as the credits reach."""
        while self.posted < self.filled and self.posted < self._credit_end:
            give = self.posted
            self.posted = after = give + 1
            out.append(Post(self.round, -1, give, True, after == self._credit_end, True))

    # -- credits -----------------------------------------------------------------------------

    def _recredit(self) -> None:
        """Recompute how far posting and filling may go, after anything that they depend on changed."""
        self._slot_end = self.freed + self.geometry.slots
        self._credit_end = self.acked + self.window.size if self.joined and self.right_up else 0

    def _rewind(self) -> None:
        """Transfer again what may have been lost; the receiver ignores what it already has."""
        self._highest = max(self._highest, self.posted)
        self.posted = self.freed
        self._recredit()

    def _ack_if_due(self, out: list[Effect]) -> None:
        pushed = self.acknowledged < self._push_at <= self.consumed
        ending = self.consumed == self.total > self.acknowledged
        if self.consumed >= self._ack_at or pushed or ending:
            self._ack(out)

    def _ack(self, out: list[Effect]) -> None:
        """Tell the left neighbour what is consumed, if it may know.

        A sealed rank acknowledges nothing further. A member that does not contribute withholds its last
        ack until its right neighbour has acknowledged everything: contributors come first in ring order, so
        a contributor's yes means that another contributor has every chunk, however many catchers lie between.
        """
        if self.sealed or self.withholding:
            return
        self.acknowledged = self.consumed
        self._ack_at = self.consumed + self._ack_every
        out.append(Send(self._to_left, Ack(self.round, self.me.incarnation, self.consumed)))

    @property
    def withholding(self) -> bool:
        """The last ack to the left waits for the right neighbour's."""
        return not self.contributing and self.consumed == self.total and self.acked < self.total
