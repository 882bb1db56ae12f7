"""What one worker sends another: one packet for each window of virtual time.

A message is encoded once, however many ranks hear it, and is one object again for all that hear it there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Position

from ..commands import AskToLeave, Detach, Died, End, Forget, Inject, Left, Life, Start

# What goes up and down the tree of a replica: nothing else crosses.
InTree = (
    m.Begin | m.Enlist | m.Outcome | m.Seal | m.StartFetch | m.StopFetch | m.Install | m.WriteCheckpoint
    | m.RollCall | m.Finish | m.Vote | m.Sealed | m.Done | m.Fetched | m.Prepared
)  # fmt: skip
AnyTold = Start | End | Inject | Detach | AskToLeave | Forget | Died | Left

_encode = msgspec.msgpack.Encoder().encode
_message = msgspec.msgpack.Decoder(InTree)


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``message`` (an index) from one rank of ``life`` to another, at ``time``; ``ordered``: after others."""

    time: float
    life: Life
    source: Position
    to: Position
    message: int
    ordered: bool


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Times in virtual seconds.

    next:   of its next event
    felt:   before which no event outside its lanes can be felt by another worker
    lanes:  of the next event in its lanes
    voted:  before which nothing that its lanes do can be felt
    """

    next: float
    felt: float
    lanes: float
    voted: float


class Packet(msgspec.Struct, array_like=True):
    """What a worker says to another at the end of a window. Times in virtual seconds.

    standing: how far it is, beside what it is told now
    told_of:  by worker, how soon it tells that one anything, and when others can feel that
    careful:  whether links fail, as far as it knows
    tie:      up to when lanes may run at most
    over:     when the run is over, if it is known
    """

    standing: Standing
    told_of: list[tuple[float, float]]
    careful: bool = False
    tie: float = float("inf")
    over: float = float("inf")
    deliveries: list[Delivery] = []
    messages: list[bytes] = []
    told: list[tuple[float, AnyTold]] = []


_packet = msgspec.msgpack.Decoder(Packet)


class Outbox:
    """What is to be told to one worker at the end of the window."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # by identity: equal messages are mostly one object
        self._kept: list[m.Message] = []  # so that no identity is used twice
        self.deliveries: list[Delivery] = []
        self.messages: list[bytes] = []
        self.told: list[tuple[float, Any]] = []
        self.first = self.felt = float("inf")  # when the first thing is heard, and can be felt by others

    def message(self, message: m.Message) -> int:
        """Index of ``message`` in the packet."""
        index = self._seen.get(id(message))
        if index is None:
            index = self._seen[id(message)] = len(self._kept)
            self._kept.append(message)
            self.messages.append(_encode(message))
        return index


def encode(packet: Packet) -> bytes:
    return _encode(packet)


def decode(raw: bytes) -> Packet:
    return _packet.decode(raw)


@lru_cache(maxsize=1024)
def decoded(raw: bytes) -> m.Message:
    """The message; one object for equal bytes."""
    found: m.Message = _message.decode(raw)
    return found
