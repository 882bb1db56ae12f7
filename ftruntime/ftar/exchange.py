"""One rank's all-reduce of one round: the protocol's ring, driven over an engine and a wire (docs/ftar.md).

The protocol's effects are carried out in their order, but no sooner than the kernel allows:

    effect                     waits for
    -------------------------  ------------------------------------------------------------------------
    transfer of a given chunk  the kernel has made it, and the slot's earlier write is done (!)
    Ack                        the kernel has used up what it acknowledges: its slot may be written anew
    Join                       the slots are free: no kernel reads them, whoever had them is quiet (!)
    anything else              nothing

Checked chunks are looked at before the protocol hears of them. A damaged one is a transient failure of the
link: the neighbour is asked to send again from there, and nothing was summed that was not right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ftruntime.protocol import effects as f
from ftruntime.protocol import messages as m
from ftruntime.protocol.congestion import Window
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.ids import MemberId, Position, Round
from ftruntime.protocol.layout import layout
from ftruntime.protocol.ring import Ring

from .engine import Engine
from .wire import Done, Failed, Gone, Grant, Heard, Quiet, Sight, Wire
from .wire_errors import error_class

POSITION: Final[Position] = 0  # addresses are (replica, position), and a wire connects one position


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds, and how often to try.

    chunk:    without progress, before a neighbour is asked, and then accused
    kernel:   for an operation that was published, before the own device counts as hung
    retries:  fresh attempts with each neighbour in a round
    """

    chunk: float = 30.0
    kernel: float = 30.0
    retries: int = 3


