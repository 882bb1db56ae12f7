"""FTAR's control plane at one rank for one round: a state machine over a few integers (design 3.4).

    state      meaning                                   leaves to  when
    ---------  ----------------------------------------  ---------  -----------------------------------------
    IDLE       not started                               JOINING    start: Join goes to the left neighbour
                                                         RUNNING    start, where no message is needed at all
    JOINING    no credits: right has not joined          RUNNING    the right neighbour's Join of this round
    RUNNING    chunks move                               COMPLETE   every chunk taken and every bucket ready
    COMPLETE   all sums here; right's acks missing       FINISHED   the right neighbour has acked every chunk
    FINISHED   what a yes vote needs                     -
    SEALED     sealed while incomplete: takes nothing    -
               and acknowledges nothing any more

JOINING and RUNNING leave to SEALED by ``seal``. A COMPLETE ring that is sealed stays what it is: it can still
finish, and it tells the left neighbour nothing further. Patience (``ring_patience``) is a second
machine beside this one: a late or failed ring is still in one of these states, and what arrives counts.

Slots and credits are in ``ring_flow``, numbers and bytes in ``geometry``. Every input takes the time ``now``
(seconds) and appends to ``out`` what it wants done; inputs that may be stale return False when ignored.
"""

from __future__ import annotations

import enum
import operator
from typing import Final, TypeAlias

from .congestion import Window
from .effects import Effect, Post, Reconnect, Send
from .errors import ProtocolError
from .geometry import Geometry
from .ids import Incarnation, MemberId, Position, Replica, Round
from .messages import Ack, Chunk, Join, Probe, Waiting
from .ring_flow import FLOW_SLOTS
from .ring_patience import PATIENCE_SLOTS, Patience, Sign

RingMessage: TypeAlias = Join | Chunk | Ack | Probe | Waiting


class State(enum.IntEnum):
    IDLE = enum.auto()
    JOINING = enum.auto()
    RUNNING = enum.auto()
    COMPLETE = enum.auto()
    FINISHED = enum.auto()
    SEALED = enum.auto()


class Cause(enum.IntEnum):
    START = enum.auto()
    START_ALONE = enum.auto()
    JOINED = enum.auto()
    ALL_TAKEN = enum.auto()
    ALL_ACKED = enum.auto()
    SEAL = enum.auto()


TRANSITIONS: Final = {
    (State.IDLE, Cause.START): State.JOINING,
    (State.IDLE, Cause.START_ALONE): State.RUNNING,
    (State.JOINING, Cause.JOINED): State.RUNNING,
    (State.JOINING, Cause.SEAL): State.SEALED,
    (State.RUNNING, Cause.ALL_TAKEN): State.COMPLETE,
    (State.RUNNING, Cause.SEAL): State.SEALED,
    (State.COMPLETE, Cause.ALL_ACKED): State.FINISHED,
}


RING_SLOTS: Final = ("_max_retries", "_retries_left", "_retries_right", "state")


