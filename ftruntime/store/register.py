"""The register: the head, the records and the leases, with no time-outs, no faults and no network.

The head changes by compare-and-set of the whole; records and leases are keyed by member. Whoever was
succeeded, by a registration in the head or by a later life that has written already, is refused (design
3.2). Life 0 is a process that has no incarnation yet: it may write a record, which fences no one.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import NamedTuple

from ftruntime.protocol import store
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.record import Record

EMPTY = (0, 0)  # the (epoch, version) that a Cas expects of an empty register
BACKUPS = 64  # earlier heads, with the records of their time, that the store can come back with


class Lease(NamedTuple):
    expires: float
    ttl: float


class Backup(NamedTuple):
    head: Head | None
    records: dict[MemberId, Record]


class Register:
    """The content of the store. ``changes`` collects what a watch shows, in the order of happening."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.records: dict[MemberId, Record] = {}
        self.leases: dict[MemberId, Lease] = {}
        self.changes: list[store.Change] = []
        self.backups: deque[Backup] = deque(maxlen=BACKUPS)

    def clone(self) -> Register:
        """An independent copy; heads and records are never modified."""
        other = copy.copy(self)
        other.records, other.leases = dict(self.records), dict(self.leases)
        other.changes, other.backups = list(self.changes), self.backups.copy()
        return other

    def execute(self, request: store.Request, now: float) -> store.Answer:
        """Carry ``request`` out at time ``now`` (seconds, which leases are counted in)."""
        match request:
            case store.Read():
                return self.view()
            case store.Cas():
                return self.cas(request)
            case store.Put():
                return self.put(request.record)
            case store.Renew():
                return self.renew(request, now)
            case store.Expire():
                return self.expire(request.member)
        raise TypeError(f"not a request to the store: {request!r}")

    def view(self) -> store.View:
        records = tuple(self.records[member] for member in sorted(self.records))
        return store.View(self.head, records, tuple(sorted(self.leases)))

    def cas(self, request: store.Cas) -> store.CasDone:
        """Take the head if it stands on the one that is here; who it succeeds loses the lease."""
        expected = EMPTY if self.head is None else self.head.order
        if (request.epoch, request.version) != expected:
            return store.CasDone(False, self.head)
        assert request.head.order > expected, "every compare-and-set increments the version"
        self.backups.append(Backup(self.head, dict(self.records)))
        self.head = request.head
        self.changes.append(store.HeadChanged(request.head))
        for member in [m for m in self.leases if self.succeeded(m)]:
            self._end_lease(member)
        return store.CasDone(True, request.head)

    def put(self, record: Record) -> store.PutDone:
        """Overwrite a record; those of earlier lives go, which bounds what is kept."""
        member = record.member
        if member.incarnation > 0 and self.succeeded(member):
            return store.PutDone(True)
        if member.incarnation > 0:
            for old in [m for m in self.records if m.replica == member.replica and m < member]:
                del self.records[old]
        self.records[member] = record
        self.changes.append(store.RecordChanged(record))
        return store.PutDone(False)

    def renew(self, request: store.Renew, now: float) -> store.Renewed:
        """Take or prolong a lease."""
        member = request.member
        if self.succeeded(member):
            return store.Renewed(True)
        fresh = member not in self.leases
        self.leases[member] = Lease(now + request.ttl, request.ttl)
        if fresh:
            self.changes.append(store.LeaseChanged(member, True))
        return store.Renewed(False)

    def expire(self, member: MemberId) -> store.Expired:
        if member in self.leases:
            self._end_lease(member)
        return store.Expired()

    def expire_due(self, now: float) -> None:
        for member in sorted(m for m, lease in self.leases.items() if lease.expires <= now):
            self._end_lease(member)

    def _end_lease(self, member: MemberId) -> None:
        del self.leases[member]
        self.changes.append(store.LeaseChanged(member, False))

    def succeeded(self, member: MemberId) -> bool:
        """Whether a later life of its replica is known."""
        latest = 0 if self.head is None else self.head.incarnations[member.replica][0]
        lives = [m.incarnation for m in (*self.records, *self.leases) if m.replica == member.replica]
        return member.incarnation < max(latest, *lives, 0)

    # -- after a restart --------------------------------------------------------------------------

    def prolong(self, now: float) -> None:
        """Every lease runs anew: the store cannot know who renewed while it was away."""
        for member, lease in self.leases.items():
            self.leases[member] = Lease(now + lease.ttl, lease.ttl)

    def wipe(self) -> None:
        """Lose everything, also the leases and what a watch has not shown yet."""
        self.head = None
        for lost in (self.records, self.leases, self.changes):
            lost.clear()

    def go_back(self, changes: int) -> None:
        """Lose the last ``changes`` accepted heads, and what was written since.

        Raises ValueError when there are not so many backups.
        """
        if not 1 <= changes <= len(self.backups):
            raise ValueError(f"the store can go back 1 to {len(self.backups)} heads, not {changes}")
        backup = self.backups[-changes]
        self.wipe()
        self.head, self.records = backup.head, dict(backup.records)
        for _ in range(changes):
            self.backups.pop()
