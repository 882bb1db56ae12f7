"""The fingerprint data plane: sums are exact, and no misplaced chunk goes unseen."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.chunks import Exchange, HeldRound, RingShares
from emulator.mixing import MASK, mix, unmix
from ftruntime.protocol.geometry import geometry

from .rings import run_ring, run_tap

GEOMETRY = geometry((40, 96), 3, 16, 4)


def _grads(members, buckets, seed=0):
    draw = random.Random(seed)
    return [[draw.getrandbits(64) for _ in range(buckets)] for _ in range(members)]


def _sums(grads):
    return [sum(column) & MASK for column in zip(*grads, strict=True)]


@given(st.integers(0, MASK))
def test_mixing_loses_nothing(x):
    assert unmix(mix(x)) == x and mix(unmix(x)) == x


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 400), min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_every_member_and_learner_gets_the_exact_sum(members, buckets, slots, seed):
    shape = geometry(tuple(buckets), members, 16, slots)
    grads = _grads(members, len(buckets), seed)
    exchanges = [Exchange(shape, i, own, tapped=True) for i, own in enumerate(grads)]
    run_ring(exchanges, shape)
    held = HeldRound(shape, seed % members)
    run_tap(exchanges[seed % members], held, shape)
    assert all(e.reduced() == _sums(grads) for e in (*exchanges, held))


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.lists(st.integers(0, 400), min_size=1, max_size=3), st.integers(1, 6))
def test_what_is_worked_out_is_as_if_chunk_by_chunk(members, buckets, slots):
    shape = geometry(tuple(buckets), members, 16, slots)
    grads = _grads(members, len(buckets))
    one_by_one, worked_out = ([Exchange(shape, i, own) for i, own in enumerate(grads)] for _ in range(2))
    sent = run_ring(one_by_one, shape)
    shares = RingShares(shape)
    for i, own in enumerate(grads):
        shares.put(i, own)
    assert all(shares.passed(i, number) == data for (i, number), data in sent.items())
    for a, b in zip(one_by_one, worked_out, strict=True):
        for count in range(1, shape.finished_total + 1):
            b.finish(count, shares.totals())
            assert b.done == count
        assert a.reduced() == b.reduced()


def test_a_member_that_sends_zeros_adds_nothing():
    grads = _grads(2, 2)
    exchanges = [Exchange(GEOMETRY, i, own) for i, own in enumerate([*grads, None])]
    run_ring(exchanges, GEOMETRY)
    assert exchanges[2].reduced() == _sums(grads)


class _Wrong(Exchange):
    """A member whose driver mixes something up at chunk ``at``."""

    def __init__(self, how, at, index, own):
        super().__init__(GEOMETRY, index, own)
        self.how, self.at, self.before = how, at, 12345

    def take(self, number, data):
        if number == self.at:
            if self.how == "another round":
                data = (data + 1) & MASK
            if self.how == "another chunk":
                data = self.before
            if self.how == "lost":
                return data
            if self.how == "twice":
                super().take(number, data)
        self.before = data
        return super().take(number, data)


# Doing an unfinished chunk twice is not wrong: it is only passed on, and again the same.
_MISTAKES = [
    (how, at)
    for how in ("another round", "another chunk", "lost", "twice")
    for at in range(GEOMETRY.total)
    if how != "twice" or GEOMETRY.locate(at).step >= GEOMETRY.members - 2
]


@pytest.mark.parametrize(("how", "at"), _MISTAKES)
def test_a_chunk_gone_wrong_changes_the_sum(how, at):
    grads = _grads(3, 2)
    exchanges = [_Wrong(how, at, 0, grads[0]), *(Exchange(GEOMETRY, i, grads[i]) for i in (1, 2))]
    run_ring(exchanges, GEOMETRY)
    assert any(e.reduced() != _sums(grads) for e in exchanges)


def test_a_learner_takes_finished_chunks_in_order_only():
    held = HeldRound(GEOMETRY, 0)
    held.store(0, 1)
    with pytest.raises(AssertionError, match="in order"):
        held.store(2, 1)
