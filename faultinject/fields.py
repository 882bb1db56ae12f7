"""The fields that faults have: what to write in each, and which values fit.

One row serves for a wrong type, a value out of range and a missing field alike, so that a field
is always explained in the same words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .vocabulary import Phase


class Field(NamedTuple):
    """``write`` completes the sentence "write ..."; ``fits`` judges a value whose type is right."""

    write: str
    fits: Callable[[Any], bool]


def _any(value: Any) -> bool:
    return True


def _from_zero(value: Any) -> bool:
    return bool(0 <= value < math.inf)  # a NaN is not, and an integer may be too long for a float


def _above_zero(value: Any) -> bool:
    return bool(0 < value < math.inf)


def _above_one(value: Any) -> bool:
    return bool(1 < value < math.inf)


def _rate(value: Any) -> bool:
    return bool(0.1 <= value <= 10.0)


def _share(value: Any) -> bool:
    return bool(0 < value <= 1)


def _jump(value: Any) -> bool:
    return bool(value != 0 and -math.inf < value < math.inf)


def _ends_from_zero(value: Any) -> bool:
    return all(_pair_from_zero(end) for end in value)


def _pair_from_zero(value: Any) -> bool:
    return bool(min(value) >= 0)


_SECONDS = Field("seconds, more than 0, as 30", _above_zero)
_COUNT = Field("an integer, 1 or more", _above_zero)

FIELDS: dict[str, Field] = {
    "at": Field("seconds from the start of the job, 0 or more, as 12.5", _from_zero),
    "step": Field("a step number, an integer, 0 or more", _from_zero),
    "phase": Field("one of " + ", ".join(Phase), _any),
    "point": Field("the name of a fault point, as vote.yes", _any),
    "cause": Field('a text, as "network"', _any),
    "rank": Field("[replica, position], two integers, 0 or more, as [3, 17]", _pair_from_zero),
    "host": Field("[replica, host], two integers, 0 or more, as [3, 2]", _pair_from_zero),
    "rack": Field("[replica, rack], two integers, 0 or more, as [3, 1]", _pair_from_zero),
    "building": Field("a building's number, an integer, 0 or more", _from_zero),
    "link": Field("two ranks of one position, as [[3, 17], [4, 17]]", _ends_from_zero),
    "position": Field("a position in a replica, an integer, 0 or more", _from_zero),
    "replica": Field("a replica number, an integer, 0 or more", _from_zero),
    "variant": Field("never_joins or joins_and_stalls", _any),
    "part": Field("compute or link", _any),
    "factor": Field("how many times slower, a number more than 1, as 2.5", _above_one),
    "period": _SECONDS,
    "rate": Field("how fast clocks run, a number from 0.1 to 10, as 1.01", _rate),
    "jump": Field("seconds, more or less than 0, as -30", _jump),
    "share": Field("a share of the messages, above 0 and at most 1, as 0.01", _share),
    "damage": Field("torn, truncated or missing", _any),
    "duration": _SECONDS,
    "delay": _SECONDS,
    "seconds": _SECONDS,
    "count": _COUNT,
    "versions": _COUNT,
    "groups": Field('lists of replica numbers or "store", as [[0, 1], [2, "store"]]', _any),
    "one_way": Field("true or false", _any),
}
