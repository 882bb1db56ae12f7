"""Where samples come from: the seam between the ledger and a corpus (design 2 and 3.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias

from ftruntime.protocol.ledger import SampleRange

SampleId: TypeAlias = tuple[int, int]  # (stream, index)


class SampleSource(Protocol):
    """A corpus. It has no length: every index >= 0 of every stream has a sample, for ever.

    The same (stream, index) gives the same bytes in every process and in any order of calls, and
    calls may come from several threads at once.
    """

    def tokens(self, stream: int, index: int) -> bytes:
        """The tokens of one sample, one byte each."""
        ...


def sample_ids(ranges: Iterable[SampleRange]) -> Iterator[SampleId]:
    """Every sample of ``ranges``, in the order in which it is trained."""
    for r in ranges:
        for index in range(r.start, r.start + r.count):
            yield r.stream, index


def corpus_digest(source: SampleSource, ranges: Iterable[SampleRange]) -> int:
    """64 bits over the tokens of ``ranges`` in order: what a device says that it has read."""
    digest = hashlib.blake2b(digest_size=8)
    for stream, index in sample_ids(ranges):
        digest.update(source.tokens(stream, index))
    return int.from_bytes(digest.digest(), "little")
