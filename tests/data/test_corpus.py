"""The faker corpus: a function of (seed, stream, index) and nothing else."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from emulator.corpus import LOCALES, FakerCorpus
from ftruntime.data import corpus_digest
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ledger import SampleRange

ROOT = Path(__file__).resolve().parents[2]
IDS = list(product(range(8), range(6)))
PROGRAM = """
from emulator.corpus import FakerCorpus
from ftruntime.protocol.ledger import SampleRange
print(FakerCorpus(7, streams=8).digest([SampleRange(s, 0, 6) for s in range(8)]))
"""


def digest_in_another_process(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )
    return int(done.stdout)


def documents(corpus, ids=IDS):
    return {i: corpus.tokens(*i) for i in ids}


def test_every_process_and_hash_seed_gives_the_same_documents():
    here = FakerCorpus(7, streams=8).digest([SampleRange(s, 0, 6) for s in range(8)])
    assert {digest_in_another_process(seed) for seed in ("0", "1", "random")} == {here}


def test_the_order_of_calls_does_not_matter():
    shuffled = IDS[:]
    random.Random(3).shuffle(shuffled)
    assert documents(FakerCorpus(7, streams=8), shuffled) == documents(FakerCorpus(7, streams=8))


def test_a_document_that_left_the_cache_comes_back_the_same():
    tight = FakerCorpus(7, streams=8, cached=1)
    assert documents(tight) == documents(tight) == documents(FakerCorpus(7, streams=8))


def test_threads_do_not_mix_documents():
    corpus = FakerCorpus(7, ["en_US"], streams=8, cached=1)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change over within nearly every document
    try:
        with ThreadPoolExecutor(max_workers=4) as executor:
            read = dict(zip(IDS, executor.map(lambda i: corpus.tokens(*i), IDS), strict=True))
    finally:
        sys.setswitchinterval(usual)
    assert read == documents(FakerCorpus(7, ["en_US"], streams=8))


def test_seeds_streams_and_indexes_all_matter():
    everything = [FakerCorpus(seed, streams=8).tokens(*i) for seed in (0, 1, 2) for i in IDS]
    everything += [FakerCorpus(1, streams=40).tokens(23, 4), FakerCorpus(12, streams=40).tokens(3, 4)]
    assert len(set(everything)) == len(everything)


def test_documents_are_small_text():
    for tokens in documents(FakerCorpus(0, streams=8)).values():
        assert 60 < len(tokens) < 1500
        assert len(tokens.decode("utf-8").strip().splitlines()) >= 3


def test_every_locale_is_seen():
    text = "".join(t.decode() for t in documents(FakerCorpus(0, streams=8)).values())
    scripts = {unicodedata.name(letter, "").split()[0] for letter in text if letter.isalpha()}
    assert {"LATIN", "CYRILLIC", "CJK", "HIRAGANA", "KATAKANA", "ARABIC", "DEVANAGARI"} <= scripts


@pytest.mark.parametrize("locale", LOCALES)
def test_each_locale_drawn_alone_gives_other_documents(locale):
    others = [name for name in LOCALES if name != locale]
    alone = documents(FakerCorpus(0, [locale], streams=8))
    assert not set(alone.values()) & set(documents(FakerCorpus(0, others, streams=8)).values())


def test_the_digest_is_over_the_tokens_in_the_order_of_the_ranges():
    corpus = FakerCorpus(0, streams=8)
    ranges = [SampleRange(2, 1, 2), SampleRange(0, 0, 1)]
    tokens = corpus.tokens(2, 1) + corpus.tokens(2, 2) + corpus.tokens(0, 0)
    expected = int.from_bytes(hashlib.blake2b(tokens, digest_size=8).digest(), "little")
    assert corpus.digest(ranges) == corpus_digest(corpus, ranges) == expected
    assert corpus.digest(ranges[::-1]) != expected


def test_what_cannot_work_is_refused_in_one_clear_line():
    for make, words in (
        (lambda: FakerCorpus(0, ["xx_YY"], streams=8), "no locale 'xx_YY'; try one of en_US"),
        (lambda: FakerCorpus(0, [], streams=8), "no locale given"),
        (lambda: FakerCorpus(0, streams=0), "streams is 0"),
        (lambda: FakerCorpus(0, streams=8).tokens(8, 0), "no stream 8; the corpus has 0 to 7"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            make()
        assert "\n" not in str(caught.value)
