"""What a real process writes for the checker: entries that are on file before anyone can know of them.

A process that is killed has written everything that it let others see; at most its last block is torn. Time
is the machine's monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import msgspec

from ftruntime.log.eventlog import Entry

_encode = msgspec.msgpack.Encoder().encode


class Journal:
    """Appends entries to ``path`` in the event log's format, a block for each. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, entry: Entry) -> None:
        payload = zlib.compress(_encode([entry]), 1)
        os.write(self._file, len(payload).to_bytes(4, "little") + payload)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def close(self) -> None:
        os.close(self._file)
