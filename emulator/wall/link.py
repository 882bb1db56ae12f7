"""The connection of two processes: a group of two over torch.distributed's gloo, of its own store and device.

gloo does not cancel and does not wait with a bound, and a work that is deleted while it is pending blocks: so
every call has a thread of its own that nobody waits for, and a lost peer shows as the error of its receive.
"""

from __future__ import annotations

import datetime
import queue
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

LOOPBACK = "127.0.0.1"
FIRST = 1 << 14  # bytes of the first message of a packet; what does not fit comes in a second
HEADER = struct.Struct("<I")
LOOKS_EVERY_S = 0.02  # for whether the other process is there
SILENT_S = 3600.0  # a connection on which nothing came for so long is lost
BEATS_EVERY_S = 0.5
MOST_WAITING = 256 << 20  # bytes that may wait for a peer that takes nothing
TAG = 1

Gloo: Any = dist.ProcessGroupGloo  # of which torch has no complete types
Heard = Callable[[int, "bytes | None"], object]


class Link:
    """This process's side of the connection with process ``other``.

    nth:   how many connections with it there were before: both sides count, and so meet again
    heard: called, from a thread of its own, with (other, packet); with None when the connection is lost
    up:    whether both sides are connected
    """

    def __init__(self, port: int, own: int, other: int, nth: int, heard: Heard) -> None:
        self.other, self.nth, self.up, self.closed = other, nth, False, False
        self._port, self._own, self._heard = port, own, heard
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting, self._lock = 0, threading.Lock()
        self._sent_at = time.monotonic()
        self._receiver = threading.Thread(target=self._run, name=f"from {other}", daemon=True)
        self._sender = threading.Thread(target=self._send_all, name=f"to {other}", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._receiver.start()

    def send(self, packet: bytes) -> None:
        """Send it when the connection is there, after what was sent before. To one that is lost: nothing."""
        with self._lock:
            if self.closed:
                return
            self._waiting += len(packet)
            full = self._waiting > MOST_WAITING
        if full:
            self.close()
            self._heard(self.other, None)
            return
        self._sent_at = time.monotonic()
        self._queue.put(packet)

    @property
    def silent(self) -> bool:
        """Nothing was sent for so long that the other side should hear a beat."""
        return time.monotonic() - self._sent_at > BEATS_EVERY_S

    def close(self) -> None:
        """Send what waits, and nothing more."""
        with self._lock:
            self.closed = True
        self._queue.put(None)

    def leave(self, seconds: float) -> None:
        """As ``close``; returns when everything is sent, or after ``seconds``."""
        self.close()
        if self._sender.ident is not None:
            self._sender.join(seconds)

    def _run(self) -> None:
        try:
            self._group = self._connect()
            if self._group is None:
                return
            self.up = True
            self._sender.start()
            self._heard(self.other, b"")
            while True:
                self._heard(self.other, self._receive())
        except RuntimeError:  # of gloo or of its store: the other process is gone, or cannot be reached
            self.up = False
            with self._lock:
                self.closed = True
            self._heard(self.other, None)

    def _connect(self) -> Any:
        """Meet the other process; None if the link is closed before. Raises RuntimeError."""
        low, high = sorted((self._own, self.other))
        limit = datetime.timedelta(seconds=SILENT_S)
        # A store of its own: one who waits in a store keeps all others of that store waiting.
        tcp = dist.TCPStore(LOOPBACK, self._port, is_master=False, wait_for_workers=False, timeout=limit)
        store = dist.PrefixStore(f"{low}-{high}-{self.nth}", tcp)
        store.set(f"here/{self._own}", "")
        while not store.check([f"here/{self.other}"]):  # gloo's own waiting could not be ended
            if self.closed:
                return None
            time.sleep(LOOKS_EVERY_S)
        options = Gloo._Options()
        options._devices = [Gloo.create_device(hostname=LOOPBACK)]
        options._threads, options._timeout = 1, limit
        self._store = tcp
        return Gloo(store, int(self._own == high), 2, options)

    def _receive(self) -> bytes:
        group, peer = self._group, int(self._own < self.other)
        assert group is not None
        first = torch.empty(FIRST, dtype=torch.uint8)
        group.recv([first], peer, TAG).wait()
        raw = first.numpy().tobytes()
        (length,) = HEADER.unpack_from(raw)
        left = length - (FIRST - HEADER.size)
        if left <= 0:
            return raw[HEADER.size : HEADER.size + length]
        rest = torch.empty(left, dtype=torch.uint8)
        group.recv([rest], peer, TAG).wait()
        return raw[HEADER.size :] + rest.numpy().tobytes()

    def _send_all(self) -> None:
        group, peer = self._group, int(self._own < self.other)
        assert group is not None
        room = FIRST - HEADER.size
        try:
            while (packet := self._queue.get()) is not None:
                first = np.zeros(FIRST, np.uint8)
                head = HEADER.pack(len(packet)) + packet[:room]
                first[: len(head)] = np.frombuffer(head, np.uint8)
                group.send([torch.from_numpy(first)], peer, TAG).wait()
                if len(packet) > room:
                    rest = torch.frombuffer(bytearray(packet[room:]), dtype=torch.uint8)
                    group.send([rest], peer, TAG).wait()
                with self._lock:
                    self._waiting -= len(packet)
        except RuntimeError:
            return  # the receiver sees it, too, and says so
