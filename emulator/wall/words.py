"""What the hub and the workers of a run against real time tell each other, and workers each other.

Every word has the virtual time at which it is heard; who hears it later than that hears it at once. So times
in the logs of all processes agree with what came of what.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.ids import Address, Incarnation, Replica, Round, Step

from ..commands import Died, End, Forget, Inject, Left, Life, Start

# What ranks of different replicas tell each other.
Across = (
    m.Join | m.Chunk | m.Ack | m.Probe | m.Waiting | m.Tap | m.TapAck | m.TapEnd
    | m.RangeRequest | m.RangeData | m.NotHere
)  # fmt: skip
AnyRequest = s.Read | s.Cas | s.Put | s.Renew | s.Expire


class Word(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all words. ``time``: when it is heard, virtual seconds."""

    time: float


# -- between workers ------------------------------------------------------------------------------------


class Parcel(Word, frozen=True, array_like=True, tag=True):
    """A message of the rank at ``source``, of life ``incarnation``."""

    source: Address
    incarnation: Incarnation
    to: Address
    message: Across


class Refused(Word, frozen=True, array_like=True, tag=True):
    """Nobody is at ``peer``, whose last life was ``incarnation``: to the rank ``to`` that spoke to it."""

    to: Address
    peer: Address
    incarnation: Incarnation


class Reset(Word, frozen=True, array_like=True, tag=True):
    """The process at ``address`` has ended: its connections are reset."""

    address: Address
    incarnation: Incarnation


class Beat(Word, frozen=True, array_like=True, tag=True):
    """Nothing: a connection on which nothing comes for very long counts as lost."""


# -- from a worker to the hub ---------------------------------------------------------------------------


class Ready(Word, frozen=True, array_like=True, tag=True):
    """Connected with all ``peers`` that it was told of."""

    peers: tuple[int, ...]


class Asked(Word, frozen=True, array_like=True, tag=True):
    """Request ``number`` of this worker to the store."""

    replica: Replica
    number: int
    request: AnyRequest


class Watches(Word, frozen=True, array_like=True, tag=True):
    """The leader of ``life`` wants to hear of every change in the store."""

    life: Life


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where a leader is. ``leads``: it was not taken for dead. ``trains``: it is in a round that trains."""

    life: Life
    incarnation: Incarnation
    step: Step
    trains: bool
    leads: bool


class Said(Word, frozen=True, array_like=True, tag=True):
    """A leader says ``what`` (a note of the protocol, or what its device does: a method of the hub)."""

    leader: Standing
    what: str
    round: Round
    note: bool = False
    ready: float = 0.0


class Reported(Word, frozen=True, array_like=True, tag=True):
    """A host reports."""

    report: Died | Left


class Ended(Word, frozen=True, array_like=True, tag=True):
    """Nothing of ``life`` is left."""

    life: Life


class Farewell(Word, frozen=True, array_like=True, tag=True):
    """Nothing more comes from this worker. ``standing``: of its leaders, as ``end`` in the log has it."""

    standing: list[list[Any]]
    messages: int
    peak_rss: int


# -- from the hub to a worker ---------------------------------------------------------------------------


class Begin(Word, frozen=True, array_like=True, tag=True):
    """Virtual time 0 was at ``zero`` of the machine's monotonic clock."""

    zero: float


class Peer(Word, frozen=True, array_like=True, tag=True):
    """Worker ``number`` has ``replicas`` from now on."""

    number: int
    replicas: tuple[Replica, ...]


class Commanded(Word, frozen=True, array_like=True, tag=True):
    """The hub tells its hosts."""

    command: Start | End | Inject | Forget


class Answered(Word, frozen=True, array_like=True, tag=True):
    """What the store answers to request ``number``."""

    number: int
    answer: s.Answer


class Changed(Word, frozen=True, array_like=True, tag=True):
    """The store tells the leader of ``life``."""

    life: Life
    change: s.Change


class Finish(Word, frozen=True, array_like=True, tag=True):
    """The run is over."""


AnyWord = (
    Parcel | Refused | Reset | Beat | Ready | Asked | Watches | Said | Reported | Ended | Farewell
    | Begin | Peer | Commanded | Answered | Changed | Finish
)  # fmt: skip

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[AnyWord]).decode
