"""Frames: what travels over a connection.

    body length (u32) | payload length (u32) | body (msgpack) | payload (raw bytes)

The body is one struct of a union that both ends know: nothing that arrives is ever executed, as a pickle
would be. Bulk data is a payload, which is neither encoded nor copied on its way to the socket, and is read
straight into the memory that the receiver names.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

HEADER: Final = struct.Struct("<II")
MAX_BODY: Final = 64 << 20  # bytes; a head of a job of thousands of replicas has a few megabytes
MAX_PAYLOAD: Final = (1 << 32) - 1

_encode = msgspec.msgpack.Encoder().encode
Buffer = bytes | bytearray | memoryview


class FrameError(ValueError):
    """Bytes that no writer of frames made. The message says what was wrong with them."""


class Frame:
    """One frame on its way out.

    views:  what is left to send
    tag:    what ``Connection.withdraw`` knows it by
    done:   called when the socket has taken all of it
    begun:  some of it is out already: it cannot be withdrawn any more
    """

    __slots__ = ("begun", "done", "size", "tag", "views")

    def __init__(
        self,
        message: msgspec.Struct,
        payload: Sequence[Buffer] = (),
        tag: object = None,
        done: Callable[[], object] | None = None,
    ) -> None:
        body = _encode(message)
        parts = [memoryview(part).cast("B") for part in payload if len(part)]
        length = sum(len(part) for part in parts)
        if len(body) > MAX_BODY or length > MAX_PAYLOAD:
            raise FrameError(f"a frame of {len(body)} + {length} bytes is larger than a frame can be")
        self.views = [memoryview(HEADER.pack(len(body), length) + body), *parts]
        self.size = HEADER.size + len(body) + length
        self.tag, self.done, self.begun = tag, done, False

    def again(self) -> Frame:
        """The same for another connection, without encoding it anew; before any of it was sent."""
        other = copy.copy(self)
        other.views = list(self.views)
        return other


def decoder(*types: type[msgspec.Struct]) -> Callable[[Buffer], Any]:
    """Decodes bodies that are one of ``types`` (tagged structs). It raises FrameError for anything else."""
    decode = msgspec.msgpack.Decoder(_union(types)).decode

    def read(body: Buffer) -> Any:
        try:
            return decode(body)
        except msgspec.MsgspecError as error:
            raise FrameError(f"a body that is no message: {error}") from None

    return read


def _union(types: Sequence[type[msgspec.Struct]]) -> Any:
    union: Any = types[0]
    for kind in types[1:]:
        union = union | kind
    return union
