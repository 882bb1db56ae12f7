"""One rank's FTAR: rounds one after another, with whoever is a member of each (docs/ftar.md).

Nothing is set up anew between rounds but what has to be: slots stay registered, connections stay up, and a
round may have other members than the last one. What a round leaves behind is cleared up before slots are used
again: the own kernel has ended, the own writes have ended, and whoever was granted the own slots is quiet or
has lost them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ftruntime.protocol.congestion import Tier, Window, fresh_window
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.geometry import Geometry, geometry
from ftruntime.protocol.ids import MemberId, Round

from .engine import Engine
from .exchange import Exchange, Patience
from .wire import Done, Failed, Gone, Grant, Heard, Quiet, Sight, Wire

Grantee: TypeAlias = tuple[MemberId, Round]
EARLY_WORDS: Final = 256  # kept of rounds that this rank has not begun; what is dropped is asked for again
NAPS_S: Final = (0.0,) * 30 + (20e-6,) * 30 + (100e-6,) * 30 + (1e-3,)  # between looks while nothing moves


class Failure(Exception):
    """The round cannot be finished by this rank. ``report`` has the class, the reason and the accused."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report.reason)
        self.report = report


class Communicator:
    """Sums gradients with the ranks of the same position in other replicas.

    me:     this rank's replica and its life
    tier:   how far the neighbours are, for the first congestion window
    quiet:  seconds to wait for the writes of an earlier round to end, before connections are cut for it
    Calls are made by one thread.
    """

    def __init__(
        self,
        engine: Engine,
        wire: Wire,
        me: MemberId,
        *,
        patience: Patience | None = None,
        tier: Tier = Tier.RACK,
        quiet: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.wire, self.me = engine, wire, me
        self._patience, self._tier, self._quiet, self._clock = patience or Patience(), tier, quiet, clock
        self._windows: dict[MemberId, Window] = {}
        self._granted: dict[MemberId, Round] = {}  # who may still write into the slots, since which round
        self._early: deque[Heard] = deque(maxlen=EARLY_WORDS)
        self._gone: set[MemberId] = set()
        self._round: Round = 0
        self._begun: Round = 0  # its words can be heard
        self._left_to: list[tuple[set[Grantee], Any]] = []  # slots that were taken away, and from whom
        self._quieted: set[Grantee] = set()  # of them, who has said Quiet since
        self._dead: set[MemberId] = set()
        self._spare: list[Any] = []
        self.revoked = 0  # how often slots had to be taken away

    def meet(self, peer: MemberId, card: bytes) -> None:
        """Know how to reach ``peer``; connections are made ahead of need."""
        self._gone.discard(peer)
        self.wire.meet(peer, card)

    def all_reduce(
        self,
        round: Round,
        members: tuple[MemberId, ...],
        sizes: tuple[int, ...],
        grads: Sequence[Any],
        sums: Sequence[Any],
        *,
        given_up: Callable[[], bool] = lambda: False,
        events: Sequence[Any] = (),
    ) -> None:
        """Sum ``grads`` of all ``members``, in ring order, into ``sums``. Rounds grow.

        sizes:     bytes of each bucket
        grads, sums:  a tensor of bytes for each, padded to 16
        events:    of the device, that say when each gradient is there
        given_up:  asked often; when it says so the round ends here (someone else failed)
        Raises Failure; then ``sums`` are of no use, and the next round may begin.
        """
        assert round > self._round, f"round {round} after round {self._round}"
        self._round = round
        if len(members) == 1:
            for own, total in zip(grads, sums, strict=True):
                total.copy_(own)
            return
        shape = geometry(sizes, len(members), self.engine.chunk_bytes, self.engine.slots)
        self.engine.begin(shape, members.index(self.me), grads, sums)
        exchange = self._exchange(shape, members, round)
        try:
            self._clear_slots(given_up)
            self._run(exchange, given_up, events)
        except BaseException:
            self.engine.abort()
            raise
        finally:
            self._clear_up(exchange)
        self._windows[exchange.right] = exchange.ring.window

    def _exchange(self, shape: Geometry, members: tuple[MemberId, ...], round: Round) -> Exchange:
        right = members[(members.index(self.me) + 1) % len(members)]
        window = self._windows.get(right) or fresh_window(self._tier, self.engine.slots)
        return Exchange(
            self.engine, self.wire, shape, members, self.me, round, window, self._patience, self._clock()
        )

    # -- a round -------------------------------------------------------------------------------

    def _clear_slots(self, given_up: Callable[[], bool]) -> None:
        """Receive slots are free when nobody may write into them any more (!)."""
        until = self._clock() + self._quiet
        idle = 0
        while self._granted:
            for sight in self.wire.poll():
                self._keep(sight)
            if given_up():
                raise Failure(ErrorReport(ErrorClass.TRANSIENT, "the round was given up"))
            if self._clock() > until or any(peer in self._gone for peer in self._granted):
                self._take_slots_away()
                return
            idle = _rest(idle)

    def _take_slots_away(self) -> None:
        """Whoever was granted the slots may write into them as long as it lives: they are left to it."""
        spare = self._spare.pop() if self._spare else None
        left = self.engine.other_slots(spare)
        self._left_to.append((set(self._granted.items()), left))
        self.wire.revoke(self.engine.received)
        self.revoked += 1
        self._granted.clear()
        self._take_back()

    def _take_back(self) -> None:
        """Memory that was left to those who are quiet or dead by now can be used again."""
        kept = []
        for grants, memory in self._left_to:
            open = {grant for grant in grants if grant not in self._quieted and grant[0] not in self._dead}
            if open:
                kept.append((open, memory))
            else:
                self._spare.append(memory)
        self._left_to = kept
        self._quieted.clear()

    def _run(self, exchange: Exchange, given_up: Callable[[], bool], events: Sequence[Any]) -> None:
        self._granted[exchange.left] = self._begun = exchange.round
        exchange.start(self._clock())
        for gone in self._gone & {exchange.left, exchange.right}:
            exchange.see(Gone(gone, "closed: before the round began"), self._clock())
        buckets = len(self.engine.first) - 1
        for bucket in range(buckets):
            exchange.bucket_ready(self._clock(), events[bucket] if events else None)
        early, self._early = self._early, deque(maxlen=EARLY_WORDS)
        for heard in early:
            self._show(exchange, heard)
        idle = 0
        while not exchange.finished:
            moved = self._turn(exchange)
            if exchange.failure is not None:
                raise Failure(exchange.failure)
            if given_up():
                raise Failure(ErrorReport(ErrorClass.TRANSIENT, "the round was given up"))
            idle = 0 if moved else _rest(idle)

    def _turn(self, exchange: Exchange) -> bool:
        sights = self.wire.poll()
        for sight in sights:
            self._show(exchange, sight)
        return exchange.turn(self._clock()) or bool(sights)

    def _show(self, exchange: Exchange, sight: Sight) -> None:
        if not self._keep(sight) or isinstance(sight, Gone):
            exchange.see(sight, self._clock())

    def _keep(self, sight: Sight) -> bool:
        """What is for the next round, or for no round. False: it is for the present one."""
        if isinstance(sight, Gone):
            self._gone.add(sight.peer)
            if not sight.status.startswith("closed"):  # by this rank, which does not end the peer's writes
                self._dead.add(sight.peer)
                self._take_back()
            return True
        if not isinstance(sight, Heard):
            return False
        word = sight.word
        if isinstance(word, Quiet):
            if self._granted.get(sight.peer) == word.round:
                del self._granted[sight.peer]
            elif self._left_to:
                self._quieted.add((sight.peer, word.round))
                self._take_back()
            return True
        round = word.join.round if isinstance(word, Grant) else word.round
        if round > self._begun:
            self._early.append(sight)
            return True
        return False

    # -- the end of a round --------------------------------------------------------------------

    def _clear_up(self, exchange: Exchange) -> None:
        """Kernels and writes of the round end; then the right neighbour is told. Bounded in time."""
        self.engine.abort()
        self._until(lambda: exchange.quiet, exchange)
        if exchange.quiet:
            self.wire.tell(exchange.right, Quiet(exchange.round, self.me.incarnation))
        else:
            self.wire.part(exchange.right)  # and never Quiet: its bytes may arrive whenever they like
        until = self._clock() + self._patience.kernel
        while not self.engine.ended:
            if self._clock() > until:
                reason = f"a kernel has not ended {self._patience.kernel:g} s after it was aborted"
                raise Failure(ErrorReport(ErrorClass.LOCAL_FATAL, reason))
            time.sleep(NAPS_S[-1])
        self.engine.finish()

    def _until(self, reached: Callable[[], bool], exchange: Exchange) -> None:
        until, idle = self._clock() + self._quiet, 0
        while not reached() and self._clock() < until:
            for sight in self.wire.poll():
                if isinstance(sight, Done | Failed):
                    exchange.forget(sight.write)
                else:
                    self._keep(sight)
            idle = _rest(idle)

    def close(self) -> None:
        """End, and give everything back."""
        self.engine.close()
        self.wire.close()


def _rest(idle: int) -> int:
    """Sleep between looks, the ``idle``-th in a row: hardly at first, and no core is kept busy for long."""
    time.sleep(NAPS_S[min(idle, len(NAPS_S) - 1)])
    return idle + 1
