"""The shape of a job, as far as a fault needs it: what there is to hit."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from .errors import ScheduleError, shown

Rank: TypeAlias = tuple[int, int]  # (replica, position in it)
Host: TypeAlias = tuple[int, int]  # (replica, number of the host in it)
Rack: TypeAlias = tuple[int, int]  # (replica, number of the rack in it)

RANKS_PER_HOST = 8
HOSTS_PER_RACK = 2
RANKS_PER_RACK = RANKS_PER_HOST * HOSTS_PER_RACK
BUILDINGS = 12  # that replicas lie in, each whole in one of them, if the job has so many


class JobShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``replicas`` replicas of ``ranks_per_replica`` ranks, on hosts of 8, two to a rack, in position order.
    Replica r lies in building ``r mod buildings``.

    ``min_replicas`` is the number without which the job does not train; the budget of a
    recoverable schedule is what lies above it. Raises ScheduleError for sizes that no job has.
    """

    replicas: int
    ranks_per_replica: int
    min_replicas: int = 1
    buildings: int = BUILDINGS

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

    @property
    def racks_per_replica(self) -> int:
        """Number of racks in a replica; the last one may be partly filled."""
        return -(-self.ranks_per_replica // RANKS_PER_RACK)

    @property
    def buildings_used(self) -> int:
        """Number of buildings that have a replica in them."""
        return min(self.buildings, self.replicas)

    def building_of(self, replica: int) -> int:
        """The building in which a replica lies."""
        return replica % self.buildings

    def replicas_of_building(self, building: int) -> tuple[int, ...]:
        """The replicas that lie in a building."""
        return tuple(range(building, self.replicas, self.buildings))

    def rank_at(self, index: int) -> Rank:
        """The rank with this index when all ranks of the job are counted, replica by replica."""
        return divmod(index, self.ranks_per_replica)

    def ranks_of_host(self, host: Host) -> tuple[Rank, ...]:
        """The ranks that sit on a host."""
        return self._block(host, RANKS_PER_HOST)

    def ranks_of_rack(self, rack: Rack) -> tuple[Rank, ...]:
        """The ranks that sit in a rack."""
        return self._block(rack, RANKS_PER_RACK)

    def ranks_of_replica(self, replica: int) -> tuple[Rank, ...]:
        """All ranks of a replica."""
        return tuple((replica, position) for position in range(self.ranks_per_replica))

    def _block(self, block: tuple[int, int], size: int) -> tuple[Rank, ...]:
        replica, number = block
        last = min((number + 1) * size, self.ranks_per_replica)
        return tuple((replica, position) for position in range(number * size, last))


def host_of(rank: Rank) -> Host:
    """The host on which a rank sits."""
    return rank[0], rank[1] // RANKS_PER_HOST
