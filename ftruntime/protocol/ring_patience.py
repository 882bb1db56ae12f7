"""When a rank loses patience with its ring, and whom it then holds responsible (design 3.4).

    mood      leaves to   when
    --------  ----------  ---------------------------------------------------------------------
    ON_TIME   LATE        no progress for ``chunk_timeout``, and it is a neighbour that is waited for: Probe
              FAILED      a neighbour is lost, or its retries are used up
    LATE      ON_TIME     progress
              FAILED      no progress for another ``chunk_timeout``; or as above
    FAILED    -           the report is made once; the flow itself goes on, a later yes overwrites a no

The clock of a rank whose own bucket is not ready accuses no one. A probed neighbour answers with the culprit:
itself if it is the slow one, otherwise whom it waits for in turn. It asks on in that direction, and passes on
what it learns, so the name of the one that hangs travels along the chain of those who wait. Who hears nothing
accuses the silent neighbour.
"""

from __future__ import annotations

import enum
from typing import Final

from .congestion import Window
from .effects import Effect, Send, SetTimer
from .errors import ErrorClass, ErrorReport
from .geometry import Geometry
from .ids import Address, Incarnation, MemberId, Position, Replica, Round
from .messages import Ack, Join, Probe, Waiting
from .ring_flow import Flow

# Timers are sums of floats: one that fires this much early (seconds) is on time.
EARLY: Final = 1e-6


class Mood(enum.IntEnum):
    ON_TIME = enum.auto()
    LATE = enum.auto()
    FAILED = enum.auto()


class Sign(enum.IntEnum):
    OVERDUE = enum.auto()
    PROGRESS = enum.auto()
    FAULT = enum.auto()


MOODS: Final = {
    (Mood.ON_TIME, Sign.OVERDUE): Mood.LATE,
    (Mood.ON_TIME, Sign.FAULT): Mood.FAILED,
    (Mood.LATE, Sign.PROGRESS): Mood.ON_TIME,
    (Mood.LATE, Sign.OVERDUE): Mood.FAILED,
    (Mood.LATE, Sign.FAULT): Mood.FAILED,
}


class Side(enum.Enum):
    """Where the one is that a rank waits for."""

    SELF = enum.auto()
    LEFT = enum.auto()
    RIGHT = enum.auto()


PATIENCE_SLOTS: Final = (
    "_asked",
    "_chunk_timeout",
    "_culprit",
    "_heard_left",
    "_late_at",
    "_left_asks",
    "_mark",
    "_mood",
    "_relays",
    "_right_asks",
    "failure",
    "progress_at",
)


