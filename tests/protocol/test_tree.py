"""The tree over the ranks of a replica, against plain counting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftruntime.protocol.tree import children, depth, parent

shapes = given(ranks=st.integers(1, 300), fan_out=st.integers(1, 40))


def hops(position: int, fan_out: int) -> int:
    above = parent(position, fan_out)
    return 0 if above is None else 1 + hops(above, fan_out)


@settings(deadline=None)
@shapes
def test_every_rank_but_the_root_has_exactly_one_parent(ranks, fan_out):
    told = [child for position in range(ranks) for child in children(position, ranks, fan_out)]
    assert sorted(told) == list(range(1, ranks))


@settings(deadline=None)
@shapes
def test_parents_and_children_agree(ranks, fan_out):
    assert parent(0, fan_out) is None
    for position in range(ranks):
        own = children(position, ranks, fan_out)
        assert len(own) <= fan_out
        assert list(own) == [p for p in range(ranks) if parent(p, fan_out) == position]


@settings(deadline=None)
@shapes
def test_depth_is_the_longest_way_to_the_root(ranks, fan_out):
    assert depth(ranks, fan_out) == max(hops(p, fan_out) for p in range(ranks))


@pytest.mark.parametrize(
    ("ranks", "fan_out", "expected"),
    [
        (1, 32, 0),
        (2, 32, 1),
        (33, 32, 1),
        (34, 32, 2),
        (1057, 32, 2),
        (1058, 32, 3),
        (8192, 32, 3),
        (5, 1, 4),
    ],
)
def test_depths_that_people_rely_on(ranks, fan_out, expected):
    assert depth(ranks, fan_out) == expected


@settings(deadline=None)
@shapes
def test_the_shape_above_a_rank_does_not_depend_on_how_many_follow(ranks, fan_out):
    for position in range(ranks):
        wider = children(position, ranks + fan_out, fan_out)
        assert list(children(position, ranks, fan_out)) == [p for p in wider if p < ranks]
