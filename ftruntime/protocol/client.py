"""A leader's view of the consensus store, and its requests in flight.

The view only ever moves forward: a read older than one already seen is repeated linearizably,
and a store that is really empty or older is reported as lost (design 3.2). Requests may stay
unanswered for ever; a timer looks into each, and what it means is the leader's business.
"""

from __future__ import annotations

import copy
from collections.abc import Collection

import msgspec

from . import store
from .effects import Effect, SetTimer, StoreCall
from .head import Head, descends
from .ids import MemberId
from .planner import Members
from .record import Record

NOTHING = (0, 0)  # the order of an empty register


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A request in flight. ``purpose`` is the leader's name for why it asked.

    seen: ``known`` of the newest head when it was sent: what a linearizable read may not fall behind
    news: how many changes the watch had brought when it was sent
    """

    purpose: str
    request: store.Request
    seen: tuple[int, int] = NOTHING
    news: int = 0


class StoreClient:
    """Newest head, records and leases that this member has seen, and its unanswered calls.

    lost:      a linearizable read showed a head older than one seen before it was sent, or none at all
    standing:  the head that the store last showed: what the next Cas must be compared with
    """

    __slots__ = ("_calls", "_leased", "_news", "_next", "_patience", "_records", "head", "lost", "standing")

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._calls: dict[int, Call] = {}
        self._next = 0
        self._news = 0
        self._records: dict[MemberId, Record] = {}
        self._leased: set[MemberId] = set()
        self.head: Head | None = None
        self.lost = False
        self.standing: Head | None = None

    def clone(self) -> StoreClient:
        other = copy.copy(self)
        other._calls = dict(self._calls)
        other._records = dict(self._records)
        other._leased = set(self._leased)
        return other

    @property
    def stands(self) -> tuple[int, int]:
        """The (epoch, version) that the next Cas expects."""
        return NOTHING if self.standing is None else self.standing.order

    @property
    def members(self) -> Members:
        return Members(tuple(self._records.values()), frozenset(self._leased))

    def leased(self, member: MemberId) -> bool:
        return member in self._leased

    def busy(self, purpose: str) -> bool:
        """Whether a request for ``purpose`` is in flight."""
        return any(call.purpose == purpose for call in self._calls.values())

    def waits_for(self, number: int) -> bool:
        """Whether call ``number`` is neither answered nor given up."""
        return number in self._calls

    def renumber(self, unawaited: Collection[str]) -> tuple[int, ...]:
        """Give up the calls for these purposes, and let the next call follow the last of the others.

        Returns the numbers of those others: numbers are names, compared for equality alone.
        """
        self._calls = {n: call for n, call in self._calls.items() if call.purpose not in unawaited}
        self._next = max(self._calls, default=0)
        return tuple(self._calls)

    def ask(self, purpose: str, request: store.Request, out: list[Effect]) -> None:
        """Send ``request``; it is answered by ``answered`` or given up by ``expired``."""
        self._next += 1
        seen = NOTHING if self.head is None else self.head.known
        self._calls[self._next] = Call(purpose, request, seen, self._news)
        out.append(StoreCall(self._next, request))
        out.append(SetTimer("store", self._next, self._patience))

    def answered(self, number: int, answer: object, out: list[Effect]) -> Call | None:
        """Take in an answer. None if the call was given up: what it shows is still news."""
        call = self._calls.pop(number, None)
        if isinstance(answer, store.View):
            fits = self._see(answer.head, self._went_back(call, answer.head), out)
            # What the watch has brought since the read was sent may be newer than what the read shows.
            if fits and call is not None and call.news == self._news:
                self._records = {r.member: r for r in answer.records}
                self._leased = set(answer.leased)
        elif isinstance(answer, store.CasDone):
            self._see(answer.head, False, out)
        return call

    def _went_back(self, call: Call | None, head: Head | None) -> bool:
        """A linearizable read fell behind what was known when it was sent: the store lost its head.

        What the watch brought since then is no proof: the store may have served the read before.
        """
        if call is None or not isinstance(call.request, store.Read) or not call.request.linearizable:
            return False
        return (NOTHING if head is None else head.known) < call.seen

    def expired(self, number: int) -> Call | None:
        """Give up waiting for call ``number``. None if it was answered long ago."""
        return self._calls.pop(number, None)

    def watched(self, change: object, out: list[Effect]) -> None:
        """Take in one change from the watch."""
        self._news += 1
        if isinstance(change, store.HeadChanged):
            self._see(change.head, False, out)
        elif isinstance(change, store.RecordChanged):
            self._records[change.record.member] = change.record
            self._forget(change.record.member)
        elif isinstance(change, store.LeaseChanged):
            (self._leased.add if change.live else self._leased.discard)(change.member)

    def _forget(self, member: MemberId) -> None:
        """Records of earlier lives are not kept: one per replica bounds the view."""
        for old in [m for m in self._records if m.replica == member.replica and m < member]:
            del self._records[old]

    def _see(self, head: Head | None, went_back: bool, out: list[Effect]) -> bool:
        """Move forward to ``head``; whether the view may be taken from the same answer."""
        if self.head is None or (head is not None and head.known >= self.head.known):
            branch = self.head is not None and head is not None and not descends(head, self.head)
            self.standing, self.lost = head, branch
            self.head = self.head if branch else head
            return True
        if went_back:
            self.standing, self.lost = head, True
            return True
        if not self.busy("again"):
            self.ask("again", store.Read(linearizable=True), out)
        return False
