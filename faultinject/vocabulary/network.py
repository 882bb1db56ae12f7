"""Faults of the network. They hit what a target sends, or what passes between two ranks or groups.

Connections are reliable, as RDMA queue pairs and TCP are: what is lost is sent again, and on one link order
is kept. What a fault can do to the runtime is therefore to make words late, to break connections, and to
let words of different links overtake each other.
"""

from __future__ import annotations

from typing import ClassVar

from ..shape import Host, Rack, Rank
from .base import PLACES, Fault, Group, Link

WAYS = (*PLACES, "link", "groups")


class Partition(Fault, frozen=True, kw_only=True, tag="partition"):
    """Messages between different groups are lost for a time. A party that is in no group reaches all.

    ``one_way``: there are two groups, and only what the first sends to the second is lost.
    """

    groups: tuple[Group, ...]
    one_way: bool = False
    duration: float


class LinkFlap(Fault, frozen=True, kw_only=True, tag="link_flap"):
    """Links go away and come back: transfers over them fail with retries exceeded."""

    ONE_OF: ClassVar[tuple[str, ...]] = (*PLACES, "link")

    rank: Rank | None = None
    host: Host | None = None
    rack: Rack | None = None
    replica: int | None = None
    building: int | None = None
    link: Link | None = None
    duration: float


class OnWay(Fault, frozen=True, kw_only=True):
    """Messages that a place sends, or that pass between the ends of a link, or between groups of replicas."""

    ONE_OF: ClassVar[tuple[str, ...]] = WAYS

    rank: Rank | None = None
    host: Host | None = None
    rack: Rack | None = None
    replica: int | None = None
    building: int | None = None
    link: Link | None = None
    groups: tuple[Group, ...] | None = None
    duration: float


class MessageLoss(OnWay, frozen=True, kw_only=True, tag="message_loss"):
    """A ``share`` of the messages is lost and sent again, each loss a time-out later; a message that is lost
    seven times in a row breaks its connection with retries exceeded."""

    share: float


class MessageDelay(OnWay, frozen=True, kw_only=True, tag="message_delay"):
    """Every message takes ``seconds`` longer. A connection on which one is late by 15 s is reset."""

    seconds: float


class MessageReorder(OnWay, frozen=True, kw_only=True, tag="message_reorder"):
    """Messages take up to ``seconds`` longer, each its own time, so that those of different links overtake
    each other. On one link they keep their order."""

    seconds: float


class MessageDuplicate(OnWay, frozen=True, kw_only=True, tag="message_duplicate"):
    """A ``share`` of the messages between replicas arrives twice, the copy right behind the original."""

    share: float


class BandwidthLoss(OnWay, frozen=True, kw_only=True, tag="bandwidth_loss"):
    """Links carry ``factor`` times fewer bytes a second."""

    factor: float
