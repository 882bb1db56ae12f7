"""The one error that this package raises for what a person wrote, and how it shows a value."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any

import msgspec

SHOWN_CHARACTERS = 60


class ScheduleError(ValueError):
    """A schedule, or a request for one, that cannot be used.

    The message is one line: the place (``faults[3].rank``), the value there, and the mend.
    """


def choose(wrong: str, names: Iterable[str]) -> str:
    """The mend for a name that is none of ``names``."""
    close = difflib.get_close_matches(wrong, list(names), n=1)
    return f"did you mean {close[0]}?" if close else f"choose one of {', '.join(names)}"


def shown(value: Any) -> str:
    """A value as JSON has it, on one line and shortened: for messages."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON has no such number
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=0).decode()
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[: SHOWN_CHARACTERS + 1])
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
