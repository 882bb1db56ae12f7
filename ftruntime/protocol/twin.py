"""A rank's twin at another position of its replica: for a driver that runs alike positions once.

Positions of a replica differ in their place in the tree, and in what happens to them. Two ranks that have
heard the same and stand alike in the tree are equal but for the position, so the one can be made of the
other. Only while a rank *rests* with a change of its state under way: it has voted, every neighbour has what
it needs, and nothing is on its way to or from it but the device's answer.
"""

from __future__ import annotations

from .ids import Position
from .member import Member
from .rank import Rank
from .ring import Ring
from .shard import Phase
from .share import Share, State

# What two ranks may hold that is not the position's own. Ballots name children, and are over by then.
_SAME = (
    "me", "phase", "step", "lineage", "_change", "_fetch_number", "_warm",
    "_begun", "_launched", "_window", "_checkpoint", "_passed_over",
)  # fmt: skip


def resting(member: Member) -> bool:
    """Whether ``member`` waits for its device to carry out one change, and for nothing else."""
    change = member._change
    if member.phase is not Phase.CHANGING or change is None or list(member.shares) != [change.round]:
        return False
    donor = member._donor
    return not (
        member._early
        or member._calls
        or member._fetch is not None
        or member._restoring is not None
        or member._saving is not None
        or (donor is not None and (donor.frozen or donor.waiting))
        or not _whole(member.shares[change.round])
    )


def _whole(share: Share) -> bool:
    """Nothing of the round is wanted from here any more."""
    alone = share.source is None and share.sink is None and not share.sealing
    return alone and share.state is State.VOTED and share.ring is not None and share.acknowledged


def image(member: Member) -> tuple[object, ...]:
    """All that a resting ``member`` is, but for its position: equal images do the same from here on."""
    change = member._change
    assert change is not None and resting(member), "only a rank that rests can be compared"
    order = (change.order, change.step, change.lineage, change.round)
    return (*(getattr(member, name) for name in _SAME if name != "_change"), order)


def twin(rank: Rank, position: Position) -> Rank:
    """A rank at ``position`` that is as far as ``rank``, which rests."""
    member = rank.member
    assert rank.leader is None and position != 0, "there is one leader, and it is nobody's twin"
    assert resting(member), "what is under way to a rank cannot be doubled"
    other = Rank(member._config, member.me.replica, position)
    for name in _SAME:
        setattr(other.member, name, getattr(member, name))
    other.member.shares = {round: _moved(share, position) for round, share in member.shares.items()}
    return other


def _moved(share: Share, position: Position) -> Share:
    ring = share.ring
    assert ring is not None
    other = Ring(
        ring.geometry,
        ring.me,
        ring.left,
        ring.right,
        position=position,
        round=ring.round,
        window=ring.window,
        contributing=ring.contributing,
        chunk_timeout=ring._chunk_timeout,
        max_retries=ring._max_retries,
    )
    other.become(ring.image())
    moved = Share(share.plan, share.task, other, None, None)
    moved.become(share.image())
    moved.scalars = share.scalars
    return moved
