"""The tap: a member of the ring forwards finished chunks to learners outside it (design 3.5).

The source posts from its reduced buffer, which the ring fills anyway, and the ring waits for
nothing here: a slow learner is told that the rest will not come, and a dead one is forgotten.

    the source's view of a learner   leaves to
    -------------------------------  ----------------------------------------------------
    CLOSED  has not asked yet        OPEN (TapAck with count 0), ENDED
    OPEN    gets finished chunks,    ENDED (the buffer is reused before all are posted)
            ``window`` unacknowledged
    ENDED   told with TapEnd         - (asking again is answered with TapEnd again)

    the sink       leaves to
    -------------  -----------------------------------------------------------------------
    RECEIVING      COMPLETE (the last chunk), BROKEN (gap, TapEnd, source lost)
    COMPLETE       - (whatever becomes of the source)
    BROKEN         - (the round's held gradient is useless: design 3.5, a gap means a newer snapshot)
"""

from __future__ import annotations

import copy
from typing import Any

from .effects import Effect, PostTap, Send, StoreTap
from .ids import Incarnation, MemberId, Position, Replica, Round
from .messages import Tap, TapAck, TapEnd


class _Learner:
    __slots__ = ("acked", "member", "opened", "posted")

    def __init__(self, member: MemberId) -> None:
        self.member = member
        self.opened = False
        self.posted = 0  # chunks below are with the learner or on their way
        self.acked = 0  # chunks below are stored by it

    def clone(self) -> _Learner:
        twin = _Learner(self.member)
        twin.opened, twin.posted, twin.acked = self.opened, self.posted, self.acked
        return twin


class TapSource:
    """Forwards the ``total`` finished chunks of one round, in the order of finishing.

    window: chunks that may be unacknowledged at one learner
    """

    __slots__ = (
        "_ended",
        "_finished",
        "_incarnation",
        "_learners",
        "_position",
        "_total",
        "_window",
        "round",
    )

    def __init__(
        self,
        round: Round,
        incarnation: Incarnation,
        learners: tuple[MemberId, ...],
        position: Position,
        *,
        window: int,
        total: int,
    ) -> None:
        assert window > 0 and total >= 0
        self.round = round
        self._incarnation, self._position = incarnation, position
        self._window, self._total = window, total
        self._learners = {member: _Learner(member) for member in learners}
        self._finished = 0
        self._ended = False

    @property
    def learners(self) -> tuple[MemberId, ...]:
        return tuple(self._learners)

    def clone(self) -> TapSource:
        """An independent copy."""
        twin = copy.copy(self)
        twin._learners = {member: learner.clone() for member, learner in self._learners.items()}
        return twin

    def image(self) -> tuple[object, ...]:
        """All that this source is, but for its position: what ``become`` takes."""
        learners = tuple((x.member, x.opened, x.posted, x.acked) for x in self._learners.values())
        return self._finished, self._ended, learners

    def become(self, image: tuple[Any, ...]) -> None:
        """Be what a source with ``image`` is, at the own position."""
        self._finished, self._ended, learners = image
        for member, opened, posted, acked in learners:
            learner = self._learners[member]
            learner.opened, learner.posted, learner.acked = opened, posted, acked

    def finished(self, count: int, out: list[Effect]) -> None:
        """The first ``count`` chunks in the order of finishing are in the reduced buffer."""
        assert self._finished <= count <= self._total and not self._ended
        self._finished = count
        for learner in self._learners.values():
            self._post(learner, out)

    def ack(self, message: TapAck, out: list[Effect]) -> None:
        """A learner opens the tap, or has stored what it got so far."""
        learner = self._learners.get(MemberId(message.replica, message.incarnation))
        if learner is None or message.round != self.round or message.count > learner.posted:
            return
        learner.opened = True
        learner.acked = max(learner.acked, message.count)
        if not self._ended:
            self._post(learner, out)
        elif message.count == 0:
            self._tell_end(learner, out)

    def learner_lost(self, replica: Replica, incarnation: Incarnation) -> None:
        """Forget a learner."""
        self._learners.pop(MemberId(replica, incarnation), None)

    def end(self, out: list[Effect]) -> None:
        """The reduced buffer is about to be reused: nothing more can be posted from it.

        Learners to which every chunk was posted need no word.
        """
        if self._ended:
            return
        self._ended = True
        for learner in self._learners.values():
            self._tell_end(learner, out)

    def _post(self, learner: _Learner, out: list[Effect]) -> None:
        if not learner.opened:
            return
        to = (learner.member.replica, self._position)
        while learner.posted < min(self._finished, learner.acked + self._window):
            out.append(PostTap(to, self.round, learner.posted))
            learner.posted += 1

    def _tell_end(self, learner: _Learner, out: list[Effect]) -> None:
        if learner.posted < self._total:
            to = (learner.member.replica, self._position)
            out.append(Send(to, TapEnd(self.round, self._incarnation)))


class TapSink:
    """Receives the ``total`` finished chunks of one held round; one object per held round.

    window: the source's window; the sink acknowledges twice in a window
    """

    __slots__ = ("_me", "_position", "_source", "_stored", "_total", "_window", "broken", "round")

    def __init__(
        self,
        round: Round,
        source: MemberId,
        me: MemberId,
        position: Position,
        *,
        total: int,
        window: int,
    ) -> None:
        assert window > 0 and total >= 0
        self.round = round
        self.broken: str | None = None  # why the round cannot be held, or None
        self._source, self._me, self._position = source, me, position
        self._total, self._window = total, window
        self._stored = 0

    @property
    def complete(self) -> bool:
        """Every chunk of the round is stored."""
        return self._stored == self._total

    @property
    def stored(self) -> int:
        """Number of chunks stored."""
        return self._stored

    def clone(self) -> TapSink:
        """An independent copy."""
        return copy.copy(self)

    def start(self, out: list[Effect]) -> None:
        """Open the tap. A source that has finished chunks already sends them from the first on."""
        if not self.complete:
            self._ack(out)

    def chunk(self, source: Replica, message: Tap, out: list[Effect]) -> None:
        """A finished chunk arrived from ``source``: store it if it is the next one."""
        if self._settled() or not self._mine(source, message) or message.index < self._stored:
            return
        if message.index > self._stored:
            self._break(f"chunk {message.index} came where {self._stored} was next")
            return
        out.append(StoreTap(self.round, message.index))
        self._stored += 1
        if self.complete or self._stored % max(1, self._window // 2) == 0:
            self._ack(out)

    def end(self, source: Replica, message: TapEnd) -> None:
        """The source reuses its buffer: what has not come will not come."""
        if not self._settled() and self._mine(source, message):
            self._break("the source ended the tap")

    def source_lost(self, replica: Replica, incarnation: Incarnation) -> None:
        """The connection to the source is gone."""
        if not self._settled() and self._source == MemberId(replica, incarnation):
            self._break("the source was lost")

    def _settled(self) -> bool:
        return self.complete or self.broken is not None

    def _mine(self, source: Replica, message: Tap | TapEnd) -> bool:
        sender = MemberId(source, message.incarnation)
        return sender == self._source and message.round == self.round

    def _break(self, why: str) -> None:
        self.broken = f"round {self.round} from {self._source}: {why} ({self._stored} of {self._total})"

    def _ack(self, out: list[Effect]) -> None:
        ack = TapAck(self.round, self._me.replica, self._me.incarnation, self._stored)
        out.append(Send((self._source.replica, self._position), ack))
