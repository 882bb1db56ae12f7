"""Reading an event log from disk, block by block, in bounded memory.

A log is a row of blocks: four bytes, little endian, length of the payload; then the payload, a
zlib-compressed msgpack array of up to 65,536 entries. At any time one block is in memory.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import msgspec

from .entries import Entry

MAX_COMPRESSED = 256 << 20  # bytes; a length beyond it is not one that a writer made
MAX_BLOCK = 1 << 30  # bytes of one block when inflated


class CorruptLog(ValueError):
    """A log that no writer made. The message names the file, the block and its offset in bytes."""


def parts_of(path: Path) -> list[Path]:
    """The logs of a run that several processes wrote: ``events.log``, and ``events.1.log`` and so on
    beside it."""
    others = [p for p in path.parent.glob(f"{path.stem}.*{path.suffix}") if p.suffixes[0][1:].isdigit()]
    return [path, *sorted(others, key=lambda p: int(p.suffixes[0][1:]))]


class LogReader:
    """Iterates over the entries of a log, in order: of one file, or by time of all that one run wrote.

    truncated: after iteration, one line if the last block was cut off (the run was killed), else "".
    Raises CorruptLog, while iterating, for anything else that is not a log.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.truncated = ""

    def __iter__(self) -> Iterator[Entry]:
        self.truncated = ""
        parts = parts_of(self.path)
        if len(parts) == 1:
            return self._read(self.path)
        return heapq.merge(*map(self._read, parts), key=itemgetter(1))

    def _read(self, path: Path) -> Iterator[Entry]:
        decoder = msgspec.msgpack.Decoder(list[Entry])
        with path.open("rb") as file:
            for number, offset, payload in self._payloads(path, file):
                yield from self._entries(path, decoder, number, offset, payload)

    def _payloads(self, path: Path, file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
        number = offset = 0
        while header := file.read(4):
            number += 1
            length = int.from_bytes(header, "little")
            if len(header) == 4 and not 0 < length <= MAX_COMPRESSED:
                raise CorruptLog(f"{path}: block {number} at byte {offset} claims {length} bytes")
            payload = file.read(length) if len(header) == 4 else b""
            if len(header) < 4 or len(payload) < length:
                self.truncated = (
                    f"{path}: block {number} at byte {offset} is cut off; entries before it were read"
                )
                return
            yield number, offset, payload
            offset += 4 + length

    def _entries(
        self,
        path: Path,
        decoder: msgspec.msgpack.Decoder[list[Entry]],
        number: int,
        offset: int,
        payload: bytes,
    ) -> list[Entry]:
        where = f"{path}: block {number} at byte {offset}"
        inflater = zlib.decompressobj()
        try:
            raw = inflater.decompress(payload, MAX_BLOCK)
            if not inflater.eof:
                raise CorruptLog(f"{where} is incomplete or inflates to more than {MAX_BLOCK} bytes")
            return decoder.decode(raw)
        except zlib.error as error:
            raise CorruptLog(f"{where} does not inflate: {error}") from None
        except msgspec.MsgspecError as error:
            raise CorruptLog(f"{where} is not an array of entries: {error}") from None


def write(path: str | Path, entries: Iterable[Entry], block: int = 65_536) -> None:
    """Write ``entries`` as a log; for logs made by hand, shortened, or taken apart."""
    with Path(path).open("wb") as file:
        pending: list[Entry] = []
        for entry in entries:
            pending.append(entry)
            if len(pending) == block:
                file.write(pack(pending))
                pending = []
        if pending:
            file.write(pack(pending))


def pack(entries: list[Entry]) -> bytes:
    """One block."""
    payload = zlib.compress(msgspec.msgpack.encode(entries), 1)
    return len(payload).to_bytes(4, "little") + payload
