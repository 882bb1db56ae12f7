"""One rank's device and host, for the driver: gradients, rounds, frozen and staged states (docs/driver.md).

All of it is called on the control thread. What takes long goes to the training thread (whatever changes the
state) or to a copying thread (snapshots, checksums, norms), and reports back through the loop.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.ids import Lineage, Round, Step
from ftruntime.protocol.plan import Plan
from ftruntime.protocol.task import Task
from ftruntime.wire import Loop

from .memory import Bytes, Pool
from .ring_bytes import HeldBytes, RingBytes, adder, as_lists, square_norm
from .worker import Order, Trainee, Work, Worker

SMALL = 64 << 10  # bytes of sums whose norm takes less time than handing them to another thread
RangePart = tuple[int, int]  # (bytes of the whole state, CRC-32 of the range), sent along with a range


class Host:
    """Holds the state (step, lineage) of ``trainee``, which the training thread of ``worker`` trains.

    audit:   digests of states and gradients are worked out for the event log; for small models
    failed:  told, on the loop, when something failed on the copying thread
    """

    def __init__(
        self,
        loop: Loop,
        trainee: Trainee,
        worker: Worker,
        buckets: tuple[int, ...],
        ranges: int,
        lineage: Lineage,
        audit: bool,
        failed: Callable[[BaseException], object],
    ) -> None:
        self._loop, self._trainee, self._worker, self._buckets = loop, trainee, worker, buckets
        self._ranges, self._audit, self._failed = ranges, audit, failed
        self.pool = Pool()
        self.step: Step = 0
        self.lineage = lineage
        self.digest = 0
        self._add = adder(trainee.dtype)
        self._copier = ThreadPoolExecutor(1, "ft-copy")
        self._norms = ThreadPoolExecutor(
            1, "ft-norm"
        )  # a vote waits for it, and must not wait for copies (!)
        self._copies: list[Future[Any]] = []
        self.work: Work | None = None
        self._ready: list[bool] = []
        self.reported = 0  # buckets of the present work that are there, in order
        self.rounds: dict[Round, RingBytes | HeldBytes] = {}
        self._frozen: dict[Lineage, Future[Bytes]] = {}
        self._staged: dict[Lineage, tuple[Bytes, set[int]]] = {}
        self._landing: set[tuple[Lineage, int]] = set()
        self.state_bytes = sum(len(view) for view in trainee.state())
        self.refresh_digest()

    # -- compute -------------------------------------------------------------------------------

    def launch(self, plan: Plan, task: Task, reuse: bool, ready: Callable[[Work, int], object]) -> bool:
        """Have gradients computed, or take over those of the last launch (True): those that are there, and
        work that still goes on."""
        work = self.work
        if reuse and work is not None and (work.base, work.ranges) == (self.lineage, task.ranges):
            work.round = plan.round
            return True
        grads = [self.pool.take(size) for size in self._buckets]
        self.work = Work(self.lineage, self.step, task.ranges, plan.round, grads, ready)
        self._ready, self.reported = [False] * len(self._buckets), 0
        self._worker.put(self.work)
        return False

    def bucket_ready(self, work: Work, bucket: int) -> range:
        """Which buckets the protocol may be told of now, since it wants them in order."""
        if work is not self.work or self._ready[bucket]:
            return range(0)
        self._ready[bucket] = True
        first = self.reported
        while self.reported < len(self._ready) and self._ready[self.reported]:
            self.reported += 1
        return range(first, self.reported)

    @property
    def computed(self) -> bool:
        """Every gradient of the present work is there."""
        return self.work is not None and self.reported == len(self._buckets)

    def warm_up(self, done: Callable[[], object]) -> None:
        """A donor's snapshot must not wait for pages: the optimizer's step waits for the snapshot."""
        reserved = self._beside(lambda: self.pool.reserve(self.state_bytes))
        self._worker.put(Order(self._trainee.warm_up, lambda: self._loop.call(done), (reserved,)))

    # -- rounds --------------------------------------------------------------------------------

    def open(self, round: Round, geometry: Geometry, index: int, zeros: bool) -> RingBytes:
        """The bytes of ring member ``index``."""
        assert round not in self.rounds, f"round {round} is open already"
        assert zeros or self.work is not None, "FTAR sums gradients that were launched"
        grads = None if zeros or self.work is None else self.work.grads
        opened = RingBytes(self.pool, geometry, index, grads, self._add)
        self.rounds[round] = opened
        return opened

    def hold(self, round: Round, geometry: Geometry, index: int) -> None:
        assert round not in self.rounds, f"round {round} is open already"
        self.rounds[round] = HeldBytes(self.pool, geometry, index)

    def drop(self, round: Round) -> bool:
        """Whether there was anything to drop."""
        return self.rounds.pop(round, None) is not None

    def measure(self, round: Round, done: Callable[[tuple[float, ...]], object]) -> None:
        """The square norm of this rank's sums."""
        sums, dtype = self.rounds[round].sums, self._trainee.dtype
        if sum(map(len, sums)) <= SMALL:
            norm = square_norm(sums, dtype)
            self._loop.soon(lambda: done((norm,)))
            return

        def measured() -> None:
            norm = square_norm(sums, dtype)
            self._loop.call(lambda: done((norm,)))

        self._norms.submit(measured).add_done_callback(self._look)

    def apply(self, plan: Plan, scalars: Sequence[float], done: Callable[[], object]) -> list[Bytes]:
        """The optimizer step from the sums of the plan's round; returns them."""
        sums = self.rounds.pop(plan.round).sums

        def act() -> None:
            self._trainee.apply(sums, plan, scalars)
            self.refresh_digest()

        def changed() -> None:
            self.step, self.lineage = plan.base.step + 1, plan.lineage_after
            done()

        self._forget_work()
        self._worker.put(Order(act, lambda: self._loop.call(changed), tuple(self._unfinished())))
        return sums

    def _forget_work(self) -> None:
        """Gradients of a base that this rank no longer has."""
        self.work = None

    # -- states --------------------------------------------------------------------------------

    def freeze(self, lineage: Lineage) -> None:
        """Copy the state beside whatever goes on; nothing changes it before that is done."""
        if lineage not in self._frozen:
            copy = self._frozen[lineage] = self._beside(self._copy)
            self._copies.append(copy)

    def _beside(self, act: Callable[[], Any]) -> Future[Any]:
        """Do ``act`` on the copying thread, in order. What fails there fails the rank."""
        future = self._copier.submit(act)
        future.add_done_callback(self._look)
        return future

    def _look(self, future: Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._loop.call(lambda: self._failed(error))

    def _copy(self) -> Bytes:
        block = self.pool.take(self.state_bytes)
        at = 0
        for view in self._trainee.state():
            block[at : at + len(view)] = np.frombuffer(view, np.uint8)
            at += len(view)
        return block

    def _unfinished(self) -> list[Future[Any]]:
        self._copies = [copy for copy in self._copies if not copy.done()]
        return self._copies

    def release(self, lineage: Lineage) -> None:
        self._frozen.pop(lineage, None)

    def range_data(
        self, lineage: Lineage, index: int, done: Callable[[RangePart, memoryview], object]
    ) -> None:
        """Range ``index`` of a frozen copy, when that is complete, with what it is to be checked by."""
        frozen = self._frozen.get(lineage)
        if frozen is None:
            return

        def cut() -> None:
            part = self._part(frozen.result(), index)
            check = zlib.crc32(part)
            self._loop.call(lambda: done((self.state_bytes, check), memoryview(part)))

        self._beside(cut)

    def _part(self, state: Bytes, index: int) -> Bytes:
        size = -(-self.state_bytes // self._ranges)
        return state[index * size : (index + 1) * size]

    def landing_range(self, lineage: Lineage, index: int, size: int) -> memoryview:
        """Where a range is to be received: its place in the staged state, unless that is taken already."""
        state, staged = self._staging(lineage)
        place = self._part(state, index)
        if index in staged or (lineage, index) in self._landing or len(place) != size:
            return memoryview(self.pool.take(size))
        self._landing.add((lineage, index))
        return memoryview(place)

    def _staging(self, lineage: Lineage) -> tuple[Bytes, set[int]]:
        if lineage not in self._staged:
            self._staged[lineage] = (self.pool.take(self.state_bytes), set())
        return self._staged[lineage]

    def check_range(
        self, lineage: Lineage, index: int, part: object, data: memoryview, done: Callable[[bool], object]
    ) -> None:
        """Whether a range that has arrived fits the ``RangePart`` that came with it."""

        def check() -> None:
            intact = part == [self.state_bytes, zlib.crc32(data)]
            self._loop.call(lambda: self._checked(lineage, index, intact, done))

        self._beside(check)

    def _checked(self, lineage: Lineage, index: int, intact: bool, done: Callable[[bool], object]) -> None:
        self._landing.discard((lineage, index))
        done(intact)

    def stage(self, lineage: Lineage, index: int, data: memoryview) -> None:
        """Keep the range that has just arrived, wherever it has landed."""
        state, staged = self._staging(lineage)
        place = self._part(state, index)
        arrived = np.frombuffer(data, np.uint8)
        if not np.shares_memory(place, arrived):
            place[:] = arrived
        staged.add(index)

    def stage_whole(self, lineage: Lineage, state: Bytes) -> None:
        self._staged[lineage] = (state, set(range(self._ranges)))

    def unstage(self, lineage: Lineage) -> None:
        self._staged.pop(lineage, None)
        self._landing = {key for key in self._landing if key[0] != lineage}

    def install(self, step: Step, lineage: Lineage, done: Callable[[], object]) -> None:
        """Make the staged state the state."""
        state, staged = self._staged.pop(lineage)
        assert len(staged) == self._ranges, "a state is installed when all of its ranges are staged"

        def act() -> None:
            at = 0
            for view in self._trainee.state():
                view[:] = memoryview(state)[at : at + len(view)]
                at += len(view)
            self._trainee.installed()
            self.refresh_digest()

        def changed() -> None:
            self.step, self.lineage = step, lineage
            done()

        self._forget_work()
        self._worker.put(Order(act, lambda: self._loop.call(changed), tuple(self._unfinished())))

    def copied(self, done: Callable[[Bytes], object]) -> None:
        """Give a copy of the present state to ``done``, on the copying thread, before it can change."""
        self._copies.append(self._beside(lambda: done(self._copy())))

    # -- audit ---------------------------------------------------------------------------------

    def refresh_digest(self) -> None:
        """64 bits that are equal exactly when the state is; on the thread that has changed it."""
        if self._audit:
            digest = hashlib.blake2b(digest_size=8)
            for view in self._trainee.state():
                digest.update(view)
            self.digest = int.from_bytes(digest.digest(), "little")

    def in_lists(self, buffers: Sequence[Bytes]) -> list[list[float]]:
        return as_lists(buffers, self._trainee.dtype)

    def resources(self) -> dict[str, int]:
        """Counts of what a rank may leak."""
        held = sum(kept.learned for kept in self.rounds.values())
        frozen, staged = len(self._frozen), len(self._staged)
        return {"buffers": len(self.rounds) - held, "held": held, "frozen": frozen, "staged": staged}

    def close(self) -> None:
        self._worker.put(None)
        for threads in (self._copier, self._norms):
            threads.shutdown(wait=False, cancel_futures=True)
