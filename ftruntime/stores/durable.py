"""The register on disk: every change is in the write-ahead log before anyone hears (docs/driver.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ftruntime.protocol import store
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import Address, MemberId
from ftruntime.protocol.record import Record
from ftruntime.store import Register

from .messages import Seat
from .wal import MAGIC, WriteAheadLog, read_records

COMPACT = 64 << 20  # bytes of log after which it begins anew with what stands
CHANGING = (store.Cas, store.Put, store.Renew, store.Expire)


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What stood when the log began anew."""

    head: Head | None
    records: tuple[Record, ...]
    leases: tuple[tuple[MemberId, float], ...]
    seats: tuple[Seat, ...]


class Carried(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request that changed something, and when (seconds of the store's clock)."""

    time: float
    request: store.Cas | store.Put | store.Renew | store.Expire


class Sat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    seat: Seat


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Snapshot | Carried | Sat).decode


class DurableRegister:
    """A register and the seats of ranks, kept in ``folder``.

    Changes are collected until ``commit`` has made them durable: answer nobody before.
    history: never begin the log anew, so that the whole past can be read off it (``history_of``)
    Raises DamagedLog and OSError.
    """

    def __init__(self, folder: Path, history: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.register = Register()
        self.seats: dict[Address, Seat] = {}
        self._log = WriteAheadLog(folder / "store.wal")
        self._history = history
        self._pending: list[bytes] = []
        for body in self._log.replay():
            self._redo(_decode(body))
        self.register.changes.clear()

    def _redo(self, record: Snapshot | Carried | Sat) -> None:
        register = self.register
        if isinstance(record, Snapshot):
            register.head = record.head
            register.records = {r.member: r for r in record.records}
            for member, ttl in record.leases:
                register.renew(store.Renew(member, ttl), 0.0)
            self.seats = {(s.replica, s.position): s for s in record.seats}
        elif isinstance(record, Carried):
            register.execute(record.request, record.time)
        else:
            self.seats[record.seat.replica, record.seat.position] = record.seat

    def execute(self, request: store.Request, now: float) -> store.Answer:
        """Carry ``request`` out in memory; it counts once it is committed."""
        register, before = self.register, len(self.register.changes)
        answer = register.execute(request, now)
        if isinstance(request, CHANGING) and len(register.changes) > before:
            self._pending.append(_encode(Carried(now, request)))
        return answer

    def expire_due(self, now: float) -> None:
        due = [member for member, lease in self.register.leases.items() if lease.expires <= now]
        for member in sorted(due):
            self.execute(store.Expire(member), now)

    def sit(self, seat: Seat) -> bool:
        """A rank says where it listens. False: it is known, or a later life has said so."""
        address = (seat.replica, seat.position)
        known = self.seats.get(address)
        if known is not None and (known == seat or known.life > seat.life):
            return False
        self.seats[address] = seat
        self._pending.append(_encode(Sat(seat)))
        return True

    def take_changes(self) -> list[store.Change]:
        """What a watch has to show since the last call; show it once it is committed."""
        changes, self.register.changes = self.register.changes, []
        return changes

    def commit(self) -> None:
        """Make everything so far durable."""
        if self._pending:
            self._log.append(self._pending)
            self._pending.clear()
            if self._log.size > COMPACT and not self._history:
                self._log.begin_anew([_encode(self._snapshot())])

    def _snapshot(self) -> Snapshot:
        register = self.register
        leases = tuple((member, lease.ttl) for member, lease in register.leases.items())
        return Snapshot(register.head, tuple(register.records.values()), leases, tuple(self.seats.values()))

    def close(self) -> None:
        self._log.close()


def history_of(folder: Path) -> Iterator[Carried]:
    """All changes that a store with ``history`` has made durable, in order. Raises DamagedLog, OSError."""
    path = folder / "store.wal"
    content = path.read_bytes()
    if content.startswith(MAGIC):
        for body in read_records(content, path)[0]:
            record = _decode(body)
            if isinstance(record, Carried):
                yield record
