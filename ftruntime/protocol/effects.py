"""Everything that the protocol asks of a driver.

A machine never does any of this itself: it returns effects, and a driver carries them out in
order. Each effect says which event answers it, if any (``events.py``).
"""

from __future__ import annotations

import msgspec

from .ids import Address, Lineage, Replica, Round, Step
from .messages import Message, Scalars
from .plan import Plan
from .task import Task


class Effect(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all effects."""


# -- talk ------------------------------------------------------------------------------------


class Send(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Deliver ``message`` to the rank at ``to``, in order with what this rank sent it before."""

    to: Address
    message: Message


class Post(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """FTAR data plane, one chunk: consume ``take`` and/or fill and transfer ``give``.

    take:  sequence number of the received chunk to consume, or -1
    give:  sequence number of the chunk to produce into its send slot (``give % slots``), or -1.
           With ``take`` >= 0 it is the fused reduce-and-forward of ``take``; with ``take`` == -1
           it is this rank's own first share.
    send:  transfer ``give`` to the right neighbour at once (else a later Post with take == -1
           and ``filled`` True transfers the slot that is already filled)
    push:  the Chunk's ``push`` flag
    The geometry of the round (``geometry.Geometry``) says what piece of which bucket a number is.
    """

    round: Round
    take: int
    give: int
    send: bool
    push: bool
    filled: bool = False


class PostTap(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Send the finished chunk number ``index`` of ``round`` (order of finishing) to a learner."""

    to: Address
    round: Round
    index: int


class StoreTap(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """A learner keeps the finished chunk ``index`` that has just arrived, in its held gradients."""

    round: Round
    index: int


class Reconnect(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Make a fresh connection (queue pair) to ``peer``. Answered by Reconnected or PeerLost."""

    peer: Replica


class Connect(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Make connections to the ranks of this position in ``peers``, ahead of need."""

    peers: tuple[Replica, ...]


# -- compute and memory -------------------------------------------------------------------------


class Launch(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Forward and backward of ``task.ranges`` on the current state; each bucket answers BucketReady.

    With ``reuse`` the gradients of the last Launch, which had the same base and ranges, are wanted: those
    that are there are used, and work that still goes on goes on (design 3.3). Without it, work that
    still goes on is of no use any more.
    """

    plan: Plan
    task: Task
    reuse: bool


class Hold(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """A catcher's rank sets up a buffer for the reduced gradients of ``plan.round``."""

    plan: Plan
    task: Task


class Abort(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Stop the transfers of ``round``; nothing of them may land any more. What was launched for it may go
    on: the next Launch says whether its gradients are wanted."""

    round: Round


class Measure(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Every bucket of ``round`` is reduced here: compute the scalars that the vote carries
    (square norm of the shard, found-inf). Answered by Measured."""

    round: Round


class Apply(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Optimizer step from the reduced buffer of ``plan.round``. Answered by Applied.

    The buffers of the round are free afterwards; with ``keep`` the ring still serves a neighbour from
    them, and Drop follows.
    """

    plan: Plan
    scalars: Scalars
    keep: bool = False


class Drop(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Throw the reduced (or held) buffer of ``round`` away. Local gradients stay retained."""

    round: Round


class Freeze(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Copy the state (step, lineage) to host, before anything changes it."""

    step: Step
    lineage: Lineage


class Release(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Free the frozen copy of ``lineage``."""

    lineage: Lineage


class SendRange(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Send range ``index`` of the frozen copy of ``lineage``, with its checksum, as RangeData."""

    to: Address
    lineage: Lineage
    index: int


class Stage(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Keep the range that has just arrived in the staging buffer of ``lineage``."""

    lineage: Lineage
    index: int


class Unstage(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Throw the staging buffer of ``lineage`` away."""

    lineage: Lineage


class Restore(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Stage this rank's shard from checkpoint ``name`` ("initial": from the initial state).

    Answered by Restored.
    """

    name: str
    step: Step
    lineage: Lineage


class InstallStaged(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Make the staged state the state of this rank. Answered by Applied with round -1."""

    step: Step
    lineage: Lineage


class WarmUp(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """A throw-away step: allocator, compilation, data loader, communicators. Answered by Warm."""


class SaveShard(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Write this rank's shard of checkpoint ``name``. Answered by Saved."""

    name: str
    step: Step
    lineage: Lineage


# -- time, store, end ----------------------------------------------------------------------------


class SetTimer(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """Deliver TimerFired(name, tag) ``after`` seconds from now. Timers are never cancelled:
    the machine that set one knows whether it still means anything."""

    name: str
    tag: int
    after: float


class StoreCall(Effect, frozen=True, array_like=True, tag=True):
    """Ask the consensus store. Answered by StoreAnswer with the same ``call`` or not at all."""

    call: int
    request: object  # one of store.Request


class Exit(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """This process ends. ``restart`` False: it was fenced or the job stops, do not start it again."""

    reason: str
    restart: bool


class Finish(Effect, frozen=True, array_like=True, tag=True, gc=False):
    """The job is over, and this rank's state is its result: the process ends well, when what it was told to
    send is on its way."""

    step: Step
    lineage: Lineage


class Note(Effect, frozen=True, array_like=True, tag=True):
    """Something that people and logs want to know: a phase of the protocol was reached."""

    what: str
    round: Round
    detail: str = ""
