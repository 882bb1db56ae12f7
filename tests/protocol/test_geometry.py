"""Chunk numbers and bytes: the formulas of design 3.4 against counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.geometry import Geometry, Piece, Place, geometry

SHAPES = {
    "buckets": st.lists(st.integers(0, 300), max_size=4).map(tuple),
    "members": st.integers(1, 13),
    "chunk_bytes": st.integers(1, 40),
    "slots": st.integers(1, 9),
}


def test_a_small_one_by_hand():
    g = Geometry((10, 0), members=2, chunk_bytes=2, slots=4)
    assert g.pieces == (Piece(0, 0, 2, 0, 0), Piece(0, 2, 1, 4, 4), Piece(1, 0, 1, 6, 6))
    assert (g.total, g.bucket_end, g.finished_total, g.finished_end) == (8, (6, 8), 8, (6, 8))
    assert [g.byte_range(0, 1, c) for c in range(3)] == [(6, 8), (8, 10), (10, 10)]
    assert (g.locate(0), g.locate(3), g.locate(5)) == (
        Place(0, 0, 0, 0),
        Place(0, 0, 1, 1),
        Place(0, 1, 1, 2),
    )


def test_partitions_go_round_the_ring():
    g = Geometry((12,), members=4, chunk_bytes=3, slots=2)
    assert [g.sent_partition(1, t) for t in range(6)] == [1, 0, 3, 2, 1, 0]
    for index in range(4):
        for step in range(6):
            assert g.received_partition(index, step) == g.sent_partition((index - 1) % 4, step)


@given(**SHAPES)
def test_every_byte_is_in_exactly_one_chunk(buckets, members, chunk_bytes, slots):
    g = Geometry(buckets, members, chunk_bytes, slots)
    for bucket, size in enumerate(buckets):
        seen = [0] * size
        share = -(-size // members)
        assert g.chunks_per_partition(bucket) == max(1, -(-share // chunk_bytes))
        for partition in range(members):
            for chunk in range(g.chunks_per_partition(bucket)):
                start, end = g.byte_range(bucket, partition, chunk)
                assert 0 <= start <= end <= size and end - start <= chunk_bytes
                for byte in range(start, end):
                    seen[byte] += 1
        assert seen == [1] * size


@given(**SHAPES)
def test_numbers_run_through_pieces_steps_and_chunks(buckets, members, chunk_bytes, slots):
    g = Geometry(buckets, members, chunk_bytes, slots)
    places = [
        Place(piece.bucket, at, step, piece.chunk + c)
        for at, piece in enumerate(g.pieces)
        for step in range(2 * (members - 1))
        for c in range(piece.per_step)
    ]
    assert [g.locate(n) for n in range(g.total)] == places
    finished = [p for p in places if p.step >= members - 2] if members > 1 else None
    if finished is not None:
        assert [g.locate_finished(n) for n in range(g.finished_total)] == finished
    assert all(piece.per_step <= max(1, slots // 2) for piece in g.pieces)
    for bucket, end in enumerate(g.bucket_end):
        assert end == sum(p.bucket <= bucket for p in places)


@given(**SHAPES)
def test_every_chunk_of_every_partition_finishes_once_at_each_member(buckets, members, chunk_bytes, slots):
    g = Geometry(buckets, members, chunk_bytes, slots)
    everything = sorted(
        (b, p, c)
        for b in range(len(buckets))
        for p in range(members)
        for c in range(g.chunks_per_partition(b))
    )
    for index in range(members):
        places = [g.locate_finished(n) for n in range(g.finished_total)]
        assert sorted((p.bucket, g.received_partition(index, p.step), p.chunk) for p in places) == everything


def test_elements_are_not_cut_where_the_chunk_size_allows():
    g = Geometry((100,), members=3, chunk_bytes=32, slots=4)
    starts = {g.byte_range(0, p, c)[0] for p in range(3) for c in range(2)}
    assert starts == {0, 32, 48, 80, 96, 100}


def test_no_messages_for_one_member_or_no_bucket():
    alone = Geometry((5, 9), members=1, chunk_bytes=4, slots=8)
    assert (alone.total, alone.finished_total, alone.finished_end) == (0, 5, (2, 5))
    nothing = Geometry((), members=3, chunk_bytes=4, slots=8)
    assert (nothing.total, nothing.finished_total, nothing.bucket_end) == (0, 0, ())


@pytest.mark.parametrize(("slots", "needed"), [(1, True), (2, False), (8, False)])
def test_a_single_slot_needs_completions(slots, needed):
    assert Geometry((8,), 2, 4, slots).needs_completions is needed


@pytest.mark.parametrize("number", [-1, 4])
def test_numbers_outside_the_round_are_refused(number):
    g = Geometry((8,), members=2, chunk_bytes=2, slots=8)
    with pytest.raises(IndexError):
        g.locate(g.total if number > 0 else number)
    with pytest.raises(IndexError):
        g.locate_finished(g.finished_total if number > 0 else number)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        (((8,), 0, 4, 2), "members is 0"),
        (((8,), 2, 0, 2), "chunk_bytes is 0"),
        (((8,), 2, 4, 0), "slots is 0"),
        (((8, -1), 2, 4, 2), "bucket 1 has -1 bytes"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes, named):
    with pytest.raises(ConfigError, match=named):
        geometry(*sizes)


def test_geometries_are_shared():
    assert geometry((8, 8), 2, 4, 2) is geometry((8, 8), 2, 4, 2)
