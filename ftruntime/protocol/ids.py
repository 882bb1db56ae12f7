"""Names of things: who a member is, where a rank sits, which state a shard is in.

Plain integers are used for the parts (replica, incarnation, position, round, step) so that
the hot path hashes and compares machine words; this file gives them their names.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Replica: TypeAlias = int  # 0 .. R-1
Incarnation: TypeAlias = int  # 1, 2, ...: the fencing token of one life of a replica
Position: TypeAlias = int  # 0 .. W-1: a rank's place in its replica; equal positions form a ring
Round: TypeAlias = int  # 0 is the closed round before the first plan
Step: TypeAlias = int  # number of optimizer updates that a state contains
Lineage: TypeAlias = str  # 32 hex digits; equal lineage means equal bits (design 3.1)
Address: TypeAlias = tuple[Replica, Position]


class MemberId(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """One life of one replica. A later life fences the earlier ones (design 3.2)."""

    replica: Replica
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.replica}.{self.incarnation}"
