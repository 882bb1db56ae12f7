"""A member's side of the embedded store: one connection, made anew whenever it breaks (docs/driver.md).

What was asked on a connection that broke stays unanswered, as the protocol expects of a store. What a watch
missed is told when the store is there again: what stands, and which leases have ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftruntime.observe import Report
from ftruntime.protocol import store
from ftruntime.protocol.ids import MemberId
from ftruntime.wire import Connection, Dial, Endpoint, Frame, Loop, Who, decoder

from .messages import Announce, Answered, Ask, Changed, Publish, Seat, Seated, Standing, Subscribe

FIRST_REST_S, LAST_REST_S = 0.02, 1.0  # between attempts to reach a store that is away

decode_answers = decoder(Answered, Changed, Seated, Standing)


class EmbeddedClient:
    """Asks the store at ``endpoint``, and hears of changes.

    on_answer(call, answer), on_change(change), on_seats(seats): told on the loop's thread; None for the
    changes of a member that does not watch the register
    """

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        token: bytes,
        who: Who,
        on_answer: Callable[[int, store.Answer], object],
        on_change: Callable[[store.Change], object] | None,
        on_seats: Callable[[tuple[Seat, ...]], object],
        source: str = "",
    ) -> None:
        self._loop, self._endpoint, self._token, self._who = loop, endpoint, token, who
        self._on_answer, self._on_change, self._on_seats = on_answer, on_change, on_seats
        self._source = source
        self._connection: Connection | None = None
        self._rest = FIRST_REST_S
        self._seat: Seat | None = None
        self._leased: frozenset[MemberId] = frozenset()
        self._unsent: list[Ask] = []
        self.up = False
        self.reason = ""  # why it is not up
        self._dial()

    # -- what is asked -------------------------------------------------------------------------

    def ask(self, call: int, request: Any) -> None:
        """Ask; what is asked before the first connection waits for it, later it is lost with the store."""
        if self._connection is not None:
            self._connection.send(Frame(Ask(call, request)))
        elif not self.reason:
            self._unsent.append(Ask(call, request))

    def announce(self, seat: Seat) -> None:
        """Say where this rank listens, now and to every store that comes back without knowing."""
        self._seat = seat
        if self._connection is not None:
            self._connection.send(Frame(Announce(seat)))

    def publish(self, report: Report) -> None:
        """For people who look at the job; lost where the store is away."""
        if self._connection is not None:
            self._connection.send(Frame(Publish(report)))

    # -- the connection ------------------------------------------------------------------------

    def _dial(self) -> None:
        Dial(
            self._loop, self._endpoint, self._token, self._who, decode_answers, self._met, self._lost,
            self._source,
        )  # fmt: skip

    def _met(self, connection: Connection, who: Who) -> None:
        connection.on_message, connection.on_lost = self._heard, self._lost
        self._connection, self._rest = connection, FIRST_REST_S
        self.up, self.reason = True, ""
        connection.send(Frame(Subscribe(self._on_change is not None)))
        if self._seat is not None:
            connection.send(Frame(Announce(self._seat)))
        for ask in self._unsent:
            connection.send(Frame(ask))
        self._unsent.clear()

    def _lost(self, reason: str) -> None:
        self._connection, self.up, self.reason = None, False, reason
        self._unsent.clear()
        self._loop.after(self._rest, self._dial)
        self._rest = min(LAST_REST_S, 2 * self._rest)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # -- what comes ----------------------------------------------------------------------------

    def _heard(self, message: Answered | Changed | Seated | Standing, payload: object) -> None:
        if isinstance(message, Answered):
            self._on_answer(message.call, message.answer)
        elif isinstance(message, Changed):
            self._changed(message.change)
        elif isinstance(message, Seated):
            self._on_seats(message.seats)
        else:
            self._stands(message)

    def _changed(self, change: store.Change) -> None:
        if isinstance(change, store.LeaseChanged):
            if change.live:
                self._leased |= {change.member}
            else:
                self._leased -= {change.member}
        if self._on_change is not None:
            self._on_change(change)

    def _stands(self, message: Standing) -> None:
        """Everything in its newest form, as changes: what was missed is among it."""
        view = message.view
        if view is not None:
            if view.head is not None:
                self._changed(store.HeadChanged(view.head))
            for record in view.records:
                self._changed(store.RecordChanged(record))
            for member in sorted(self._leased - set(view.leased)):
                self._changed(store.LeaseChanged(member, False))
            for member in view.leased:
                self._changed(store.LeaseChanged(member, True))
        self._on_seats(message.seats)
