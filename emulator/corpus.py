"""A corpus that needs no download: small documents out of faker, in several scripts (design 3.6).

Each is a function of (seed, stream, index) and of the installed version of faker: not of the process,
the order of calls, or the hash seed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from faker import Faker

from ftruntime.data import TextFileCorpus, corpus_digest
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ledger import SampleRange

__all__ = ["LOCALES", "FakerCorpus", "Readable", "TextFileCorpus"]

LOCALES = ("en_US", "de_DE", "fr_FR", "es_ES", "ru_RU", "zh_CN", "ja_JP", "ar_AA", "hi_IN")


class Readable(Protocol):
    """A corpus as an emulation reads it."""

    def tokens(self, stream: int, index: int) -> bytes: ...

    def digest(self, ranges: Sequence[SampleRange]) -> int: ...


class FakerCorpus:
    """Documents of a person, an address, a company and a few sentences, as UTF-8 bytes.

    locales:  faker's names of them; each document is in one, drawn by its seed
    streams:  how many streams the job has
    cached:   how many documents, and how many digests, to keep in memory
    Raises ConfigError for a locale that faker does not have.
    """

    def __init__(
        self, seed: int = 0, locales: Sequence[str] = LOCALES, *, streams: int, cached: int = 4096
    ) -> None:
        if streams < 1:
            raise ConfigError(f"streams is {streams}; a corpus needs at least 1")
        if not locales:
            raise ConfigError("no locale given; name at least one, en_US say")
        self._seed = seed
        self._streams = streams
        self._fakers = [_faker(name) for name in locales]
        # A faker is seeded and then asked several times: two threads must not come between.
        self._one_at_a_time = threading.Lock()
        self._cached = lru_cache(maxsize=cached)(self._write)
        self._digests = lru_cache(maxsize=cached)(self._digest)

    def tokens(self, stream: int, index: int) -> bytes:
        """The bytes of one document, about 200 to 600 of them."""
        if not 0 <= stream < self._streams:
            raise ConfigError(f"no stream {stream}; the corpus has 0 to {self._streams - 1}")
        return self._cached(stream, index)

    def digest(self, ranges: Sequence[SampleRange]) -> int:
        """64 bits over the tokens of ``ranges`` in order. Asked by every rank, read once."""
        return self._digests(tuple(ranges))

    def name(self, ranges: Sequence[SampleRange]) -> int:
        """64 bits that are equal exactly when ``digest`` is, without writing a document: each document is a
        function of (seed, stream, index)."""
        spelt = "/".join(f"{r.stream}:{r.start}+{r.count}" for r in ranges)
        digest = hashlib.blake2b(f"{self._seed}/{spelt}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def _digest(self, ranges: tuple[SampleRange, ...]) -> int:
        return corpus_digest(self, ranges)

    def _write(self, stream: int, index: int) -> bytes:
        key = hashlib.blake2b(f"{self._seed}/{stream}/{index}".encode(), digest_size=16).digest()
        faker = self._fakers[int.from_bytes(key[8:], "little") % len(self._fakers)]
        with self._one_at_a_time:
            faker.seed_instance(int.from_bytes(key[:8], "little"))
            return _document(faker).encode("utf-8")


def _faker(locale: str) -> Faker:
    try:
        # Weighted drawing costs twice as much and buys nothing here.
        return Faker(locale, use_weighting=False)
    except AttributeError:
        raise ConfigError(f"faker has no locale {locale!r}; try one of {', '.join(LOCALES)}") from None


def _document(faker: Faker) -> str:
    address = faker.address().replace("\n", ", ")
    return f"{faker.name()}, {faker.job()}, {faker.company()}\n{address}\n\n{faker.paragraph(4)}\n"
