"""A connection that carries frames, driven by a loop; it never blocks and never waits.

state   leaves to  when
------  ---------  ---------------------------------------------------------------
OPEN    CLOSED     ``close``: nothing more is told
        LOST       the peer is gone, the bytes make no sense, or too much is queued
LOST    -          ``on_lost`` was called once, with the reason
CLOSED  -
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from .frames import HEADER, MAX_BODY, Buffer, Frame, FrameError
from .loop import READ, WRITE, Loop

GATHERED: Final = 32  # views that one system call takes
BUFFER: Final = 64 << 10
TURN: Final = 16 << 20  # bytes that one connection may take in before others get their turn
QUEUED: Final = 4 << 30  # bytes: credits and windows keep queues far below this
SOCKET_BUFFER: Final = 4 << 20

Decode = Callable[[Buffer], Any]
Landing = Callable[[Any, int], memoryview | None]


def tune(sock: socket.socket) -> None:
    """As every socket of the runtime is set: no waiting for more to send, room for a chunk in flight."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)


class Connection:
    """Frames over ``sock``.

    on_message:  called with (message, payload); payload is what ``landing`` gave, filled, or None
    landing:     called with (message, size): memory of that size to read a payload into, or None to have it
                 thrown away, message and all
    on_lost:     called with the reason, once, at the end of the loop's turn: never from within ``send``
    limit:       the longest body that is taken in; short until the peer has shown who it is
    """

    def __init__(self, loop: Loop, sock: socket.socket, decode: Decode, limit: int = MAX_BODY) -> None:
        tune(sock)
        self.loop, self.sock, self.decode, self.limit = loop, sock, decode, limit
        self.on_message: Callable[[Any, memoryview | None], object] = _unheard
        self.on_lost: Callable[[str], object] = _unheard
        self.landing: Landing = _nowhere
        self.open = True
        self.queued = 0
        self._queue: deque[Frame] = deque()
        self._writing = self._flushing = False
        self._buffer = memoryview(bytearray(BUFFER))
        self._start = self._end = 0
        self._message: Any = None  # whose payload is being read
        self._payload: memoryview | None = None
        self._left = 0  # bytes of it that are still to come
        loop.watch(sock, READ, self._ready)

    # -- out -----------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Queue ``frame``, and send what the socket takes now."""
        if not self.open:
            return
        self._queue.append(frame)
        self.queued += frame.size
        if self.queued > QUEUED:
            self.lose(f"{self.queued} bytes are queued and the peer takes none")
        elif not (self._writing or self._flushing):
            self._flush()

    def send_all(self, frames: Iterable[Frame]) -> None:
        """As ``send``, with as few system calls as they fit in."""
        flushing, self._flushing = self._flushing, True
        for frame in frames:
            self.send(frame)
        self._flushing = flushing
        if self._queue and self.open and not (self._writing or flushing):
            self._flush()

    def withdraw(self, tag: object) -> bool:
        """Take back the frames of ``tag`` that have not begun to be sent. False: one has, and goes on."""
        kept = [f for f in self._queue if f.begun or f.tag != tag]
        if len(kept) != len(self._queue):
            self._queue = deque(kept)
            self.queued = sum(f.size for f in kept)
        return not any(f.tag == tag for f in kept)

    def _flush(self) -> None:
        """Who is told that a frame is done may send the next one: that waits until this is through."""
        self._flushing = True
        self._wait_to_write(not self._flushed())
        self._flushing = False

    def _flushed(self) -> bool:
        """Send until the queue is empty (True) or the socket is full."""
        while self._queue:
            try:
                sent = self.sock.sendmsg(self._gather())
            except BlockingIOError:
                return False
            except OSError as error:
                self.lose(error.strerror or str(error))
                return True
            self._sent(sent)
        return True

    def _gather(self) -> list[memoryview]:
        views: list[memoryview] = []
        for frame in self._queue:
            views += frame.views
            if len(views) >= GATHERED:
                break
        return views[:GATHERED]

    def _sent(self, count: int) -> None:
        while count > 0:
            frame = self._queue[0]
            frame.begun = True
            while frame.views and count >= len(frame.views[0]):
                count -= len(frame.views.pop(0))
            if frame.views:
                frame.views[0] = frame.views[0][count:]
                return
            self._queue.popleft()
            self.queued -= frame.size
            if frame.done is not None:
                frame.done()

    def _wait_to_write(self, wait: bool) -> None:
        if wait != self._writing and self.open:
            self._writing = wait
            self.loop.watch(self.sock, READ | WRITE if wait else READ, self._ready)

    # -- in ------------------------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        if mask & READ:
            self._read()
        if mask & WRITE and self.open:
            self._flush()

    def _read(self) -> None:
        budget = TURN
        while self.open and budget > 0:
            try:
                got = self.sock.recv_into(self._room())
            except BlockingIOError:
                return
            except OSError as error:
                return self.lose(error.strerror or str(error))
            if got == 0:
                return self.lose("closed by the peer")
            budget -= got
            try:
                self._got(got)
            except FrameError as error:
                return self.lose(str(error))

    def _room(self) -> memoryview:
        """Where the next bytes go."""
        if self._left and self._payload is not None:
            return self._payload[len(self._payload) - self._left :]
        if self._left:
            return self._buffer[: min(self._left, len(self._buffer))]  # thrown away
        return self._buffer[self._end :]

    def _got(self, count: int) -> None:
        if not self._left:
            self._end += count
            self._parse()
            return
        self._left -= count
        if not self._left:
            self._deliver_payload()

    def _parse(self) -> None:
        """Take frames out of the buffer for as long as there are whole bodies in it."""
        while self.open and not self._left and self._end - self._start >= HEADER.size:
            body, payload = HEADER.unpack_from(self._buffer, self._start)
            if body > self.limit:
                raise FrameError(f"a body of {body} bytes is longer than {self.limit}")
            first = self._start + HEADER.size
            if self._end < first + body:
                return self._make_room(HEADER.size + body)
            message = self.decode(self._buffer[first : first + body])
            self._start = first + body
            if payload:
                self._begin_payload(message, payload)
            else:
                self.on_message(message, None)
        self._make_room(HEADER.size)

    def _make_room(self, needed: int) -> None:
        """Move what is left to the front, into a larger buffer if a body asks for one."""
        rest = bytes(self._buffer[self._start : self._end])
        if needed > len(self._buffer):
            self._buffer = memoryview(bytearray(max(needed, 2 * len(self._buffer))))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _begin_payload(self, message: Any, size: int) -> None:
        target = self.landing(message, size)
        here = min(size, self._end - self._start)
        if target is not None:
            assert len(target) == size, "a payload lands in memory of its own size"
            target[:here] = self._buffer[self._start : self._start + here]
        self._start += here
        self._message, self._payload, self._left = message, target, size - here
        if not self._left:
            self._deliver_payload()

    def _deliver_payload(self) -> None:
        message, payload = self._message, self._payload
        self._message = self._payload = None
        if payload is not None:
            self.on_message(message, payload)

    # -- the end -------------------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """The connection is of no use any more."""
        if self.open:
            self.close()
            self.loop.soon(lambda: self.on_lost(reason))

    def close(self) -> None:
        """Close at once; what is queued is not sent, and nobody is told."""
        self.open = False
        self.loop.forget(self.sock)
        self.sock.close()
        self._queue.clear()
        self.queued = 0


def _unheard(*_: object) -> None:
    """Nobody has said yet who wants to know."""


def _nowhere(message: Any, size: int) -> memoryview | None:
    return None
