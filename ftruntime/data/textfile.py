"""A corpus out of text files that a user has."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ledger import SampleRange

from .source import corpus_digest

_SMALLEST_DOCUMENT = 16  # a longest UTF-8 sequence has 4 bytes: a cut always leaves something


class TextFileCorpus:
    """UTF-8 text files, split in documents that are dealt to the streams in turn.

    Document d of D is sample d // streams of stream d % streams, and after the last one the first
    comes again: each pass over the corpus reads every document once. Only the places of the documents
    are kept in memory, 20 bytes each. A document ends at a line end, at a blank line if it can.

    document_bytes: the longest document, in bytes
    cached:         how many documents to keep in memory
    Raises ConfigError for a file that is missing, empty, or not text.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        streams: int,
        document_bytes: int = 512,
        cached: int = 4096,
    ) -> None:
        if streams < 1:
            raise ConfigError(f"streams is {streams}; a corpus needs at least 1")
        if document_bytes < _SMALLEST_DOCUMENT:
            raise ConfigError(f"document_bytes is {document_bytes}; give at least {_SMALLEST_DOCUMENT}")
        given = [paths] if isinstance(paths, str | Path) else list(paths)
        if not given:
            raise ConfigError("no text file given; name at least one")
        self._paths = [Path(p) for p in given]
        self._streams = streams
        self._files, self._starts, self._sizes = array("I"), array("Q"), array("Q")
        for number, path in enumerate(self._paths):
            self._index(number, path, document_bytes)
        self._cached = lru_cache(maxsize=cached)(self._read)

    @property
    def documents(self) -> int:
        """How many documents one pass over the corpus has."""
        return len(self._starts)

    def tokens(self, stream: int, index: int) -> bytes:
        """The bytes of one document. Raises ConfigError if its file has changed or gone since."""
        if not 0 <= stream < self._streams:
            raise ConfigError(f"no stream {stream}; the corpus has 0 to {self._streams - 1}")
        return self._cached((index * self._streams + stream) % len(self._starts))

    def digest(self, ranges: Sequence[SampleRange]) -> int:
        """64 bits over the tokens of ``ranges`` in order."""
        return corpus_digest(self, ranges)

    def _index(self, number: int, path: Path, limit: int) -> None:
        try:
            with path.open("rb") as file:
                for start, size in _documents(path, file, limit):
                    self._files.append(number)
                    self._starts.append(start)
                    self._sizes.append(size)
        except OSError as error:
            raise ConfigError(f"cannot read corpus file {path}: {error.strerror or error}") from None

    def _read(self, document: int) -> bytes:
        path, size = self._paths[self._files[document]], self._sizes[document]
        try:
            with path.open("rb") as file:
                file.seek(self._starts[document])
                data = file.read(size)
        except OSError as error:
            raise ConfigError(f"cannot read corpus file {path}: {error.strerror or error}") from None
        if len(data) != size:
            raise ConfigError(f"corpus file {path} became shorter while it was in use; start again")
        return data


def _documents(path: Path, file: BinaryIO, limit: int) -> Iterator[tuple[int, int]]:
    """(start, size) of documents that tile the file without gap or overlap."""
    start = size = 0
    text = False
    for piece in _pieces(path, file, limit):
        blank = not piece.strip()
        text = text or not blank
        if size + len(piece) > limit:
            yield start, size
            start, size = start + size, 0
        size += len(piece)
        if blank and 2 * size > limit:
            yield start, size
            start, size = start + size, 0
    if size:
        yield start, size
    if not text:
        raise ConfigError(f"corpus file {path} holds no text; give a file with text in it")


def _pieces(path: Path, file: BinaryIO, limit: int) -> Iterator[bytes]:
    """Lines, long ones cut between two letters."""
    offset = 0
    while piece := file.readline(limit):
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError as error:
            cut = len(piece) == limit and error.reason == "unexpected end of data"
            if not cut:
                raise _not_text(path, offset + error.start) from None
            piece = piece[: error.start]
            file.seek(offset + len(piece))
        if b"\0" in piece:
            raise _not_text(path, offset + piece.index(b"\0"))
        offset += len(piece)
        yield piece


def _not_text(path: Path, offset: int) -> ConfigError:
    return ConfigError(f"corpus file {path} is not UTF-8 text (byte {offset}); convert it first")
