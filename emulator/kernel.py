"""The event kernel: virtual time, and handlers called in the order of time (design section 2).

Order. Events run by time; events of one time run in *generations*: first those that were
scheduled before the time was reached, in the order of scheduling, then those that they scheduled
for the same time, and so on. Two events of one rank therefore keep their order (per-rank FIFO).
Nothing may lean on the order of events of *different* ranks at one time: it is the order in which
other ranks happened to run, and changes with the partition of ranks over workers. Whoever joins the
words of several ranks (the store, a report) sorts them by (replica, position) first.

Speed. All events of one time lie in one flat list [handler, event, handler, event, ...], so a wave
of 98,304 equal arrivals costs one heap operation, and an event costs no tuple: 0.11 us here against
0.19 us with a tuple for each (`benchmarks/kernel.py`). Handlers should be bound methods made once
per rank and kept, not made anew for each event.
"""

from __future__ import annotations

import gc
import heapq
import math
import operator
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

Handler = Callable[[Any, float], object]  # handler(event, now)

# An instant with more generations than this is two machines that talk without time passing.
MAX_GENERATIONS = 100_000


class KernelError(Exception):
    """An event in the past, or an instant that never ends: a fault of the driver, not of the job."""


class Lane:
    """Events of one position's ring: they touch its ranks alone, and make only each other.

    What a lane has due before the next event outside lanes can run in one go (``Kernel.run``): the few
    ranks of a ring stay in the processor's cache, where a wave over all ranks would not.
    """

    __slots__ = ("_due", "_kernel", "_times", "awake", "number", "voting")

    def __init__(self, kernel: Kernel, number: int) -> None:
        self._kernel = kernel
        self.number = number
        self.voting = False  # a rank of the lane may have voted on the last round that was opened
        self.awake = False  # listed by the kernel among the lanes that have something to do
        self._due: dict[float, list[Any]] = {}
        self._times: list[float] = []

    def at(self, time: float, handler: Handler, event: object) -> None:
        """As ``Kernel.at``, for a message between ranks of this lane."""
        due = self._due.get(time)
        if due is None:
            if not time >= self._kernel.now:
                raise KernelError(
                    f"an event at {time!r} s cannot be scheduled: it is {self._kernel.now!r} s already"
                )
            if time == math.inf:
                return
            due = self._due[time] = []
            heapq.heappush(self._times, time)
            self._kernel.lane_opened(self, time)
        due.append(handler)
        due.append(event)

    def votes(self, now: float) -> None:
        """A rank of the lane may vote now: what comes of that may come back ``horizon`` later."""
        self.voting = True
        self._kernel.lane_limit = min(self._kernel.lane_limit, now + self._kernel.horizon)

    @property
    def next_time(self) -> float:
        return self._times[0] if self._times else math.inf

    @property
    def pending(self) -> int:
        return sum(len(due) for due in self._due.values()) >> 1

    def due(self) -> list[tuple[float, list[Any]]]:
        """What is due, by time: (time, [handler, event, handler, event, ...])."""
        return sorted(self._due.items(), key=operator.itemgetter(0))

    def replace(self, due: list[tuple[float, list[Any]]]) -> None:
        """Let exactly this be due."""
        self._due = dict(due)
        self._times = [time for time, _ in due]

    def run(self, look: Callable[[Handler, float], object] | None = None) -> int:
        """Run what is due before the kernel's ``limit``, but no further than the instant at which something
        outside the lane was scheduled: it may come back to a rank of the lane. Returns the number of events.

        look: called with (handler, time) after each event
        """
        kernel, times, count = self._kernel, self._times, 0
        kernel.left_lane = False
        kernel.lane_limit = kernel.voting_limit if self.voting else kernel.limit
        while times and times[0] < kernel.lane_limit and not kernel.left_lane:
            time = heapq.heappop(times)
            kernel.now = time
            due = self._due.pop(time)
            pairs = iter(due)
            for handler, event in zip(pairs, pairs, strict=True):
                handler(event, time)
                if look is not None:
                    look(handler, time)
            count += len(due)
        return count >> 1


