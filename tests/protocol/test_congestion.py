"""The congestion window: where it starts, how it opens and closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.congestion import GAIN, Tier, Window, fresh_window


@pytest.mark.parametrize(
    ("tier", "slots", "size"),
    [(Tier.RACK, 8, 8), (Tier.ZONE, 8, 4), (Tier.BUILDING, 8, 2), (Tier.REGION, 8, 1), (Tier.REGION, 1, 1)],
)
def test_a_far_link_starts_low(tier, slots, size):
    assert fresh_window(tier, slots) == Window(tier, slots, size)


@pytest.mark.parametrize("tier", Tier)
def test_a_window_of_acks_widens_it_by_the_tiers_gain(tier):
    window = Window(tier, 100, 10)
    assert window.acked(9).size == 10
    assert window.acked(9).acked(1).size == 10 + GAIN[tier]
    assert window.acked(10).credit == 0


def test_it_stops_at_the_slots_and_saves_no_credit():
    assert Window(Tier.ZONE, 8, 7).acked(1000) == Window(Tier.ZONE, 8, 8)


@pytest.mark.parametrize(("size", "half"), [(8, 4), (5, 2), (2, 1), (1, 1)])
def test_a_transient_error_halves_it(size, half):
    assert Window(Tier.ZONE, 8, size, 1).halved() == Window(Tier.ZONE, 8, half)


@given(
    tier=st.sampled_from(Tier),
    slots=st.integers(1, 64),
    story=st.lists(st.integers(0, 40), max_size=50),
)
def test_it_stays_between_one_and_the_slots(tier, slots, story):
    window = fresh_window(tier, slots)
    for chunks in story:
        before, window = window, window.acked(chunks) if chunks else window.halved()
        assert 1 <= window.size <= slots
        assert window.size >= before.size if chunks else window.size <= before.size
