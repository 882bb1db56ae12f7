"""A corpus out of text files: every byte once a pass, and clear words for files that cannot be used."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftruntime.data import TextFileCorpus
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ledger import SampleRange

TEXT = "Erste Zeile.\nZweite Zeile, länger.\n\nNeuer Absatz.\n\n\n第三段落。\nEnde ohne Zeilenende"


def one_pass(corpus, streams):
    return [corpus.tokens(d % streams, d // streams) for d in range(corpus.documents)]


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@settings(deadline=None)
@given(
    text=st.text(st.sampled_from("ab \n\r\tä段😀"), min_size=1, max_size=60).map(lambda t: ("a" + t) * 4),
    streams=st.integers(1, 5),
    limit=st.integers(16, 80),
)
def test_one_pass_reads_every_byte_once_in_whole_letters(text, streams, limit):
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "corpus.txt", text)
        pieces = one_pass(TextFileCorpus(path, streams=streams, document_bytes=limit), streams)
    assert b"".join(pieces) == text.encode()
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert "".join(piece.decode() for piece in pieces) == text


def test_after_the_last_document_the_first_comes_again(tmp_path):
    corpus = TextFileCorpus(write(tmp_path, "a.txt", TEXT), streams=2, document_bytes=32)
    total = corpus.documents
    assert total > 2 and len(set(one_pass(corpus, 2))) == total
    assert [corpus.tokens(0, n) for n in range(total)] == [corpus.tokens(0, n + total) for n in range(total)]


def test_files_follow_each_other_in_the_order_given(tmp_path):
    paths = [write(tmp_path, "b.txt", "first\n"), write(tmp_path, "a.txt", "second\n")]
    corpus = TextFileCorpus([str(p) for p in paths], streams=1)
    assert one_pass(corpus, 1) == [b"first\n", b"second\n"]


def test_paragraphs_stay_together_where_they_fit(tmp_path):
    path = write(tmp_path, "a.txt", "one one one\n\ntwo two\ntwo\n")
    corpus = TextFileCorpus(path, streams=1, document_bytes=24)
    assert one_pass(corpus, 1) == [b"one one one\n\n", b"two two\ntwo\n"]


def test_the_digest_tells_ranges_apart(tmp_path):
    corpus = TextFileCorpus(write(tmp_path, "a.txt", TEXT), streams=2, document_bytes=32)
    again = TextFileCorpus(tmp_path / "a.txt", streams=2, document_bytes=32, cached=0)
    ranges = [SampleRange(0, 0, 1), SampleRange(1, 0, 1)]
    assert corpus.digest(ranges) == again.digest(ranges) != corpus.digest(ranges[::-1])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read corpus file .*: No such file"),
        (b"", "holds no text"),
        (b" \n\n \n", "holds no text"),
        (b"good text \xff\xfe", r"is not UTF-8 text \(byte 10\)"),
        (b"line one\nand \x00 nul", r"is not UTF-8 text \(byte 13\)"),
        ("cut in a letter ä".encode()[:-1], r"is not UTF-8 text \(byte 16\)"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, words):
    path = tmp_path / "corpus.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        TextFileCorpus(path, streams=2, document_bytes=16)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_is_not_a_corpus_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot read corpus file"):
        TextFileCorpus(tmp_path, streams=1)


def test_numbers_that_cannot_work_are_refused(tmp_path):
    path = write(tmp_path, "a.txt", TEXT)
    for make, words in (
        (lambda: TextFileCorpus(path, streams=0), "streams is 0"),
        (lambda: TextFileCorpus(path, streams=1, document_bytes=15), "document_bytes is 15"),
        (lambda: TextFileCorpus([], streams=1), "no text file given"),
        (lambda: TextFileCorpus(path, streams=2).tokens(2, 0), "no stream 2; the corpus has 0 to 1"),
    ):
        with pytest.raises(ConfigError, match=words):
            make()


def test_a_file_that_shrinks_or_goes_while_it_is_in_use_is_named(tmp_path):
    path = write(tmp_path, "a.txt", TEXT)
    corpus = TextFileCorpus(path, streams=1, cached=0)
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="became shorter"):
        corpus.tokens(0, 0)
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        corpus.tokens(0, 0)