class Kernel:
    """A clock in virtual seconds and the events that are still to come. Nothing is ever cancelled:
    the machine that set a timer knows whether it still means anything.

    now:        time of the event that runs, or of the last one that ran
    events:     how many events have run
    lookahead:  no message from one lane to another takes less, seconds
    careful:    numbers of lanes that must not run ahead, for something may make them differ; None: all
    tie:        up to when lanes may run ahead at most
    runner:     runs lanes that may run ahead, returns how many events that were (``alike.py``)
    horizon:    seconds before which nothing comes of a vote
    until:      before which everything may run now but *leaves*: lanes that no other lane tells anything
    limit:      before which lanes may run now, ``voting_limit`` those that vote, ``lane_limit`` this one
    heavy:      an instant of more is left to the next run, so that other workers hear of what was done
    inner_lanes: lanes of lower numbers are told votes by others
    """

    __slots__ = (
        "_awake", "_due", "_elsewhere", "_first", "_generations", "_instant", "_leaves_until",
        "_ordered", "_times", "careful", "events", "heavy", "horizon", "inner_lanes", "lane_limit",
        "left_lane", "limit", "lookahead", "now", "runner", "tie", "until", "voting_limit",
    )  # fmt: skip

    def __init__(self, lookahead: float = 0.0, inner_lanes: int = 0) -> None:
        """The lanes of the numbers below ``inner_lanes`` are told votes by others."""
        self.now = 0.0
        self.events = 0
        self.lookahead = lookahead
        self.limit = self.voting_limit = self.lane_limit = self.until = math.inf
        self.horizon = 0.0
        self.heavy = math.inf
        self.left_lane = False  # whether something outside lanes was scheduled since a lane began to run
        self.careful: Callable[[], Container[int] | None] = frozenset
        self.tie: Callable[[], float] = lambda: math.inf
        self.runner: Callable[[list[Lane], float], int] = self.run_each
        self._due: dict[float, list[Any]] = {}
        self._times: list[float] = []
        self._ordered: dict[float, list[tuple[Any, Handler, object]]] = {}
        self._awake: tuple[list[Lane], list[Lane]] = ([], [])  # leaves, inner lanes
        self.inner_lanes = inner_lanes
        self._first = [math.inf, math.inf]  # no lane of either kind has anything due before
        self._leaves_until = self._elsewhere = math.inf
        self._generations = 0
        self._instant = -1.0

    def lane(self, number: int) -> Lane:
        """A lane of its own, with nothing due."""
        return Lane(self, number)

    def lane_opened(self, lane: Lane, time: float) -> None:
        """``lane`` has something due at ``time``, where it had nothing before."""
        kind = lane.number < self.inner_lanes
        if time < self._first[kind]:
            self._first[kind] = time
        if not lane.awake:
            lane.awake = True
            self._awake[kind].append(lane)

    def at(self, time: float, handler: Handler, event: object) -> None:
        """Call ``handler(event, time)`` at ``time``. A time of infinity never comes.

        Raises KernelError for a time before ``now``, or one that is not a number.
        """
        try:
            due = self._due[time]
        except KeyError:
            due = self._open(time)
        due.append(handler)
        due.append(event)
        self.left_lane = True

    def in_order(self, time: float, key: Any, handler: Handler, event: object) -> None:
        """As ``at``, after all others of that time and in the order of ``key``, then of scheduling."""
        if time not in self._due:
            self._open(time)
        self._ordered.setdefault(time, []).append((key, handler, event))
        self.left_lane = True

    def _open(self, time: float) -> list[Any]:
        if not time >= self.now:
            raise KernelError(f"an event at {time!r} s cannot be scheduled: it is {self.now!r} s already")
        if time == math.inf:
            return []  # dropped: what never comes must not be counted as pending
        due: list[Any] = []
        self._due[time] = due
        heapq.heappush(self._times, time)
        return due

    def run(self, until: float = math.inf, leaves_until: float = 0.0, elsewhere: float = math.inf) -> None:
        """Run every event due before ``until`` (strictly); afterwards ``now`` is the time of the last event,
        so events may still be scheduled between it and ``until``.

        leaves_until: how far lanes that nobody tells anything may run, if further
        elsewhere:    no lane of another process has anything due before
        """
        self.until, self._leaves_until, self._elsewhere = until, max(until, leaves_until), elsewhere
        before = self.events
        while True:
            time = self._times[0] if self._times else math.inf
            if min(self._first) < min(time, self._leaves_until) and self._run_lanes(time):
                continue
            if time >= self.until or (self.events > before and len(self._due[time]) > self.heavy):
                break
            self._leaves_until = self.until  # lanes run ahead when all workers can
            self._run_instant(time)

    def end_by(self, time: float) -> None:
        """Let the present ``run`` go no further than ``time``."""
        self.until = min(self.until, time)
        self._leaves_until = min(self._leaves_until, time)

    def _run_instant(self, time: float) -> None:
        """The events outside lanes that are due at ``time``, one generation of them."""
        heapq.heappop(self._times)
        self._count_generation(time)
        due = self._due.pop(time)
        if self._ordered and (last := self._ordered.pop(time, None)):
            for _, handler, event in sorted(last, key=operator.itemgetter(0)):
                due += (handler, event)
        pairs = iter(due)
        for handler, event in zip(pairs, pairs, strict=True):
            handler(event, time)
        self.events += len(due) >> 1

    def _run_lanes(self, outside: float) -> bool:
        """Let each lane run before ``outside``, the next event that is not of lanes. Returns whether any did.

        A lane runs ahead of the others, and of what lanes make outside of them, up to the next event that was
        there before. That is sound while nothing that comes of those can touch a ring before it has come as
        far by itself. A vote of yes does nothing before its replica has all of them and the store knows it
        (``horizon``); but ranks with children cast theirs only when they have heard those of the children, so
        *inner* lanes run behind. Where a no is possible without a timer, because links fail (``careful``),
        lanes run first, instant by instant, and the others run no further than what came of that.
        """
        (leaves, inner), careful, before = self._awake, self.careful(), self.events
        first = min(self._first)
        self._first, self._awake = [math.inf, math.inf], ([], [])
        if careful is None or any(lane.number in careful for lane in inner):
            self._run_carefully(leaves + inner, first, min(outside, self.until))
        else:
            self._run_leaves(leaves, careful, first, min(outside, self._leaves_until, self.tie()))
            behind = min((lane.next_time for lane in leaves), default=math.inf) + self.lookahead
            outside = min(outside, self._times[0] if self._times else math.inf)
            self._run_free(inner, first, min(outside, self.until, behind))
        for kind, lanes in enumerate((leaves + self._awake[0], inner + self._awake[1])):
            for lane in lanes:
                lane.awake = lane.next_time < math.inf
            awake = [lane for lane in lanes if lane.awake]
            self._awake[kind][:] = awake
            self._first[kind] = min((lane.next_time for lane in awake), default=math.inf)
        self.now, self.limit = min(first, self.until), math.inf  # something may still come from elsewhere
        return self.events > before

    def _run_leaves(self, lanes: list[Lane], careful: Container[int], first: float, limit: float) -> None:
        slow, free = _parted(lanes, careful)
        if slow:
            limit = self._run_carefully(slow, first, limit)
        self._run_free(free, first, limit)

    def _run_free(self, lanes: list[Lane], first: float, limit: float) -> None:
        """Run ``lanes`` on."""
        self.limit = limit
        self.voting_limit = min(limit, min(first, self._elsewhere) + self.horizon)
        if lanes:
            self.events += self.runner(lanes, first)

    def _run_carefully(self, lanes: list[Lane], first: float, limit: float) -> float:
        """Run ``lanes`` instant by instant, until one of them has made something outside of them that is due
        next. Returns up to when all lanes may run."""
        while (time := min(lane.next_time for lane in lanes)) < limit:
            self.limit = self.voting_limit = math.nextafter(time, math.inf)
            self.events += self.run_each(lanes, first)
            limit = min(limit, self._times[0] if self._times else math.inf)
        return limit

    def run_each(self, lanes: list[Lane], first: float) -> int:
        """One lane after the other."""
        count = 0
        for lane in lanes:
            self.now = first
            count += lane.run()
        return count

    def _count_generation(self, time: float) -> None:
        if time != self._instant:
            self._instant = time
            self._generations = 0
        self.now = time
        self._generations += 1
        if self._generations > MAX_GENERATIONS:
            raise KernelError(f"the instant {time!r} s never ends: events beget events without time passing")

    def postpone(self, time: float) -> None:
        """Let everything due before ``time`` be due then, in its order: this process has stood still."""
        for lane in [lane for lanes in self._awake for lane in lanes]:
            late = [pair for at, due in lane.due() if at < time for pair in due]
            if late:
                rest = {at: due for at, due in lane.due() if at >= time}
                lane.replace(sorted({**rest, time: late + rest.get(time, [])}.items()))
                self._first[lane.number < self.inner_lanes] = time
        late, last = [], []
        while self._times and self._times[0] < time:
            at = heapq.heappop(self._times)
            late += self._due.pop(at)
            last += self._ordered.pop(at, [])
        if late or last:
            due = self._due.get(time)
            due = self._open(time) if due is None else due
            due[:0] = late
            self._ordered[time] = last + self._ordered.get(time, [])

    @property
    def pending(self) -> int:
        """How many events are scheduled and have not run; costs one look at each distinct time."""
        return self.outside + sum(lane.pending for lanes in self._awake for lane in lanes)

    @property
    def outside(self) -> int:
        """How many events outside lanes are scheduled and have not run."""
        last = sum(len(events) for events in self._ordered.values())
        return last + (sum(len(due) for due in self._due.values()) >> 1)

    @property
    def next_outside(self) -> float:
        """Time of the next event outside lanes; infinity when there is none."""
        return self._times[0] if self._times else math.inf

    @property
    def next_in_lanes(self) -> tuple[float, float]:
        """No lane of leaves, and no inner lane, has anything due before."""
        return self._first[0], self._first[1]

    def coming(self) -> Iterator[tuple[float, list[Any], list[Handler]]]:
        """What is due outside of lanes, in order of time: (time, [handler, event, handler, event, ...],
        handlers of what comes last)."""
        times = self._times.copy()
        while times:
            time = heapq.heappop(times)
            due = self._due.get(time)
            if due is not None:
                yield time, due, [handler for _, handler, _ in self._ordered.get(time, ())]

    @property
    def next_time(self) -> float:
        """Time of the next event; infinity when there is none."""
        return min(self.next_outside, *self._first)


def _parted(lanes: list[Lane], numbers: Container[int]) -> tuple[list[Lane], list[Lane]]:
    """Those of ``numbers``, and the others."""
    chosen = [lane for lane in lanes if lane.number in numbers]
    return chosen, [lane for lane in lanes if lane.number not in numbers] if chosen else lanes


@contextmanager
def settled_heap() -> Iterator[None]:
    """Run the body with the garbage collector kept off the objects that exist now.

    A job of 98,304 ranks is some ten million long-lived objects without a cycle that dies; walking
    them costs more than the run. They are frozen, and young collections made rare rather than
    switched off, so that a stray cycle of a long run is still found. Who has switched the collector off
    already, for many short runs, sees to that by themselves.
    """
    if not gc.isenabled():
        yield
        return
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000_000, 20, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
