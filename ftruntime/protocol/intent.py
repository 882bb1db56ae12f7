"""What a leader wants of the head, and the head that would grant it.

An intent is evaluated against the newest head that the leader has seen, again after every failed
compare-and-set, and always with the same round: so a lost answer or a lost race ends in what
became of that round, never in a second commit (!).
"""

from __future__ import annotations

import enum

import msgspec

from .advance import Advance, NotYet, advance
from .client import StoreClient
from .config import JobConfig
from .head import Checkpoint, Fate
from .ids import MemberId, Round
from .planner import Members
from .recovery import record_checkpoint, recover


class Want(enum.IntEnum):
    COMMIT = 1
    CLOSE = 2
    RECOVER = 3
    CHECKPOINT = 4


class Intent(msgspec.Struct, frozen=True):
    """``fresh``: read the head, then the records, before deciding; a commit needs no such read."""

    want: Want
    round: Round
    grace_over: bool = False
    checkpoint: Checkpoint | None = None

    @property
    def fresh(self) -> bool:
        return self.want in (Want.CLOSE, Want.RECOVER)


def evaluate(
    config: JobConfig, client: StoreClient, intent: Intent, me: MemberId, members: Members | None = None
) -> Advance:
    """The head to write for ``intent``, or what makes it needless or too early.

    members: as they were just read, if they were; else as the watch has brought them
    """
    head, members = client.head, members or client.members
    if head is None:
        return NotYet("no head has been seen")
    if intent.want is Want.COMMIT:
        return advance(config, head, intent.round, Fate.COMMITTED, me, members)
    if intent.want is Want.CLOSE:
        return advance(config, head, intent.round, Fate.CLOSED, me, members)
    if intent.want is Want.RECOVER:
        return recover(config, head, intent.round, me, members, intent.grace_over)
    assert intent.checkpoint is not None
    return record_checkpoint(config, head, intent.checkpoint, me)
