"""Everything that one rank says to another.

Three kinds of link carry them, each FIFO: the tree inside a replica, the ring at one position,
and the catch-up links between equal positions. A message that crosses replicas carries the
round and the sender's incarnation, so that nothing stale has an effect (design 3.4).
"""

from __future__ import annotations

import enum

import msgspec

from .errors import ErrorReport
from .ids import Incarnation, Lineage, MemberId, Replica, Round, Step
from .plan import Plan
from .task import Task

Scalars = tuple[float, ...]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all messages."""


# -- down the tree ---------------------------------------------------------------------------


class Begin(Message, frozen=True, array_like=True, tag=True):
    """Round ``plan.round`` begins; the outcome of the round before it has been sent already.

    ``task`` is what the plan asks of this replica, worked out once by its leader.
    """

    plan: Plan
    task: Task


class Enlist(Message, frozen=True, array_like=True, tag=True, gc=False):
    """The replica is registered as ``member``: warm up, and say when that is done (Prepared)."""

    member: MemberId


class Verdict(enum.IntEnum):
    APPLY = 1
    DROP = 2


class Outcome(Message, frozen=True, array_like=True, tag=True):
    """What became of a round: the only thing that makes a rank apply or drop (design 3.3).

    ``order`` numbers what a leader asks of its ranks; ``Done`` answers it.
    """

    order: int
    round: Round
    verdict: Verdict
    scalars: Scalars = ()


class Seal(Message, frozen=True, array_like=True, tag=True):
    """Accept and acknowledge no further chunk of ``round``; answer whether every bucket is here."""

    round: Round


class StartFetch(Message, frozen=True, array_like=True, tag=True):
    """Fetch the state (step, lineage) from ``donors``; repeated with other donors as they change.

    number:      names this fetch among all of the replica's, so that a late answer is known as such
    checkpoint:  name of a recorded checkpoint to restore instead of fetching, or ""
    """

    number: int
    step: Step
    lineage: Lineage
    donors: tuple[MemberId, ...]
    checkpoint: str = ""


class StopFetch(Message, frozen=True, array_like=True, tag=True):
    """Throw away what has been staged."""


class Install(Message, frozen=True, array_like=True, tag=True):
    """Every rank of the replica has its shard staged: make it the state."""

    order: int
    step: Step
    lineage: Lineage


class WriteCheckpoint(Message, frozen=True, array_like=True, tag=True):
    """Write this rank's shard of the state it holds under ``name``."""

    order: int
    name: str


class RollCall(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Say that you are there: no round asks it of you, and one that hangs is not seen otherwise."""

    order: int


class Finish(Message, frozen=True, array_like=True, tag=True):
    """The job is over with this state, which every rank of the replica has: end well."""

    step: Step
    lineage: Lineage


# -- up the tree ------------------------------------------------------------------------------


class Vote(Message, frozen=True, array_like=True, tag=True):
    """A subtree's vote. Yes means all of it; the first no is sent at once; a later yes overwrites."""

    round: Round
    yes: bool
    scalars: Scalars = ()
    report: ErrorReport | None = None


class Sealed(Message, frozen=True, array_like=True, tag=True):
    """A subtree's answer to ``Seal``: does every rank of it have every bucket of the round?"""

    round: Round
    complete: bool
    scalars: Scalars = ()


class Done(Message, frozen=True, array_like=True, tag=True):
    """A whole subtree has carried out order number ``order``."""

    order: int


class Fetched(Message, frozen=True, array_like=True, tag=True):
    """A whole subtree has staged its shards for fetch ``number``; or one rank of it cannot.

    ``accused``: donors that the rank could not reach.
    """

    number: int
    ok: bool
    reason: str = ""
    accused: tuple[Replica, ...] = ()


class Prepared(Message, frozen=True, array_like=True, tag=True):
    """A whole subtree is warm: connections to its future neighbours up, throw-away step done."""


# -- along the ring ---------------------------------------------------------------------------


class Join(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To the left neighbour: I am in round ``round``; you may use all my receive slots."""

    round: Round
    replica: Replica
    incarnation: Incarnation


class Chunk(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To the right neighbour: chunk number ``seq`` of the round. ``push`` asks for a prompt Ack."""

    round: Round
    incarnation: Incarnation
    seq: int
    push: bool
    data: object = None  # the device's business; the protocol never looks inside


class Ack(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To the left neighbour: I have consumed ``count`` chunks; their slots are free again."""

    round: Round
    incarnation: Incarnation
    count: int


class Probe(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To a neighbour that is late: are you there, and whom are you waiting for?"""

    round: Round
    incarnation: Incarnation


class Waiting(Message, frozen=True, array_like=True, tag=True, gc=False):
    """Answer to ``Probe``: alive, and late because of ``culprit`` (itself when it is the slow one)."""

    round: Round
    incarnation: Incarnation
    culprit: Replica


# -- catch-up ---------------------------------------------------------------------------------


class Tap(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To a learner: finished chunk number ``index`` of ``round``, in the order of finishing."""

    round: Round
    incarnation: Incarnation
    index: int
    data: object = None


class TapAck(Message, frozen=True, array_like=True, tag=True, gc=False):
    """From a learner: ``count`` finished chunks stored. Also its request: count 0 opens the tap."""

    round: Round
    replica: Replica
    incarnation: Incarnation
    count: int


class TapEnd(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To a learner: no more chunks of this round will come, though some are missing."""

    round: Round
    incarnation: Incarnation


class RangeRequest(Message, frozen=True, array_like=True, tag=True, gc=False):
    """To a donor's rank of the same position: send range ``index`` of the state ``lineage``."""

    lineage: Lineage
    index: int
    replica: Replica
    incarnation: Incarnation


class RangeData(Message, frozen=True, array_like=True, tag=True, gc=False):
    """A range with its checksum. ``intact`` is the receiving device's verdict on the checksum."""

    lineage: Lineage
    index: int
    replica: Replica
    incarnation: Incarnation
    intact: bool = True
    data: object = None


class NotHere(Message, frozen=True, array_like=True, tag=True, gc=False):
    """A donor does not hold (or no longer holds) a frozen copy of ``lineage``."""

    lineage: Lineage
    replica: Replica
    incarnation: Incarnation
