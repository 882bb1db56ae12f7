"""The loop of one control thread: sockets, timers, and work that other threads hand over (docs/driver.md).

It sleeps in the kernel until something happens, and lets go of the interpreter while it does. Nothing in it
may block: a socket that is not ready is watched, work that takes long goes to another thread.

Timers count the time for which the process has run. One that was stopped, and goes on, would else lose
patience with everybody at once, before it has heard what they said meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

LATE_S: Final = 0.5  # behind the next timer: the process did not run meanwhile
READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
Act = Callable[[], object]


class Timer:
    """Something that happens at ``due`` (seconds of ``Loop.now``), unless it is cancelled before."""

    __slots__ = ("act", "due")

    def __init__(self, due: float, act: Act) -> None:
        self.due = due
        self.act: Act | None = act

    def cancel(self) -> None:
        self.act = None


class Loop:
    """``call`` may be used from any thread, everything else from the loop's own only."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._handed: deque[Act] = deque()
        self._soon: deque[Act] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        self._selector.register(self._wake_in, READ, self._woken)
        self._running = True
        self._mark = (self.now(), 0.0)  # when timers last fired, and what the thread had worked by then
        self._was_late = False
        self.on_pause: Act = _nothing  # the process was stopped for a while, and goes on

    now = staticmethod(time.monotonic)

    # -- from any thread -----------------------------------------------------------------------

    def call(self, act: Act) -> None:
        """Have ``act`` called on the loop's thread. What is handed over is called in its order."""
        self._handed.append(act)
        try:
            self._wake_out.send(b"\0")
        except (BlockingIOError, OSError):
            return  # so many wait already that the pipe is full, or the loop is over

    def _woken(self, mask: int) -> None:
        try:
            while len(self._wake_in.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    # -- on the loop's thread ------------------------------------------------------------------

    def soon(self, act: Act) -> None:
        """Call ``act`` at the end of this turn, after everything that has arrived."""
        self._soon.append(act)

    def after(self, seconds: float, act: Act) -> Timer:
        timer = Timer(self.now() + seconds, act)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def watch(self, sock: socket.socket | int, mask: int, act: Callable[[int], object]) -> None:
        """Call ``act(mask)`` whenever ``sock`` (or another descriptor) is ready for any of ``mask``; called
        again, it changes the mask."""
        try:
            self._selector.modify(sock, mask, act)
        except KeyError:
            self._selector.register(sock, mask, act)

    def forget(self, sock: socket.socket | int) -> None:
        """Watch ``sock`` no more; it is still open."""
        try:
            self._selector.unregister(sock)
        except (KeyError, ValueError):
            return

    def run(self) -> None:
        """Run until ``stop``; then close what the loop itself has opened."""
        self._mark = (self.now(), time.thread_time())
        try:
            while self._running:
                self.turn()
        finally:
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()

    def stop(self) -> None:
        self._running = False

    def turn(self) -> None:
        """Wait for what is next and do all of it."""
        patience, begin = self._patience(), self.now()
        ready = self._selector.select(patience)
        asleep = self.now() - begin
        for key, mask in ready:
            if self._selector.get_map().get(key.fd) is key:  # not forgotten in this very turn
                key.data(mask)
        for _ in range(len(self._handed)):
            self._handed.popleft()()
        self._notice_pause(asleep if patience is None else min(asleep, patience))
        self._fire()
        while self._soon and self._running:
            self._soon.popleft()()

    def _patience(self) -> float | None:
        if self._handed or self._soon:
            return 0.0
        while self._timers and self._timers[0][2].act is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - self.now()) if self._timers else None

    def _notice_pause(self, slept: float) -> None:
        """Of the time since timers last fired, what was neither worked nor slept on purpose was a pause.

        It may have begun when the sleep did, so that is not counted either. Never twice in a row: a machine
        that is always late must not keep timers from firing for ever.
        """
        mark = (self.now(), time.thread_time())
        passed, worked = mark[0] - self._mark[0], mark[1] - self._mark[1]
        self._mark = mark
        late = passed - worked - slept > LATE_S and not self._was_late
        self._was_late = late
        if late:
            self._put_off(passed - worked)

    def _put_off(self, seconds: float) -> None:
        for _, _, timer in self._timers:
            timer.due += seconds
        self._timers = [(timer.due, order, timer) for _, order, timer in self._timers]  # still a heap
        self.on_pause()

    def _fire(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now and self._running:
            act = heapq.heappop(self._timers)[2].act
            if act is not None:
                act()


def _nothing() -> None:
    """Nobody wants to know."""
