"""A write-ahead log: records that are on the disk before anybody is told of them.

On disk: 8 bytes of magic, then records of length (u32), CRC-32 of the body (u32), body. A crash can only
tear the last record, which nobody was told of: it is cut off. Anything else that does not fit is damage, and
is refused, since what comes after it would be given up in silence.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

MAGIC: Final = b"FTWAL\0\0\1"
HEAD: Final = struct.Struct("<II")


class DamagedLog(ValueError):
    """A log that no writer left like this. The message names file and byte, and what to do."""


class WriteAheadLog:
    """Appends records to ``path``; ``size`` in bytes. Raises OSError when the disk fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self.size = 0

    def replay(self) -> list[bytes]:
        """All records that are there, oldest first, and open the log for more. Raises DamagedLog."""
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        content = self.path.read_bytes()
        if not content.startswith(MAGIC):
            if not MAGIC.startswith(content):
                raise DamagedLog(f"{self.path} is not a log of a store: move it away, or name another folder")
            content = MAGIC
            os.pwrite(self._file, MAGIC, 0)
        records, end = read_records(content, self.path)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        os.fsync(self._file)
        _sync_folder(self.path.parent)
        self.size = end
        return records

    def append(self, bodies: Sequence[bytes]) -> None:
        """Write ``bodies``, and return when they are durable."""
        content = b"".join(map(_packed, bodies))
        view = memoryview(content)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        self.size += len(content)

    def begin_anew(self, bodies: Sequence[bytes]) -> None:
        """Let ``bodies`` stand for all that was written so far, atomically."""
        fresh = self.path.with_suffix(".new")
        content = MAGIC + b"".join(map(_packed, bodies))
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
            os.replace(fresh, self.path)
            _sync_folder(self.path.parent)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self.size = file, len(content)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_records(content: bytes, path: Path) -> tuple[list[bytes], int]:
    """The whole records in ``content``, and where they end. Raises DamagedLog; the last may be torn."""
    records, at = [], len(MAGIC)
    for body, end in _walk(content, at):
        if body is None:
            if end < len(content):
                raise DamagedLog(
                    f"{path} is damaged at byte {at} and goes on afterwards: restore it from a copy, or move"
                    " it away to let the members rebuild the store from what they know"
                )
            break
        records.append(body)
        at = end
    return records, at


def _walk(content: bytes, at: int) -> Iterator[tuple[bytes | None, int]]:
    """(body, where it ends) of each record; None for a body that is not whole."""
    while at < len(content):
        if at + HEAD.size > len(content):
            yield None, len(content)
            return
        length, check = HEAD.unpack_from(content, at)
        body, end = content[at + HEAD.size : at + HEAD.size + length], at + HEAD.size + length
        if len(body) < length or zlib.crc32(body) != check:
            yield None, min(end, len(content))
            return
        yield body, end
        at = end


def _packed(body: bytes) -> bytes:
    return HEAD.pack(len(body), zlib.crc32(body)) + body


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
