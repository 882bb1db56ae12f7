"""One process of the job: a member, and at position 0 the leader of the replica beside it.

``step`` is the whole interface of the protocol: one event in, effects out. A driver may copy a
rank with ``clone`` to explore what would happen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection

from . import events as e
from . import messages as m
from .config import JobConfig
from .effects import Effect
from .ids import Position, Replica
from .leader import Leader
from .member import HEARD, Member

LEADER_TIMERS = frozenset(
    {"store", "renew", "poll", "close", "grace", "rest", "round", "late", "silent", "order", "roll", "linger"}
)


class Rank:
    """The protocol at one rank.

    nonce, attempt:  see ``session.Session``; they matter at position 0 alone
    """

    __slots__ = ("leader", "member")

    def __init__(
        self, config: JobConfig, replica: Replica, position: Position, nonce: str = "", attempt: int = 0
    ) -> None:
        self.member = Member(config, replica, position)
        self.leader = Leader(config, replica, nonce, attempt) if position == 0 else None

    def clone(self) -> Rank:
        other = copy.copy(self)
        other.member = self.member.clone()
        other.leader = self.leader.clone() if self.leader is not None else None
        return other

    def simplify(self, unawaited: Collection[str]) -> tuple[int, ...]:
        """Forget what nothing that may still happen depends on, for a driver that compares ranks: notices of
        rounds that are over, how calls and orders are counted, and store calls for ``unawaited`` purposes,
        whose answers the driver will not bring. Returns the numbers of the calls still waited for."""
        return () if self.leader is None else self.leader.simplify(unawaited)

    def step(self, event: e.Event, now: float) -> list[Effect]:
        """Take in ``event`` at time ``now`` (seconds, any origin) and return what to do, in order."""
        out: list[Effect] = []
        if type(event) is e.Received:
            message = event.message
            HEARD[type(message)](self.member, event.source, message, now, out)
        else:
            _EVENTS[type(event)](self, event, now, out)
        if self.leader is not None:
            self._talk(self.leader, now, out)
        return out

    def chunk(self, source: Replica, message: m.Chunk, now: float) -> list[Effect]:
        """``step(Received((source, own position), message))``, for the message that is by far the most
        frequent: a driver of many ranks saves a third of the time of a chunk."""
        out: list[Effect] = []
        self.member.chunk(source, message, now, out)
        if self.leader is not None:
            self._talk(self.leader, now, out)
        return out

    def awaits(self, name: str, tag: int) -> bool:
        """Whether a timer that was set still means anything; firing one that does not is harmless."""
        if name in LEADER_TIMERS:
            return self.leader is not None and self.leader.awaits(name, tag)
        return self.member.awaits(name, tag)

    def _talk(self, leader: Leader, now: float, out: list[Effect]) -> None:
        """Leader and member of position 0 talk until neither has anything more to say."""
        member = self.member
        while member.up or leader.down:
            if member.up:
                message = member.up.pop(0)
                _UP[type(message)](leader, message, out)
            else:
                member.command((member.me.replica, 0), leader.down.pop(0), now, out)

    # -- events --------------------------------------------------------------------------------

    def _started(self, event: e.Started, now: float, out: list[Effect]) -> None:
        if self.leader is not None:
            self.leader.started(event.until, out)

    def _timer(self, event: e.TimerFired, now: float, out: list[Effect]) -> None:
        if event.name in LEADER_TIMERS:
            assert self.leader is not None, f"timer {event.name} belongs to a leader"
            self.leader.timer(event.name, event.tag, out)
        else:
            self.member.timer(event.name, event.tag, now, out)

    def _bucket_ready(self, event: e.BucketReady, now: float, out: list[Effect]) -> None:
        self.member.bucket_ready(event.round, event.bucket, now, out)

    def _sent(self, event: e.Sent, now: float, out: list[Effect]) -> None:
        self.member.each_ring(lambda ring: ring.sent(event.count, now, out), event.round, out)

    def _transient(self, event: e.Transient, now: float, out: list[Effect]) -> None:
        self.member.each_ring(
            lambda ring: ring.transient(event.peer, event.reason, now, out), event.round, out
        )

    def _reconnected(self, event: e.Reconnected, now: float, out: list[Effect]) -> None:
        self.member.each_ring(lambda ring: ring.reconnected(event.peer, now, out), None, out)

    def _peer_lost(self, event: e.PeerLost, now: float, out: list[Effect]) -> None:
        self.member.peer_lost(event.peer, event.incarnation, event.reason, now, out)

    def _local_error(self, event: e.LocalError, now: float, out: list[Effect]) -> None:
        self.member.local_error(event.report, out)

    def _applied(self, event: e.Applied, now: float, out: list[Effect]) -> None:
        self.member.applied(event.round, out)

    def _measured(self, event: e.Measured, now: float, out: list[Effect]) -> None:
        self.member.measured(event.round, event.scalars, out)

    def _restored(self, event: e.Restored, now: float, out: list[Effect]) -> None:
        self.member.restored(event.lineage, event.ok, event.reason, out)

    def _warm(self, event: e.Warm, now: float, out: list[Effect]) -> None:
        self.member.warm(out)

    def _saved(self, event: e.Saved, now: float, out: list[Effect]) -> None:
        self.member.saved(event.name, event.ok, out)

    def _store_answer(self, event: e.StoreAnswer, now: float, out: list[Effect]) -> None:
        assert self.leader is not None, "only leaders talk to the store"
        self.leader.answered(event.call, event.answer, out)

    def _watched(self, event: e.Watched, now: float, out: list[Effect]) -> None:
        assert self.leader is not None, "only leaders watch the store"
        self.leader.watched(event.change, out)

    def _leave(self, event: e.Leave, now: float, out: list[Effect]) -> None:
        assert self.leader is not None, "the operator speaks to leaders"
        self.leader.leave(out)

    def _confirmed(self, event: e.Confirmed, now: float, out: list[Effect]) -> None:
        assert self.leader is not None, "the operator speaks to leaders"
        self.leader.confirm(out)


_EVENTS: dict[type[e.Event], Callable[..., None]] = {
    e.Started: Rank._started,
    e.TimerFired: Rank._timer,
    e.BucketReady: Rank._bucket_ready,
    e.Sent: Rank._sent,
    e.Transient: Rank._transient,
    e.Reconnected: Rank._reconnected,
    e.PeerLost: Rank._peer_lost,
    e.LocalError: Rank._local_error,
    e.Applied: Rank._applied,
    e.Measured: Rank._measured,
    e.Restored: Rank._restored,
    e.Warm: Rank._warm,
    e.Saved: Rank._saved,
    e.StoreAnswer: Rank._store_answer,
    e.Watched: Rank._watched,
    e.Leave: Rank._leave,
    e.Confirmed: Rank._confirmed,
}
_UP: dict[type[m.Message], Callable[..., None]] = {
    m.Vote: Leader.vote,
    m.Sealed: Leader.sealed,
    m.Fetched: Leader.fetched,
    m.Done: lambda leader, message, out: leader.done(message.order, out),
    m.Prepared: lambda leader, message, out: leader.prepared(out),
}
