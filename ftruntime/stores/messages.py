"""What a member and the embedded store say to each other, over ``ftruntime.wire``."""

from __future__ import annotations

import msgspec

from ftruntime.observe import Report
from ftruntime.protocol import store
from ftruntime.protocol.ids import Position, Replica
from ftruntime.wire import Endpoint


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Carry out ``request``; answered by ``Answered`` with the same ``call`` once it is durable, or never."""

    call: int
    request: store.Read | store.Cas | store.Put | store.Renew | store.Expire


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=True):
    call: int
    answer: store.View | store.CasDone | store.PutDone | store.Renewed | store.Expired


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Show what stands (``Standing``), and every change from then on.

    changes:  of the head, records and leases, too, not only endpoints
    """

    changes: bool


class Changed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    change: store.HeadChanged | store.RecordChanged | store.LeaseChanged


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """Where the rank at (replica, position) listens, in its life number ``life``."""

    replica: Replica
    position: Position
    life: int
    endpoint: Endpoint


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tell everybody of ``seat``; ignored if a later life of the rank has announced itself."""

    seat: Seat


class Seated(msgspec.Struct, frozen=True, array_like=True, tag=True):
    seats: tuple[Seat, ...]


class Standing(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the register shows at the moment of ``Subscribe``; ``view`` None if changes were not asked for."""

    view: store.View | None
    seats: tuple[Seat, ...]


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Keep ``report`` for people who look; it is kept in memory, and answered by nothing."""

    report: Report


class Look(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Show what stands and what was published; answered by ``Looked``."""


class Looked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    view: store.View
    reports: tuple[Report, ...]
