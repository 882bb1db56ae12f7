"""The structured log: one happening a line, as JSON or for people."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import msgspec

from .happening import Happening

_encode = msgspec.json.Encoder().encode


class Log:
    """Appends to ``path``; "-" is standard error. A line is written at once: a killed process has said all.

    Raises OSError when it cannot be opened. A log that cannot be written later (a full disk) says so
    once, and the training goes on.
    """

    def __init__(self, path: str, form: str) -> None:
        own = path != "-"
        self._file = (
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if own else sys.stderr.fileno()
        )
        self._own, self._path = own, path
        self._line = _json if form == "json" else _human

    def __call__(self, happening: Happening) -> None:
        if self._file < 0:
            return
        try:
            os.write(self._file, self._line(happening) + b"\n")
        except OSError as error:
            print(f"the log {self._path} ends: {error.strerror}", file=sys.stderr)
            self.close()

    def close(self) -> None:
        if self._own and self._file >= 0:
            os.close(self._file)
        self._file = -1


def _fields(happening: Happening) -> dict[str, Any]:
    return {
        "time": round(happening.time, 6), "event": happening.event, "replica": happening.replica,
        "incarnation": happening.incarnation, "position": happening.position, "round": happening.round,
        "step": happening.step, **happening.more,
    }  # fmt: skip


def _json(happening: Happening) -> bytes:
    return _encode(_fields(happening))


def _human(happening: Happening) -> bytes:
    at = time.strftime("%H:%M:%S", time.localtime(happening.time)) + f".{int(happening.time % 1 * 1000):03d}"
    who = f"{happening.replica}.{happening.incarnation}/{happening.position}"
    more = " ".join(f"{key}={_word(value)}" for key, value in happening.more.items())
    where = f"round {happening.round} step {happening.step}"
    return f"{at} {who:<8} {where:<24} {happening.event:<12} {more}".rstrip().encode()


def _word(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) and " " in value else str(value)
