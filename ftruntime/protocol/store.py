"""What the protocol asks of a consensus store, and what a store answers (design 3.2).

One compare-and-set register (the head), one record and one lease per member, and a watch that
brings every change in the order in which the store made it. Any request may stay unanswered,
though the store carried it out: that is the lost answer that the rules marked (!) are about.
"""

from __future__ import annotations

import msgspec

from .head import Head
from .ids import MemberId
from .record import Record


class Request(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all requests."""


class Read(Request, frozen=True, array_like=True, tag=True):
    """Read the head first, then all records and leases. ``linearizable``: not from a stale replica."""

    linearizable: bool


class Cas(Request, frozen=True, array_like=True, tag=True):
    """Replace the whole head if its (epoch, version) is still the expected one."""

    epoch: int
    version: int
    head: Head


class Put(Request, frozen=True, array_like=True, tag=True):
    """Overwrite the record of ``record.member``; refused for an incarnation that was succeeded."""

    record: Record


class Renew(Request, frozen=True, array_like=True, tag=True):
    """Take or prolong the lease of ``member`` for ``ttl`` seconds; refused for a succeeded one."""

    member: MemberId
    ttl: float


class Expire(Request, frozen=True, array_like=True, tag=True):
    """End the lease of ``member`` at once: its launcher saw the process die."""

    member: MemberId


class View(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answer to Read. ``head`` None: the store is empty."""

    head: Head | None
    records: tuple[Record, ...]
    leased: tuple[MemberId, ...]


class CasDone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answer to Cas: whether it was taken, and the head that stands now."""

    taken: bool
    head: Head | None


class PutDone(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    fenced: bool


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    fenced: bool


class Expired(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Answer to Expire."""


class HeadChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Watch: the register holds this head now."""

    head: Head


class RecordChanged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Watch: this record was written."""

    record: Record


class LeaseChanged(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Watch: the lease of ``member`` was taken (live) or has ended."""

    member: MemberId
    live: bool


Answer = View | CasDone | PutDone | Renewed | Expired
Change = HeadChanged | RecordChanged | LeaseChanged
