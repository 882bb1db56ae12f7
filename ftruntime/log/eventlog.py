"""The event log: everything that the checker needs, streamed to disk (schema version 1).

On disk: blocks of a 4-byte little-endian length and that many bytes of zlib (level 1) over the
msgpack array of up to 65,536 entries. Memory is bounded: the block being filled, and a few that a thread
compresses and writes while the run goes on (zlib lets go of the interpreter).

``trace_hash`` must be the same however the ranks are split over workers, even when workers own
slices of one replica. So it does not depend on the order of entries: every entry, which carries
its own time, is hashed alone, and the hashes are summed for each replica (and for the rest, the
job). Workers add their sums, and two runs that differ can be told apart by replica.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import msgspec

SCHEMA = 1
BLOCK_ENTRIES = 65_536
BLOCKS_WAITING = 4  # full blocks that may wait for the disk: a whole wave of ranks logs at one instant
JOB = -1  # where entries are summed that belong to no replica
REPLICA_KINDS = frozenset(
    "start crash exit register fenced computed reused applied dropped installed initial shard"
    " resources".split()
)  # kinds whose third field is the replica

Sums = dict[int, tuple[int, int]]  # replica -> (entries, sum of their hashes)
Entry = Sequence[object]  # [kind, seconds, ...fields]

_encode = msgspec.msgpack.Encoder().encode
_blake2b = hashlib.blake2b
_MASK = (1 << 64) - 1


class LogError(Exception):
    """The log cannot be written (disk full, no permission): one line that names the file."""


class EventLog:
    """Writes entries to ``path`` (None: nowhere, only hashed) and keeps the last ``keep`` in ``kept``.

    Call it with an entry; ``close`` it at the end. Raises LogError from either when the disk fails;
    blocks are written while the next ones fill, so the error may come a few blocks late.
    """

    def __init__(self, path: Path | None, keep: int = 0) -> None:
        self.path = path
        self.entries = 0
        self.bytes_written = 0
        self.kept: deque[Entry] = deque(maxlen=keep)
        self._keep = keep > 0
        self._block: list[bytes] = []
        self._hashes: dict[int, list[bytes]] = {}
        self._sums: Sums = {}
        self._file: BinaryIO | None = _open(path) if path else None
        self._writer = ThreadPoolExecutor(1, "event-log") if path else None
        self._writing: deque[Future[int]] = deque()

    def __call__(self, entry: Entry) -> None:
        packed = _encode(entry)
        replica = entry[2] if entry[0] in REPLICA_KINDS else JOB
        digest = _blake2b(packed, digest_size=8).digest()
        try:
            self._hashes[replica].append(digest)  # type: ignore[index]
        except KeyError:
            self._hashes[replica] = [digest]  # type: ignore[index]
        block = self._block
        block.append(packed)
        if self._keep:
            self.kept.append(entry)
        if len(block) == BLOCK_ENTRIES:
            self._flush()

    def flush(self) -> None:
        """Have everything so far with the operating system: it is kept even if this process is killed. Raises
        LogError."""
        if self._block:
            self._flush()
            self._collect(0)

    def _flush(self) -> None:
        self._fold_hashes()
        block, self._block = self._block, []
        self.entries += len(block)
        if self._writer is not None and block:
            self._collect(BLOCKS_WAITING - 1)
            self._writing.append(self._writer.submit(self._write, block))

    def _fold_hashes(self) -> None:
        for replica, digests in self._hashes.items():
            count, total = self._sums.get(replica, (0, 0))
            total += sum(struct.unpack(f"<{len(digests)}Q", b"".join(digests)))
            self._sums[replica] = (count + len(digests), total & _MASK)
        self._hashes.clear()

    def _write(self, block: list[bytes]) -> int:
        """In the writer's thread. Returns the bytes written."""
        payload = zlib.compress(b"\xdd" + struct.pack(">I", len(block)) + b"".join(block), 1)
        assert self._file is not None
        self._file.write(struct.pack("<I", len(payload)))
        self._file.write(payload)
        self._file.flush()
        return 4 + len(payload)

    def _collect(self, left: int) -> None:
        """Wait until at most ``left`` blocks are still to be written, and learn of errors."""
        while self._writing and (len(self._writing) > left or self._writing[0].done()):
            try:
                self.bytes_written += self._writing.popleft().result()
            except OSError as error:
                raise self._failed(error) from error

    def _failed(self, error: OSError) -> LogError:
        return LogError(
            f"cannot write the event log {self.path}: {error.strerror or error}"
            f" (after {self.bytes_written} bytes); free some space or choose another run directory"
        )

    def close(self) -> None:
        """Write what is left. Raises LogError; the file is closed in any case."""
        try:
            self._flush()
            self._collect(0)
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            if self._file is not None:
                self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        try:
            file.close()
        except OSError as error:  # a disk that filled up at the last flush
            raise self._failed(error) from error

    def sums(self) -> Sums:
        """(entries, sum of their hashes modulo 2**64) of each replica, and of JOB."""
        self._fold_hashes()
        return dict(sorted(self._sums.items()))

    @property
    def trace_hash(self) -> str:
        """32 hex digits: equal for equal runs, whatever the order of entries and of workers."""
        return combine([self.sums()])


def added(parts: Sequence[Sums]) -> Sums:
    """``EventLog.sums`` of a run whose entries were logged in several ``parts``."""
    total: Sums = {}
    for part in parts:
        for replica, (count, value) in part.items():
            before = total.get(replica, (0, 0))
            total[replica] = (before[0] + count, (before[1] + value) & _MASK)
    return dict(sorted(total.items()))


def combine(parts: Sequence[Sums]) -> str:
    """The trace hash of a run whose entries were logged in several ``parts``."""
    content = _encode([(replica, *pair) for replica, pair in added(parts).items()])
    return _blake2b(content, digest_size=16).hexdigest()


def whole_blocks(path: Path) -> None:
    """Take away the last block of a log if whoever wrote it was killed in the midst of it."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size, whole = file.seek(0, 2), 0
        while whole + 4 <= size:
            file.seek(whole)
            end = whole + 4 + int.from_bytes(file.read(4), "little")
            if end > size:
                break
            whole = end
        file.truncate(whole)


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "wb")
    except OSError as error:
        raise LogError(
            f"cannot create the event log {path}: {error.strerror}; choose another run directory"
        ) from error
