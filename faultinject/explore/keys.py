"""Canonical keys of protocol objects: equal keys mean that nothing later can tell the two apart.

A key is the msgpack of all that an object holds, found by walking its slots, whatever they are called: what
an object of the protocol does depends on nothing else, and a slot that is added is part of the key at once.
What is left out cannot influence what the protocol does, only what it says to people (what a rank itself may
forget, it has forgotten by ``Rank.simplify``):

* ``_config`` and ``geometry``, which are the same for all or follow from the task beside them
* ``stale``, a count of messages without effect
* the reason in an ``ErrorReport``: no code looks at it but to print it
* the order of sets and of the table of records, which the protocol sorts or takes a minimum of
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from ftruntime.protocol.errors import ErrorReport
from ftruntime.protocol.messages import Vote

ATOMS = frozenset({int, str, bool, float, bytes, type(None)})
LEFT_OUT = frozenset({"_config", "geometry", "stale"})
UNORDERED = frozenset({"_records"})

_slots: dict[type, tuple[str, ...]] = {}
_encode = msgspec.msgpack.Encoder().encode


def key(thing: object) -> bytes:
    """The canonical key of a protocol object, a message, or a tuple of such."""
    return _encode(plain(thing))


def plain(x: Any) -> Any:
    """``x`` as something that msgpack writes: objects become lists of what they hold."""
    kind = type(x)
    if kind in ATOMS:
        return x
    if kind is tuple or kind is list:
        return [plain(v) for v in x]
    if kind is dict:
        return [(plain(k), plain(v)) for k, v in x.items()]
    if isinstance(x, set | frozenset):
        return sorted((plain(v) for v in x), key=_encode)
    if isinstance(x, msgspec.Struct):
        return _struct(x)
    if isinstance(x, enum.Enum):
        return x.value
    return _object(x, kind)


def _struct(x: msgspec.Struct) -> Any:
    if type(x) is ErrorReport:
        return ["ErrorReport", x.error_class, x.accused]
    if type(x) is Vote:
        return ["Vote", x.round, x.yes, x.scalars, plain(x.report)]
    return [type(x).__name__, x]


def _object(x: Any, kind: type) -> Any:
    names = _slots.get(kind)
    if names is None:
        names = _slots[kind] = tuple(_names(kind))
    found: list[Any] = [kind.__name__]
    for name in names:
        value = getattr(x, name)
        if name in UNORDERED:
            found.append(sorted(((plain(k), plain(v)) for k, v in value.items()), key=_encode))
        else:
            found.append(plain(value))
    return found


def _names(kind: type) -> Iterable[str]:
    slots = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    assert slots, f"{kind.__name__} has no slots: its state cannot be seen"
    return sorted(slots - LEFT_OUT)
