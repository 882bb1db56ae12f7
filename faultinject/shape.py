"""The shape of a job, as far as a fault needs it: what there is to hit."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from .errors import ScheduleError, shown

Rank: TypeAlias = tuple[int, int]  # (replica, position in it)
Host: TypeAlias = tuple[int, int]  # (replica, number of the host in it)

RANKS_PER_HOST = 8


class JobShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``replicas`` replicas of ``ranks_per_replica`` ranks, which sit on hosts of 8 in position order.

    ``min_replicas`` is the number without which the job does not train; the budget of a
    recoverable schedule is what lies above it. Raises ScheduleError for sizes that no job has.
    """

    replicas: int
    ranks_per_replica: int
    min_replicas: int = 1

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:  # True is no number of replicas
                raise ScheduleError(f"{name}: {shown(value)} does not fit; write an integer, 1 or more")
        if self.min_replicas > self.replicas:
            raise ScheduleError(
                f"min_replicas: {self.min_replicas} is more than the job's replicas, {self.replicas}; "
                f"write 1 to {self.replicas}"
            )

    @property
    def ranks(self) -> int:
        """Number of ranks in the whole job."""
        return self.replicas * self.ranks_per_replica

    @property
    def hosts_per_replica(self) -> int:
        """Number of hosts in a replica; the last one may be partly filled."""
        return -(-self.ranks_per_replica // RANKS_PER_HOST)

    def rank_at(self, index: int) -> Rank:
        """The rank with this index when all ranks of the job are counted, replica by replica."""
        return divmod(index, self.ranks_per_replica)

    def ranks_of_host(self, host: Host) -> tuple[Rank, ...]:
        """The ranks that sit on a host."""
        replica, number = host
        first = number * RANKS_PER_HOST
        last = min(first + RANKS_PER_HOST, self.ranks_per_replica)
        return tuple((replica, position) for position in range(first, last))


def host_of(rank: Rank) -> Host:
    """The host on which a rank sits."""
    return rank[0], rank[1] // RANKS_PER_HOST
