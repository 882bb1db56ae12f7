"""Everything that a driver tells the protocol. Messages from other ranks come as ``Received``."""

from __future__ import annotations

import msgspec

from .errors import ErrorReport
from .ids import Address, Lineage, Replica, Round, Step
from .messages import Message, Scalars


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all events."""


class Started(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The process runs. First event of every rank.

    until: the last step that it was asked for; 0: none
    """

    until: Step = 0


class Received(Event, frozen=True, array_like=True, tag=True, gc=False):
    """``message`` arrived from the rank at ``source``."""

    source: Address
    message: Message


class TimerFired(Event, frozen=True, array_like=True, tag=True, gc=False):
    name: str
    tag: int


class BucketReady(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The local gradient of ``bucket`` is there (buckets come in order 0, 1, ...)."""

    round: Round
    bucket: int


class Sent(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The wire no longer needs the send slots of chunks below ``count`` (only where asked for)."""

    round: Round
    count: int


class Transient(Event, frozen=True, array_like=True, tag=True, gc=False):
    """A transfer to or from ``peer`` failed in a way that a fresh connection may mend."""

    round: Round
    peer: Replica
    reason: str


class Reconnected(Event, frozen=True, array_like=True, tag=True, gc=False):
    peer: Replica


class PeerLost(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The connection to this position's rank in ``peer`` is gone for good (reset, host down)."""

    peer: Replica
    incarnation: int
    reason: str


class LocalError(Event, frozen=True, array_like=True, tag=True):
    """This rank's own device or host failed."""

    report: ErrorReport


class Applied(Event, frozen=True, array_like=True, tag=True, gc=False):
    """Apply of ``round`` is complete on the device; round -1 answers InstallStaged."""

    round: Round


class Measured(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The answer to Measure: scalars of this rank's reduced shard, in the job's fixed order."""

    round: Round
    scalars: Scalars


class Restored(Event, frozen=True, array_like=True, tag=True, gc=False):
    lineage: Lineage
    ok: bool
    reason: str = ""


class Warm(Event, frozen=True, array_like=True, tag=True, gc=False):
    """Warm-up is done and the connections asked for are up."""


class Saved(Event, frozen=True, array_like=True, tag=True, gc=False):
    name: str
    ok: bool
    reason: str = ""


class StoreAnswer(Event, frozen=True, array_like=True, tag=True):
    """The store's answer to StoreCall number ``call``; a request may also stay unanswered."""

    call: int
    answer: object


class Watched(Event, frozen=True, array_like=True, tag=True):
    """The store's watch: the head, a record or a lease changed."""

    change: object


class Leave(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The operator's word to a leader: the replica is to leave, as soon as a round is planned without it."""


class Confirmed(Event, frozen=True, array_like=True, tag=True, gc=False):
    """The operator's word to a leader: rebuild a lost store although not all replicas have reported."""
