"""What the hub of a job and the hosts of its ranks tell each other.

The hub has the consensus store, the launchers and the faults that wait for a phase; hosts have processes.
What one tells the other takes time, wherever they are: so a run is the same in one process and in several
workers, where nothing may act sooner than others can hear of it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from faultinject import AnyFault
from ftruntime.protocol.ids import Incarnation, Replica, Step

COMMAND_S = 1e-3  # from the hub to a host
SEES_DEATH_S = 0.05  # until the launcher's wait on its processes returns

Life = tuple[Replica, int]  # a replica, and how often it was started before


class Told(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of what is told."""


# -- from the hub to all hosts ------------------------------------------------------------------------


class Start(Told, frozen=True, array_like=True, tag=True):
    """Start the processes of ``life``. ``warm_up_s``: how long its throw-away step takes."""

    life: Life
    warm_up_s: float


class End(Told, frozen=True, array_like=True, tag=True):
    """End what is left of ``life``."""

    life: Life


class Inject(Told, frozen=True, array_like=True, tag=True):
    """Faults that waited for a phase take effect."""

    faults: tuple[AnyFault, ...]


class Forget(Told, frozen=True, array_like=True, tag=True):
    """Storage keeps the checkpoints ``recorded``, and what may still come on record: no older than step
    ``oldest``."""

    recorded: tuple[str, ...]
    oldest: Step


# -- from a host to the hub -----------------------------------------------------------------------------


class Died(Told, frozen=True, array_like=True, tag=True):
    """A process of ``life`` died."""

    life: Life


class Left(Told, frozen=True, array_like=True, tag=True):
    """A process ended itself: fenced, or because its replica is broken. ``restart``: whether it asks for a
    successor."""

    life: Life
    incarnation: Incarnation
    reason: str
    restart: bool


Command = Start | End | Inject | Forget
Report = Died | Left
Hear = Callable[[Told, float], object]