class Ring(Patience):
    """One rank's part in the all-reduce of one round. ``copy.copy`` makes an independent copy.

    geometry:       the chunks of the round, shared between ranks
    me, left, right: this member and its neighbours in the plan's ring order
    position:       of this rank and its neighbours in their replicas
    window:         congestion window to begin with; ``ring.window`` is the one to go on with next round
    contributing:   False for a catcher in zeros mode: its share is zeros, and it withholds its last ack
    chunk_timeout:  seconds without progress after which a neighbour is probed, and then accused
    max_retries:    fresh connections to each neighbour in a round

    With one member, or no bucket, no message is sent and no Post is wanted: the local gradient is the sum.
    """

    __slots__ = RING_SLOTS

    def __init__(
        self,
        geometry: Geometry,
        me: MemberId,
        left: MemberId,
        right: MemberId,
        *,
        position: Position,
        round: Round,
        window: Window,
        contributing: bool,
        chunk_timeout: float,
        max_retries: int,
    ) -> None:
        super().__init__(geometry, me, left, right, position, round, window, contributing, chunk_timeout)
        self._max_retries = max_retries
        self._retries_left = self._retries_right = 0
        self.state = State.IDLE

    @property
    def finished(self) -> bool:
        """Complete, and the right neighbour has every chunk: what a yes vote needs (design 3.3)."""
        return self.state is State.FINISHED

    def image(self) -> tuple[object, ...]:
        """All that this ring is, but for its position. Rings with equal images do the same from here on."""
        return _IMAGE(self)

    def become(self, image: tuple[object, ...]) -> None:
        """Be what a ring with ``image`` is, at the own position."""
        for name, value in zip(_FIELDS, image, strict=True):
            setattr(self, name, value)

    # -- this rank ---------------------------------------------------------------------------

    def start(self, now: float, out: list[Effect]) -> None:
        """Join the ring: the left neighbour may use all receive slots from now on."""
        self.progress_at = now
        if self.total == 0:
            self._enter_state(Cause.START_ALONE)
            self._follow()
            return
        self._enter_state(Cause.START)
        out.append(Send(self._to_left, self._join()))
        self._arm(self._chunk_timeout, out)

    def bucket_ready(self, bucket: int, now: float, out: list[Effect]) -> None:
        """The local gradient of ``bucket`` is there. Raises ProtocolError out of order."""
        if self.state is State.SEALED:
            return
        if bucket != self.ready or bucket >= len(self.geometry.buckets):
            known = f"{self.ready} of {len(self.geometry.buckets)}"
            raise ProtocolError(f"bucket {bucket} is ready out of order, after {known}")
        self.ready = bucket + 1
        self.progress_at = now
        self._enter_fill_piece()
        self._pump(out)

    def sent(self, count: int, now: float, out: list[Effect]) -> None:
        """The wire no longer needs the send slots of chunks below ``count``."""
        if not self.geometry.needs_completions or count <= self.freed:
            return
        if count > max(self.posted, self._highest):
            raise ProtocolError(f"{count} chunks are sent, but only {self.posted} were posted")
        self.progress_at = now
        self.freed = count
        self.posted = max(self.posted, count)
        self._recredit()
        self._pump(out)

    def seal(self) -> bool:
        """Take and acknowledge nothing further; is every bucket reduced here? The answer is final."""
        self.sealed = True
        if not self.complete and self.state is not State.SEALED:
            self._enter_state(Cause.SEAL)
        return self.complete

    # -- neighbours --------------------------------------------------------------------------

    def handle(self, source: Replica, message: RingMessage, now: float, out: list[Effect]) -> bool:
        """Any message of the ring. False: of another round or life, or known already, and ignored."""
        if isinstance(message, Chunk):
            known = self.is_left(source, message.round, message.incarnation)
            return known and self.chunk(message.seq, message.push, now, out)
        if isinstance(message, Ack):
            known = self.is_right(source, message.round, message.incarnation)
            return known and self.ack(message.count, now, out)
        if isinstance(message, Join):
            return self.join(message, now, out)
        if isinstance(message, Probe):
            return self.probe(source, message, now, out)
        assert isinstance(message, Waiting), f"{message} is not a message of the ring"
        return self.waiting(source, message, now, out)

    def join(self, message: Join, now: float, out: list[Effect]) -> bool:
        """The right neighbour grants its slots; said again, it wants again what it has not acknowledged."""
        if not self.is_right(message.replica, message.round, message.incarnation):
            return False
        if not self.joined:
            self.joined = True
            self.progress_at = now
            if self.state is State.JOINING:
                self._enter_state(Cause.JOINED)
        self._rewind()
        self._pump(out)
        return True

    def chunk(self, seq: int, push: bool, now: float, out: list[Effect]) -> bool:
        """Chunk ``seq`` of this round came from the left neighbour's current life: the caller has checked.

        False: a duplicate, a gap, or sealed. Raises ProtocolError beyond the end of the round.
        This is the hot path: 22 calls a rank and round in a ring of 12, for 98,304 ranks.
        """
        if seq != self.received or self.sealed:
            return self._odd_chunk(seq, now, out)
        self.received = after = seq + 1
        self.progress_at = now
        give = seq + self._per_step
        if (
            give != self.filled
            or seq >= self._forward_end
            or give >= self._slot_end
            or seq != self.consumed
            or give + 1 >= self._own_first
        ):
            return self._chunk_slowly(after, push, out)
        # What ``_give``, ``_took`` and ``_ack`` do, in the middle of a piece, where nothing else can move.
        self.consumed = after
        self.filled = give + 1
        if give == self.posted and give < self._credit_end:
            self.posted = give + 1
            out.append(Post(self.round, seq, give, True, give + 1 == self._credit_end))
        else:
            out.append(Post(self.round, seq, give, False, False))
        if push or after >= self._ack_at:
            self.acknowledged = after
            self._ack_at = after + self._ack_every
            out.append(Send(self._to_left, Ack(self.round, self.me.incarnation, after)))
        return True

    def _chunk_slowly(self, after: int, push: bool, out: list[Effect]) -> bool:
        if after > self.total:
            self.received = self.total  # the check stays off the hot path, so it comes late
            raise ProtocolError(f"chunk {after - 1} of a round that has {self.total}")
        if push:
            self._push_at = after
        self._pump(out)
        return True

    def _odd_chunk(self, seq: int, now: float, out: list[Effect]) -> bool:
        """Sealed, or not the next one: what is known is acknowledged again, a gap breaks the link."""
        if seq > self.received and not self.sealed and self.left_up:
            reason = f"sent chunk {seq} where {self.received} was due"
            self.transient(self.left.replica, reason, now, out)
        elif seq < self.received:
            self._ack(out)
        return False

    def ack(self, count: int, now: float, out: list[Effect]) -> bool:
        """The right neighbour has consumed ``count`` chunks. False: known already.

        Raises ProtocolError if they were never sent.
        """
        news = count - self.acked
        if news <= 0:
            return False
        if count > self.posted:
            self._acked_before_rewind(count)
        self.progress_at = now
        self.acked = count
        self.freed = max(self.freed, count)
        if self.window.size < self.window.limit:
            self.window = self.window.acked(news)
        self._slot_end = self.freed + self.geometry.slots
        self._credit_end = count + self.window.size if self.joined and self.right_up else 0
        if self.filled != self.posted or self.received != self.consumed or self.filled >= self._own_first:
            self._pump(out)
        return True

    def _acked_before_rewind(self, count: int) -> None:
        if count > self._highest:
            raise ProtocolError(f"{count} chunks are acknowledged, but only {self.posted} were posted")
        self.posted = count

    # -- links -------------------------------------------------------------------------------

    def transient(self, peer: Replica, reason: str, now: float, out: list[Effect]) -> bool:
        """A transfer to or from ``peer`` failed in a way that a fresh connection may mend.

        False: not a neighbour, or its connection is being made anew already.
        """
        left = peer == self.left.replica and self.left_up
        right = peer == self.right.replica and self.right_up
        if not (left or right):
            return False
        self.left_up &= not left
        self.right_up &= not right
        self._retries_left += left
        self._retries_right += right
        if right:
            self.window = self.window.halved()
            self._recredit()
        if max(left * self._retries_left, right * self._retries_right) <= self._max_retries:
            out.append(Reconnect(peer))
        else:
            self._lost(left, right, peer, f"failed after {self._max_retries} retries: {reason}")
        return True

    def reconnected(self, peer: Replica, now: float, out: list[Effect]) -> bool:
        """A fresh connection to ``peer`` is up: send again what may have been lost with the old one."""
        left = peer == self.left.replica and not self.left_up
        right = peer == self.right.replica and not self.right_up
        if left:
            self.left_up = True
            self._resume_left(out)
        if right:
            self.right_up = True
            self._rewind()
            self._pump(out)
        return left or right

    def _resume_left(self, out: list[Effect]) -> None:
        if self.consumed > 0:
            self._ack(out)
        if self.received < self.total and not self.sealed:
            out.append(Send(self._to_left, self._join()))

    def peer_lost(
        self, replica: Replica, incarnation: Incarnation, reason: str, now: float, out: list[Effect]
    ) -> bool:
        """The connection to a neighbour is gone for good. False: not a neighbour, or another life of it."""
        left = self.is_left(replica, self.round, incarnation)
        right = self.is_right(replica, self.round, incarnation)
        self.left_up &= not left
        self.right_up &= not right
        self._recredit()
        self._lost(left, right, replica, f"is lost: {reason}")
        return left or right

    def _lost(self, left: bool, right: bool, peer: Replica, reason: str) -> None:
        """A neighbour that is not needed any more may go."""
        if (left and not self.complete) or (right and not self.acked_all):
            self._fail(Sign.FAULT, peer, reason)

    # -- state -------------------------------------------------------------------------------

    def _pump(self, out: list[Effect]) -> None:
        self._flow(out)
        if self.consumed == self.total:
            self._follow()

    def _follow(self) -> None:
        if self.complete and self.state not in (State.COMPLETE, State.FINISHED):
            self._enter_state(Cause.ALL_TAKEN)
        if self.state is State.COMPLETE and self.acked_all:
            self._enter_state(Cause.ALL_ACKED)

    def _enter_state(self, cause: Cause) -> None:
        assert (self.state, cause) in TRANSITIONS, f"{cause.name} while {self.state.name}"
        self.state = TRANSITIONS[self.state, cause]


_FIELDS: Final = tuple(sorted({*FLOW_SLOTS, *PATIENCE_SLOTS, *RING_SLOTS} - {"_to_left", "_to_right"}))
_IMAGE: Final = operator.attrgetter(*_FIELDS)
