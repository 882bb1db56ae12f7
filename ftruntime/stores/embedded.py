"""The embedded store: the register served over TCP by one process, durable on its disk (docs/driver.md).

Requests that arrive in one turn of the loop are carried out together and made durable by one fsync; then
they are answered and the watchers are told. A store that cannot write stops: what it has told nobody of has
not happened. After a restart, or a pause, every lease runs anew: nobody can know who renewed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ftruntime.observe import Board
from ftruntime.wire import Connection, Endpoint, Frame, Listener, Loop, Timer, Who, decoder

from .durable import DurableRegister
from .messages import (
    Announce,
    Answered,
    Ask,
    Changed,
    Look,
    Looked,
    Publish,
    Seated,
    Standing,
    Subscribe,
)

Request = Ask | Subscribe | Announce | Publish | Look
Reply = Answered | Changed | Seated | Standing | Looked
decode_requests = decoder(Ask, Subscribe, Announce, Publish, Look)


class _Guest:
    """One connection. ``changes``: it watches the register, too; ``watching``: endpoints at least;
    ``told``: it has been told what stands."""

    __slots__ = ("changes", "connection", "told", "watching")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.watching = self.changes = self.told = False


class EmbeddedStore:
    """Serves the register in ``folder`` at ``host``:``port`` (0: any free port; see ``endpoint``).

    Raises DamagedLog, and OSError when the folder or the address cannot be had.
    """

    def __init__(
        self,
        loop: Loop,
        folder: Path,
        token: bytes,
        job: str,
        host: str = "127.0.0.1",
        port: int = 0,
        history: bool = False,
    ) -> None:
        self._loop = loop
        self._durable = DurableRegister(folder, history)
        self._durable.register.prolong(loop.now())
        self._guests: dict[int, _Guest] = {}
        self._met = 0
        self._board = Board()
        self._work: list[tuple[_Guest, Request]] = []
        self._timer: Timer | None = None
        who = Who("store", job)
        self._listener = Listener(loop, host, port, token, lambda: who, decode_requests, self._welcome)
        loop.on_pause = lambda: self._durable.register.prolong(loop.now())
        self._arm()

    @property
    def endpoint(self) -> Endpoint:
        return self._listener.endpoint

    def _welcome(self, connection: Connection, who: Who) -> None:
        self._met += 1
        number, guest = self._met, _Guest(connection)
        self._guests[number] = guest
        connection.on_message = lambda message, _: self._heard(guest, message)
        connection.on_lost = lambda reason: self._guests.pop(number, None)

    def _heard(self, guest: _Guest, message: Request) -> None:
        if not self._work:
            self._loop.soon(self._serve)
        self._work.append((guest, message))

    def _serve(self) -> None:
        """Everything that has arrived: carry it out, make it durable, and only then say so, in order."""
        work, self._work = self._work, []
        out: list[tuple[_Guest | None, Reply]] = []
        now = self._loop.now()
        for guest, message in work:
            out += self._carry_out(guest, message, now)
        self._durable.expire_due(now)
        out += self._changes()
        self._durable.commit()
        for guest, frames in self._addressed(out):
            guest.connection.send_all(frames)
        self._arm()

    def _carry_out(self, guest: _Guest, message: Request, now: float) -> list[tuple[_Guest | None, Reply]]:
        """What is to be said of it: the answer to who asked first, then the changes to who watches."""
        if isinstance(message, Ask):
            answer = self._durable.execute(message.request, now)
            return [(guest, Answered(message.call, answer)), *self._changes()]
        if isinstance(message, Announce):
            return [(None, Seated((message.seat,)))] if self._durable.sit(message.seat) else []
        if isinstance(message, Publish):
            self._board.put(message.report)
            return []
        if isinstance(message, Look):
            return [(guest, Looked(self._durable.register.view(), self._board.all()))]
        guest.watching, guest.changes = True, message.changes
        view = self._durable.register.view() if message.changes else None
        return [(guest, Standing(view, tuple(self._durable.seats.values())))]

    def _changes(self) -> list[tuple[_Guest | None, Reply]]:
        return [(None, Changed(change)) for change in self._durable.take_changes()]

    def _addressed(self, out: Iterable[tuple[_Guest | None, Reply]]) -> Iterable[tuple[_Guest, list[Frame]]]:
        """What each guest is to hear, in order; what many hear is encoded once. A guest that begins to watch
        is told what stands before it hears of changes."""
        heard: dict[int, list[Frame]] = {number: [] for number in self._guests}
        numbers = {guest: number for number, guest in self._guests.items()}
        for guest, reply in out:
            frame = Frame(reply)
            if guest is not None:
                if guest in numbers:
                    heard[numbers[guest]].append(frame)
                    guest.told |= isinstance(reply, Standing)
                continue
            for number, other in self._guests.items():
                if other.told and (other.changes if isinstance(reply, Changed) else other.watching):
                    heard[number].append(frame.again())
        return [(guest, heard[number]) for number, guest in self._guests.items() if heard[number]]

    def _arm(self) -> None:
        """Wake up when the next lease ends."""
        if self._timer is not None:
            self._timer.cancel()
        leases = self._durable.register.leases.values()
        if leases:
            due = min(lease.expires for lease in leases)
            self._timer = self._loop.after(max(0.0, due - self._loop.now()), self._serve)

    def close(self) -> None:
        self._listener.close()
        for guest in self._guests.values():
            guest.connection.close()
        self._durable.close()