class Patience(Flow):
    """The clock of one rank's ring.

    progress_at:  when something last moved (seconds)
    failure:      why this rank cannot finish the round, once it thinks so
    """

    __slots__ = PATIENCE_SLOTS

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
        chunk_timeout: float,
    ) -> None:
        assert chunk_timeout > 0, "a chunk takes time"
        super().__init__(geometry, me, left, right, position, round, window, contributing)
        self._chunk_timeout = chunk_timeout
        self.failure: ErrorReport | None = None
        self.progress_at = self._late_at = 0.0
        self._mood = Mood.ON_TIME
        self._mark = 0
        self._heard_left = False  # it has answered a Probe
        self._forget()

    @property
    def mood(self) -> Mood:
        self._settle()
        return self._mood

    # -- the clock ---------------------------------------------------------------------------

    def timer(self, now: float, out: list[Effect]) -> None:
        """The timer ``chunk`` of this round fired."""
        if self.failure is not None or self.total == 0 or self._has_ended():
            return
        self._settle()
        # Nothing was in the future, unless the clock went back: no patience is longer for that (!).
        self.progress_at, self._late_at = min(now, self.progress_at), min(now, self._late_at)
        since = self._late_at if self._mood is Mood.LATE else self.progress_at
        rest = since + self._chunk_timeout - now
        if rest > EARLY:
            self._arm(rest, out)
        elif self._waits_for() is Side.SELF or not (self.contributing or self.received or self.acked):
            # Who sends zeros is ready from the start: its clock runs only when the ring has begun to move.
            self._arm(self._chunk_timeout, out)
        elif self._mood is Mood.ON_TIME:
            self._enter(Sign.OVERDUE)
            self._late_at = now
            self._ask(self._waits_for(), out)
            self._arm(self._chunk_timeout, out)
        else:
            self._accuse()

    def _arm(self, after: float, out: list[Effect]) -> None:
        out.append(SetTimer("chunk", self.round, after))

    def _has_ended(self) -> bool:
        """Nothing is waited for: finished, or sealed with chunks missing."""
        return self.acked_all if self.complete else self.sealed

    def _enter(self, sign: Sign) -> None:
        assert (self._mood, sign) in MOODS, f"{sign.name} while {self._mood.name}"
        self._mood = MOODS[self._mood, sign]

    def _settle(self) -> None:
        """Notice progress. The hot path only counts, so that it costs nothing there."""
        moved = self.received + self.acked + self.freed + self.ready + self.joined
        if moved != self._mark:
            self._mark = moved
            self._forget()
            if self._mood is Mood.LATE:
                self._enter(Sign.PROGRESS)

    def _forget(self) -> None:
        """Who asked and what was answered means nothing after progress."""
        self._asked = Side.SELF  # the neighbour that was sent a Probe; SELF for none
        self._culprit: Replica | None = None  # whom it named
        self._left_asks = self._right_asks = False
        self._relays = 0

    # -- who waits for whom ------------------------------------------------------------------

    def _waits_for(self) -> Side:
        """Whom this rank waits for, on its own account."""
        no_credit = not self.joined and self.filled > 0
        if self.consumed == self.total or no_credit:
            return Side.RIGHT
        return self._take_waits_for()

    def _take_waits_for(self) -> Side:
        """Who keeps this rank from consuming (and acknowledging) its next chunk."""
        if self.consumed == self.total:
            return Side.RIGHT if self.withholding else Side.SELF
        if self.sealed:
            return Side.SELF
        if self._fill_piece <= self._take_piece:  # own shares come first
            return self._own_share_waits_for()
        return Side.LEFT if self.consumed == self.received else Side.RIGHT

    def _give_waits_for(self) -> Side:
        """Who keeps this rank from sending its next chunk."""
        if self.posted < self.filled or self.filled == self.total:
            return Side.RIGHT
        if self.sealed:
            return Side.SELF
        if self.filled >= self._own_first:
            return self._own_share_waits_for()
        return Side.LEFT if self.consumed == self.received else Side.RIGHT

    def _own_share_waits_for(self) -> Side:
        return Side.SELF if self._own_end == self._own_first else Side.RIGHT

    def _blamed(self, side: Side) -> Replica:
        """The replica to name when ``side`` is waited for, by the best knowledge there is."""
        if side is Side.SELF:
            return self.me.replica
        if side is self._asked and self._culprit is not None:
            return self._culprit
        return self._neighbour(side).replica

    def _neighbour(self, side: Side) -> MemberId:
        return self.left if side is Side.LEFT else self.right

    # -- probes ------------------------------------------------------------------------------

    def is_left(self, source: Replica, round: Round, incarnation: Incarnation) -> bool:
        """Does a message come from the left neighbour as the plan of this round names it?"""
        return round == self.round and incarnation == self.left.incarnation and source == self.left.replica

    def is_right(self, source: Replica, round: Round, incarnation: Incarnation) -> bool:
        """The same of the right neighbour. In a ring of two it is also the left one."""
        return round == self.round and incarnation == self.right.incarnation and source == self.right.replica

    def probe(self, source: Replica, message: Probe, now: float, out: list[Effect]) -> bool:
        """A neighbour asks whom this rank waits for. False: it is stale, and ignored."""
        left = self.is_left(source, message.round, message.incarnation)
        right = self.is_right(source, message.round, message.incarnation)
        if not (left or right):
            return False
        self._settle()
        self._left_asks |= left
        self._right_asks |= right
        if left:
            self._remind_left(out)
        side = self._answer_to(left, right)
        self._answer(side, self._to_left if left else self._to_right, out)
        # The one that is waited for may know more; but the asker itself cannot.
        if (side is Side.LEFT and not left) or (side is Side.RIGHT and not right):
            self._ask_once(side, out)
        return True

    def waiting(self, source: Replica, message: Waiting, now: float, out: list[Effect]) -> bool:
        """The answer to a Probe, or a better one. False: it is stale, and ignored."""
        left = self.is_left(source, message.round, message.incarnation)
        right = self.is_right(source, message.round, message.incarnation)
        if not (left or right):
            return False
        self._heard_left |= left
        self._settle()
        expected = left if self._asked is Side.LEFT else right and self._asked is Side.RIGHT
        culprit = message.culprit if message.culprit != self.me.replica else None
        if culprit is None:
            self._repeat(left, right, out)
        if expected and culprit != self._culprit:
            self._culprit = culprit
            self._relay(out)
        return True

    def _answer_to(self, left: bool, right: bool) -> Side:
        """Whom the asker is to blame: left waits for acks, right for chunks, a ring of two for both."""
        take, give = self._take_waits_for(), self._give_waits_for()
        if left and right:
            return take if take is Side.SELF and not self.complete else give
        return take if left else give

    def _answer(self, side: Side, to: Address, out: list[Effect]) -> None:
        out.append(Send(to, Waiting(self.round, self.me.incarnation, self._blamed(side))))

    def _repeat(self, left: bool, right: bool, out: list[Effect]) -> None:
        """A neighbour waits for this rank, which waits for it: a broken link lost something. Say it again.

        If that does not help, the neighbour (or the link) is at fault, for all that this rank can know.
        """
        if left:
            self._remind_left(out)
        if right:
            self._rewind()
            self._post_filled(out)

    def _remind_left(self, out: list[Effect]) -> None:
        """Say again what the left neighbour may have missed: the Join, or the last ack.

        Not an ack ahead of time: a neighbour would take it for progress, and forget who asked it.
        """
        if self.acknowledged > 0:
            out.append(Send(self._to_left, Ack(self.round, self.me.incarnation, self.acknowledged)))
        elif self.received == 0 and not self.sealed:
            out.append(Send(self._to_left, self._join()))

    def _join(self) -> Join:
        return Join(self.round, self.me.replica, self.me.incarnation)

    def _relay(self, out: list[Effect]) -> None:
        """Pass a better answer on to who asked before; names go once round the ring at most."""
        if self._relays == self.geometry.members:
            return
        self._relays += 1
        if self._asked is Side.LEFT and self._right_asks and self._give_waits_for() is Side.LEFT:
            self._answer(Side.LEFT, self._to_right, out)
        if self._asked is Side.RIGHT and self._left_asks and self._take_waits_for() is Side.RIGHT:
            self._answer(Side.RIGHT, self._to_left, out)

    def _ask_once(self, side: Side, out: list[Effect]) -> None:
        if self._asked is Side.SELF:
            self._ask(side, out)

    def _ask(self, side: Side, out: list[Effect]) -> None:
        if side is not self._asked:
            self._asked, self._culprit = side, None
        to = self._to_left if side is Side.LEFT else self._to_right
        out.append(Send(to, Probe(self.round, self.me.incarnation)))

    # -- failure -----------------------------------------------------------------------------

    def _accuse(self) -> None:
        """Late twice: name the culprit."""
        side = self._waits_for()
        neighbour, culprit = self._neighbour(side).replica, self._blamed(side)
        at = self.consumed if side is Side.LEFT else self.acked
        if culprit != neighbour:
            reason = f"stalled at chunk {at} of {self.total}, says replica {neighbour}"
        elif self._has_joined(side):
            reason = f"joined and stalled at chunk {at} of {self.total}"
        else:
            reason = f"never joined round {self.round}"
        self._fail(Sign.OVERDUE, culprit, reason)

    def _has_joined(self, side: Side) -> bool:
        return self.joined if side is Side.RIGHT else self.received > 0 or self._heard_left

    def _fail(self, sign: Sign, accused: Replica, reason: str) -> None:
        """Report once that the round cannot be finished because of ``accused``."""
        if self.failure is None:
            self._settle()
            self._enter(sign)
            self.failure = ErrorReport(ErrorClass.PEER_LOST, f"replica {accused} {reason}", (accused,))
