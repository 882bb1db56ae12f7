"""What the hub and a worker have in common: a clock, links to others, and turns.

In a turn a process runs what is due, makes its log safe, tells the others, and waits for the next event or
word. The log comes first: so nobody has ever seen the effect of something that a process which is killed has
not logged.
"""

from __future__ import annotations

import abc
import contextlib
import math
import queue
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .link import Link
from .words import AnyWord, Beat, decode, encode

if TYPE_CHECKING:
    from ..emulation import Emulation

LOOKS_EVERY_S = 0.05  # at most that long nobody looks around
STOPPED_S = 0.5  # a process that comes so much too late has stood still: what was due happens now


class Side(abc.ABC):
    """One process of the run.

    number: of this process; 0 is the hub, and no number is given twice
    until:  virtual seconds before which everything has run
    """

    interrupted = False  # Ctrl-C ends a turn at once, not between two windows

    def __init__(self, number: int, port: int, speed: float) -> None:
        self.number, self.port, self.speed = number, port, speed
        self.zero: float | None = None  # of the monotonic clock, when the run began
        self.until = 0.0
        self.over = math.inf
        self.links: dict[int, Link] = {}
        self.heard: dict[int, float] = {}  # when each other process was last heard, by the monotonic clock
        self._out: dict[int, list[AnyWord]] = {}
        self._inbox: queue.SimpleQueue[tuple[Link, bytes | None]] = queue.SimpleQueue()  # filled by links
        self._flush: Callable[[], object] = lambda: None

    def attach(self, job: Emulation) -> None:
        self.job = job
        self._flush = job.log.flush  # type: ignore[attr-defined]
        job.kernel.runner = job.kernel.run_each  # the other members of a ring are elsewhere

    # -- time ------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual seconds."""
        return 0.0 if self.zero is None else self.speed * (time.monotonic() - self.zero)

    def _wall_until(self, virtual: float) -> float:
        """Wall seconds until the virtual time."""
        return LOOKS_EVERY_S if self.zero is None else (virtual - self.now()) / self.speed

    def advance(self) -> float:
        """Let everything due by now run. Returns up to when."""
        now = max(self.until, self.now())
        if self.job.kernel.next_time < now - STOPPED_S * self.speed:
            self.job.kernel.postpone(max(self.until, now - LOOKS_EVERY_S * self.speed))
        self.until = now
        return now

    # -- links ----------------------------------------------------------------------------------------

    def connect(self, other: int, nth: int = 0) -> None:
        link = Link(self.port, self.number, other, nth, lambda _, packet: self._inbox.put((link, packet)))
        self.links[other] = link
        link.start()

    def say(self, other: int, word: AnyWord) -> None:
        """At the end of the turn."""
        self._out.setdefault(other, []).append(word)

    def linked(self, other: int) -> bool:
        link = self.links.get(other)
        return link is not None and link.up

    def turn(self) -> None:
        """Make the log safe, tell the others, and hear them; wait if there is nothing to do."""
        self._flush()
        self._send()
        wait = min(LOOKS_EVERY_S, self._wall_until(self.job.kernel.next_time))
        with contextlib.suppress(queue.Empty):
            self._hear(*(self._inbox.get(timeout=wait) if wait > 0 else self._inbox.get_nowait()))
        for _ in range(self._inbox.qsize()):
            self._hear(*self._inbox.get_nowait())

    def _send(self) -> None:
        for link in self.links.values():
            if link.silent:
                self.say(link.other, Beat(self.until))
        out, self._out = self._out, {}
        for other, words in out.items():
            if other in self.links:
                self.links[other].send(encode(words))

    def _hear(self, link: Link, packet: bytes | None) -> None:
        other = link.other
        if self.links.get(other) is not link:
            return  # what a link says that was given up
        self.heard[other] = time.monotonic()
        if packet is None:
            self.links.pop(other).close()
            self._out.pop(other, None)
            self.lost(other)
        elif packet:
            for word in decode(packet):
                self.hear(other, word)
        else:
            self.connected(other)

    def at(self, word: AnyWord, handler: Callable[[Any, float], object], event: object) -> None:
        """Call ``handler(event, now)`` when ``word`` is heard."""
        self.job.kernel.at(max(word.time, self.until), handler, event)

    # -- what each side does with it --------------------------------------------------------------------

    @abc.abstractmethod
    def hear(self, other: int, word: AnyWord) -> None:
        """Process ``other`` says something."""

    @abc.abstractmethod
    def connected(self, other: int) -> None:
        """The link with ``other`` is up."""

    @abc.abstractmethod
    def lost(self, other: int) -> None:
        """The link with ``other`` is lost."""