class Exchange:
    """The round ``round`` over ``members``, in ring order, of which ``me`` is one.

    ``engine`` has begun the round. ``turn`` does what can be done; ``failure`` or ``finished`` end it.
    ready:  buckets 0 .. n-1 were said to be there
    """

    def __init__(
        self,
        engine: Engine,
        wire: Wire,
        geometry: Geometry,
        members: tuple[MemberId, ...],
        me: MemberId,
        round: Round,
        window: Window,
        patience: Patience,
        now: float,
    ) -> None:
        index = members.index(me)
        self._engine, self._wire, self._geometry, self._patience = engine, wire, geometry, patience
        self.round, self.me = round, me
        self.left, self.right = members[index - 1], members[(index + 1) % len(members)]
        self._sizes = [spot.end - spot.start for spot in layout(geometry, index).sent]
        self._incoming = [spot.end - spot.start for spot in layout(geometry, index).received]
        self.ring = Ring(
            geometry, me, self.left, self.right, position=POSITION, round=round, window=window,
            contributing=True, chunk_timeout=patience.chunk, max_retries=patience.retries,
        )  # fmt: skip
        self._given = [0] * geometry.slots  # the operation that made what is in a send slot
        self._taken = -1  # the operation that used up the last chunk
        self._acks: deque[tuple[int, m.Ack]] = deque()
        self._writes: deque[tuple[int, int, bool]] = deque()  # (operation, chunk, push)
        self._busy: dict[int, int] = {}  # slot -> the write that is under way from it
        self._slot_of: dict[int, tuple[int, int]] = {}  # write -> (slot, chunk)
        self._unchecked: deque[tuple[m.Chunk, int]] = deque()
        self._resuming = False  # what comes before the chunk that was asked for again was sent before that
        self._timers: list[float] = []
        self._kernel_at, self._kernel_done = now, engine.flags.done
        self.failure: ErrorReport | None = None
        self.ready = 0

    # -- this rank ---------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Grant the receive slots to the left neighbour: the caller knows that they are free."""
        self._step(lambda out: self.ring.start(now, out), now)

    def bucket_ready(self, now: float, event: Any = None) -> None:
        """The next bucket's gradient is there, or will be after ``event`` of the device."""
        bucket, self.ready = self.ready, self.ready + 1
        self._engine.ready(bucket, event)
        self._step(lambda out: self.ring.bucket_ready(bucket, now, out), now)

    @property
    def finished(self) -> bool:
        """All sums are here and at the right neighbour, and the left one knows that they are here."""
        return self.ring.finished and self._engine.complete and not self._acks

    @property
    def quiet(self) -> bool:
        """No write of this round is under way."""
        return not self._slot_of

    def forget(self, write: int) -> None:
        """Write ``write`` has ended; the round is over anyway."""
        slot, _ = self._slot_of.pop(write, (-1, -1))
        self._busy.pop(slot, None)

    def turn(self, now: float) -> bool:
        """Time passes, and kernels get on. Whether anything moved."""
        moved = self._look_at_checks(now)
        self._engine.publish(self._is_free)
        moved |= self._release_acks()
        moved |= self._release_writes()
        self._watch_kernel(now)
        due = [at for at in self._timers if at <= now]
        if due:
            self._timers = [at for at in self._timers if at > now]
            self._step(lambda out: self.ring.timer(now, out), now)
        if self.failure is None and self.ring.failure is not None:
            self.failure = self.ring.failure
        return moved or bool(due)

    def next_timer(self) -> float:
        """When ``turn`` is wanted at the latest."""
        return min(self._timers, default=float("inf"))

    # -- the wire ----------------------------------------------------------------------------

    def see(self, sight: Sight, now: float) -> None:
        """What the wire brought."""
        if isinstance(sight, Heard):
            self._hear(sight, now)
        elif isinstance(sight, Done):
            self._ended(sight.write, now)
        elif isinstance(sight, Failed):
            self._write_failed(sight, now)
        elif isinstance(sight, Gone):
            self._gone(sight, now)

    def _hear(self, heard: Heard, now: float) -> None:
        peer, word = heard.peer, heard.word
        if isinstance(word, Grant):
            if word.join.round == self.round and peer == self.right:
                self._wire.meet(peer, word.card)
            word = word.join
        if isinstance(word, Quiet) or word.round != self.round:
            return
        if isinstance(word, m.Chunk) and word.data is not None:
            self._check(peer, word, now)
        else:
            self._step(lambda out: self.ring.handle(peer.replica, word, now, out), now)

    def _ended(self, write: int, now: float) -> None:
        slot, chunk = self._slot_of.pop(write, (-1, -1))
        if slot < 0:
            return
        del self._busy[slot]
        if self._geometry.needs_completions:
            self._step(lambda out: self.ring.sent(chunk + 1, now, out), now)

    def _write_failed(self, sight: Failed, now: float) -> None:
        slot, _ = self._slot_of.pop(sight.write, (-1, -1))
        if slot < 0:
            return
        del self._busy[slot]
        kind = error_class(sight.status)
        if kind is ErrorClass.TRANSIENT:
            self._transient(self.right, sight.status, now)
        elif kind is ErrorClass.PEER_LOST:
            self._lost(self.right, sight.status, now)
        else:
            self.failure = ErrorReport(kind, sight.status)

    def _gone(self, sight: Gone, now: float) -> None:
        if sight.peer in (self.left, self.right):
            self._lost(sight.peer, sight.status, now)

    def _lost(self, peer: MemberId, status: str, now: float) -> None:
        self._step(lambda out: self.ring.peer_lost(peer.replica, peer.incarnation, status, now, out), now)

    def _transient(self, peer: MemberId, status: str, now: float) -> None:
        self._step(lambda out: self.ring.transient(peer.replica, status, now, out), now)

    # -- received chunks -----------------------------------------------------------------------

    def _check(self, peer: MemberId, chunk: m.Chunk, now: float) -> None:
        """Have it checked if it is the one that is due: of another one nothing will be used."""
        due = self.ring.received + len(self._unchecked)
        if not self.ring.is_left(peer.replica, chunk.round, chunk.incarnation):
            return
        if chunk.seq == due < self.ring.total and not self.ring.sealed:
            self._resuming = False
            slot = chunk.seq % self._geometry.slots
            self._unchecked.append((chunk, self._engine.check(slot, self._incoming[chunk.seq])))
        elif not self._unchecked and not self._resuming:
            self._step(lambda out: self.ring.handle(peer.replica, chunk, now, out), now)

    def _look_at_checks(self, now: float) -> bool:
        moved = False
        while self._unchecked and self._engine.is_checked(self._unchecked[0][1]):
            chunk, number = self._unchecked.popleft()
            moved = True
            if self._engine.checked_sum(number) == chunk.data:
                self._step(lambda out, c=chunk: self.ring.handle(self.left.replica, c, now, out), now)
            else:
                self._unchecked.clear()
                self._resuming = True
                self._transient(self.left, f"chunk {chunk.seq} of round {self.round} arrived damaged", now)
        return moved

    # -- effects -------------------------------------------------------------------------------

    def _step(self, act: Callable[[list[f.Effect]], object], now: float) -> None:
        out: list[f.Effect] = []
        act(out)
        for effect in out:
            self._carry_out(effect, now)

    def _carry_out(self, effect: f.Effect, now: float) -> None:
        if isinstance(effect, f.Post):
            self._post(effect)
        elif isinstance(effect, f.Send):
            self._send(effect)
        elif isinstance(effect, f.SetTimer):
            self._timers.append(now + effect.after)
        else:
            assert isinstance(effect, f.Reconnect), f"a ring does not ask for {effect}"
            # Whatever the transport needs to mend itself it does by itself; what was lost is sent again.
            self._step(lambda out: self.ring.reconnected(effect.peer, now, out), now)

    def _post(self, post: f.Post) -> None:
        if not post.filled:
            number = self._engine.put(post.take, post.give)
            self._engine.publish(self._is_free)
            if post.take >= 0:
                self._taken = number
            if post.give >= 0:
                self._given[post.give % self._geometry.slots] = number
        if post.send:
            made_by = self._given[post.give % self._geometry.slots]
            self._writes.append((made_by, post.give, post.push))

    def _is_free(self, slot: int) -> bool:
        """The kernel may fill send slot ``slot``: no write from it is under way, acknowledged or not (!)."""
        return slot not in self._busy

    def _send(self, send: f.Send) -> None:
        message = send.message
        if isinstance(message, m.Ack):
            self._acks.append((self._taken, message))
        elif isinstance(message, m.Join):
            self._wire.tell(self.left, Grant(message, self._wire.card))
        else:
            assert isinstance(message, m.Probe | m.Waiting), f"not a word of a ring: {message}"
            self._wire.tell(self._neighbour(send.to[0]), message)

    def _neighbour(self, replica: int) -> MemberId:
        return self.left if replica == self.left.replica else self.right

    def _release_acks(self) -> bool:
        """Of several that may go, the last says it all."""
        last = None
        while self._acks and (self._acks[0][0] < 0 or self._engine.is_done(self._acks[0][0])):
            last = self._acks.popleft()[1]
        if last is not None:
            self._wire.tell(self.left, last)
        return last is not None

    def _release_writes(self) -> bool:
        moved = False
        while self._writes and self._engine.is_done(self._writes[0][0]):
            made_by, give, push = self._writes[0]
            slot = give % self._geometry.slots
            if self._given[slot] == made_by:
                if slot in self._busy:
                    return moved
                self._write(slot, give, push, made_by)
                moved = True
            # else: it was to be sent once more, but is acknowledged, and the slot is for another one
            self._writes.popleft()
        return moved

    def _write(self, slot: int, give: int, push: bool, made_by: int) -> None:
        data = self._engine.checksum(made_by) if self._engine.checked else None
        chunk = m.Chunk(self.round, self.me.incarnation, give, push, data)
        write = self._wire.write(self.right, slot, self._sizes[give], chunk)
        self._busy[slot] = write
        self._slot_of[write] = (slot, give)

    def _watch_kernel(self, now: float) -> None:
        broken = self._engine.broken
        if broken is not None:
            self.failure = ErrorReport(ErrorClass.LOCAL_FATAL, f"a kernel failed: {broken}")
        done = self._engine.flags.done
        if done != self._kernel_done or done == self._engine.flags.published:
            self._kernel_done, self._kernel_at = done, now
        elif now - self._kernel_at > self._patience.kernel and self.failure is None:
            reason = f"the kernel has not done operation {done} in {self._patience.kernel:g} s"
            self.failure = ErrorReport(ErrorClass.LOCAL_FATAL, reason)
