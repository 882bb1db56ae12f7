"""What FTAR needs of a network with one-sided writes (docs/ftar.md).

A member writes into the receive slots of its right neighbour, which takes no part in that but to find a word
that says so. Three rules make this safe, whoever aborts, dies or stands still in between:

* A send slot, and the receive slot behind it, are written again only when every earlier write of them is
  ``Done`` (!). So a copy that was sent twice cannot land on what came later.
* Who has been granted slots for a round says ``Quiet`` when all its writes of the round are done or will
  never be. Slots are granted again only then (!).
* From whom no ``Quiet`` is to be had, the slots are taken: ``revoke`` puts other memory in their place, under
  another key. The old memory is not used for anything while it might still be written to.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from ftruntime.protocol.ids import Incarnation, MemberId, Round
from ftruntime.protocol.messages import Ack, Chunk, Join, Probe, Waiting


class Quiet(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """To the right neighbour: no write of ``round`` or before will touch your slots any more."""

    round: Round
    incarnation: Incarnation


class Grant(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """To the left neighbour, with a Join: where my receive slots are now (``Wire.card``)."""

    join: Join
    card: bytes


Word: TypeAlias = Join | Chunk | Ack | Probe | Waiting | Quiet | Grant
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Word).decode


class Heard(NamedTuple):
    """``word`` came from ``peer``; what was written before it can be seen."""

    peer: MemberId
    word: Word


class Done(NamedTuple):
    """Write number ``write`` has left its send slot, and is where it should be."""

    write: int


class Failed(NamedTuple):
    """Write number ``write`` failed, and has ended. ``status`` as the transport names it."""

    write: int
    status: str


class Gone(NamedTuple):
    """The connection to ``peer`` has ended. ``status`` says how, as the transport names it."""

    peer: MemberId
    status: str


Sight: TypeAlias = Heard | Done | Failed | Gone


class Wire(Protocol):
    """One rank's network. No call waits; everything comes back from ``poll``."""

    @property
    def card(self) -> bytes:
        """What another rank needs to reach this one, and its receive slots as they are now."""

    def meet(self, peer: MemberId, card: bytes) -> None:
        """Know ``peer``, or its slots, by its card. Raises WireError for one that does not fit."""

    def tell(self, peer: MemberId, word: Word) -> None:
        """Send a small word, in order after other words to ``peer``. To a peer that is gone: nowhere."""

    def write(self, peer: MemberId, slot: int, size: int, word: Word) -> int:
        """From the send slot to ``peer``'s receive slot of this number, then ``word``. Returns the write's
        number, which a Done or Failed will name."""

    def poll(self) -> list[Sight]:
        """What has happened since, in order for each peer."""

    def part(self, peer: MemberId) -> None:
        """End the connection to ``peer``: writes to it are Failed, then it is Gone. Bytes of such a write may
        still arrive later."""

    def revoke(self, received: Any) -> None:
        """``received`` takes the place of the receive slots. ``card`` changes."""

    def close(self) -> None:
        """Give everything back."""


class WireError(Exception):
    """The transport cannot do what was asked, in one line."""
