"""What a checksum must notice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.ftar.checksum import checksum


@given(st.data())
def test_one_word_that_changes_is_noticed(data):
    item = data.draw(st.sampled_from([2, 4]))
    chunk = np.frombuffer(data.draw(st.binary(min_size=item, max_size=64)), np.uint8)
    chunk = chunk[: len(chunk) // item * item].copy()
    before = checksum(chunk, item)
    at = data.draw(st.integers(0, len(chunk) - 1))
    chunk[at] ^= data.draw(st.integers(1, 255))
    assert checksum(chunk, item) != before


@pytest.mark.parametrize("item, kind", [(2, np.uint16), (4, np.uint32)])
def test_two_words_that_are_swapped_are_noticed(item, kind):
    words = np.arange(1, 200, dtype=kind)
    swapped = words.copy()
    swapped[[3, 150]] = swapped[[150, 3]]
    assert checksum(words.view(np.uint8), item) != checksum(swapped.view(np.uint8), item)


def test_nothing_has_a_checksum_too():
    assert checksum(np.zeros(0, np.uint8), 4) == 0
