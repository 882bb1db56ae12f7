"""A wire between threads of one process, which does to writes what a network may do to them.

A write is carried out late: when its sender or its receiver next polls, so data is taken from the send slot
as late as a network card might. What tests do to it (``Net``) is what happens to real ones: damage, doubling,
delay, a stop, a death.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ftruntime.protocol.ids import MemberId

from .wire import Done, Failed, Gone, Heard, Sight, Word, decode, encode

Bytes = npt.NDArray[np.uint8]
_keys = itertools.count(1)


@dataclass
class _Write:
    number: int
    to: MemberId
    slot: int
    data: Bytes  # a view of the send slot
    word: bytes
    key: int
    memory: Bytes  # the receive slots under that key


@dataclass
class Net:
    """Where the wires of a process meet. All methods may be called by any thread.

    landed:  told of each write that has landed: (source, target, the bytes there, its word); may change them
    """

    wires: dict[MemberId, MemoryWire] = field(default_factory=dict)
    landed: Callable[[MemberId, MemberId, Bytes, Word], object] = lambda source, target, there, word: None
    lock: Any = field(default_factory=threading.RLock)
    stopped: set[MemberId] = field(default_factory=set)

    def stop(self, member: MemberId) -> None:
        """Its process stands still: nothing that it posted moves, and nobody is told."""
        with self.lock:
            self.stopped.add(member)

    def go_on(self, member: MemberId) -> None:
        with self.lock:
            self.stopped.discard(member)

    def kill(self, member: MemberId) -> None:
        """Its process dies: whoever is connected to it is told."""
        with self.lock:
            dead = self.wires.pop(member, None)
            if dead is not None:
                dead.die()


class MemoryWire:
    """The wire of ``me`` on ``net``. sent, received: the slots, bytes [C, S]."""

    def __init__(self, net: Net, me: MemberId, sent: torch.Tensor, received: torch.Tensor) -> None:
        self._net, self.me, self._sent, self._received = net, me, sent.numpy(), received.numpy()
        self._key = next(_keys)
        self._keys: dict[MemberId, int] = {}  # of the peers' slots
        self._parted: set[MemberId] = set()
        self._numbers = itertools.count()
        self._posted: deque[_Write] = deque()
        self._adrift: deque[_Write] = deque()
        self._inbox: deque[Sight] = deque()
        with net.lock:
            assert me not in net.wires, f"{me} is on the net already"
            net.wires[me] = self

    @property
    def card(self) -> bytes:
        return self._key.to_bytes(8, "little")

    def meet(self, peer: MemberId, card: bytes) -> None:
        self._keys[peer] = int.from_bytes(card, "little")
        self._parted.discard(peer)

    def tell(self, peer: MemberId, word: Word) -> None:
        """Words overtake no write that was posted before."""
        with self._net.lock:
            self._progress()
            wire = self._net.wires.get(peer)
            if wire is not None and peer not in self._parted:
                wire._inbox.append(Heard(self.me, decode(encode(word))))

    def write(self, peer: MemberId, slot: int, size: int, word: Word) -> int:
        """Posted; carried out when somebody polls."""
        number = next(self._numbers)
        data = self._sent[slot, :size]
        with self._net.lock:
            target = self._net.wires.get(peer)
            if target is None or target._key != self._keys[peer]:
                self._inbox.append(Failed(number, "IBV_WC_REM_ACCESS_ERR: the slots are not there"))
            else:
                write = _Write(number, peer, slot, data, encode(word), target._key, target._received)
                self._posted.append(write)
        return number

    def poll(self) -> list[Sight]:
        """Writes of this rank and to it are carried out by now."""
        with self._net.lock:
            self._progress()
            for wire in self._net.wires.values():
                if any(write.to == self.me for write in wire._posted):
                    wire._progress()
            seen = list(self._inbox)
            self._inbox.clear()
        return seen

    def part(self, peer: MemberId) -> None:
        """What was posted to ``peer`` is given up here, and may arrive all the same."""
        with self._net.lock:
            self._parted.add(peer)
            left = [write for write in self._posted if write.to == peer]
            self._posted = deque(write for write in self._posted if write.to != peer)
            self._inbox += [Failed(write.number, "closed: by this rank") for write in left]
            self._adrift += left
            self._inbox.append(Gone(peer, "closed: by this rank"))

    def revoke(self, received: torch.Tensor) -> None:
        with self._net.lock:
            self._key, self._received = next(_keys), received.numpy()

    def close(self) -> None:
        self._net.kill(self.me)

    def die(self) -> None:
        self._posted.clear()
        for wire in self._net.wires.values():
            wire._inbox.append(Gone(self.me, "reset: the process is dead"))

    def _progress(self) -> None:
        if self.me in self._net.stopped:
            return
        while self._adrift:
            self._land(self._adrift.popleft())
        while self._posted:
            write = self._posted.popleft()
            target = self._net.wires.get(write.to)
            if target is None:
                self._inbox.append(Failed(write.number, "reset: the process is dead"))
                continue
            self._land(write)
            if target._key == write.key:
                target._inbox.append(Heard(self.me, decode(write.word)))
                self._inbox.append(Done(write.number))
            else:
                self._inbox.append(Failed(write.number, "IBV_WC_REM_ACCESS_ERR: the slots were revoked"))

    def _land(self, write: _Write) -> None:
        there = write.memory[write.slot, : len(write.data)]
        there[:] = write.data
        self._net.landed(self.me, write.to, there, decode(write.word))
