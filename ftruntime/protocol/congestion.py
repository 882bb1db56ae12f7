"""Congestion window of one link: additive increase, multiplicative decrease (design 3.4).

The window is how many chunks a rank has on the way to its right neighbour, at most the C slots.
Links of a far tier are shared by many (FACTS.md: 1:2.8 across zones and again across buildings),
so they start lower and open more slowly. A Window is a value: a ring replaces the one it has, and the
next round goes on with the window that the last one ended with.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Tier(enum.IntEnum):
    """How far apart the two ends of a link are: the nearest thing that both lie in."""

    RACK = 0
    ZONE = 1
    BUILDING = 2
    REGION = 3


# What share of the slots a fresh link may use, as a divisor; and chunks gained per window of acks.
START: Final = {Tier.RACK: 1, Tier.ZONE: 2, Tier.BUILDING: 4, Tier.REGION: 8}
GAIN: Final = {Tier.RACK: 4, Tier.ZONE: 2, Tier.BUILDING: 1, Tier.REGION: 1}


class Window(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``size`` chunks may be in flight, 1 <= size <= limit; ``credit`` acks count towards the next gain."""

    tier: Tier
    limit: int
    size: int
    credit: int = 0

    def acked(self, chunks: int) -> Window:
        """After ``chunks`` more were acknowledged: a full window of them widens it by the tier's gain."""
        size, credit = self.size, self.credit + chunks
        while size < self.limit and credit >= size:
            credit -= size
            size = min(self.limit, size + GAIN[self.tier])
        return Window(self.tier, self.limit, size, 0 if size == self.limit else credit)

    def halved(self) -> Window:
        """After a transient error on the link."""
        return Window(self.tier, self.limit, max(1, self.size // 2))


def fresh_window(tier: Tier, slots: int) -> Window:
    """The window of a link that has not been used yet; ``slots`` >= 1 is C."""
    assert slots >= 1, "a link without slots carries nothing"
    return Window(tier, slots, max(1, slots // START[tier]))
