"""The whole back end on CPU tensors: kernels, wire and control give the bits that the protocol defines."""

import pytest

from ftruntime.ftar.processor import Processor

from .members import Members

ODD = (1001, 0, 1, 700)  # elements of the buckets: odd ones, an empty one, and one with one element


@pytest.fixture
def ring(request):
    made = []

    def make(*arguments, **options):
        made.append(Members(*arguments, **options))
        return made[-1]

    yield make
    for members in made:
        members.close()


@pytest.mark.parametrize("dtype, item", [("float32", 4), ("bfloat16", 2), ("float16", 2)])
@pytest.mark.parametrize("count, slots, checked", [(2, 4, False), (3, 2, True), (4, 8, False)])
def test_sums_are_the_reference_to_the_bit(ring, dtype, item, count, slots, checked):
    members = ring(count, dtype, slots=slots, chunk_bytes=512, checked=checked)
    sizes = [item * elements for elements in ODD]
    for round in (1, 2):
        members.check(members.reduce(round, sizes, seed=round))


def test_twelve_members(ring):
    members = ring(12, chunk_bytes=1024)
    members.check(members.reduce(1, [4 * 1001, 4]))


@pytest.mark.parametrize("dtype, item", [("float32", 4), ("bfloat16", 2), ("float16", 2)])
@pytest.mark.parametrize("count, slots, checked", [(2, 4, True), (5, 1, False), (12, 3, True)])
def test_the_processor_gives_the_same_bits(ring, dtype, item, count, slots, checked):
    members = ring(
        count, dtype, slots=slots, chunk_bytes=512, checked=checked, stream=lambda blocks: Processor()
    )
    sizes = [item * elements for elements in ODD]
    for round in (1, 2):
        members.check(members.reduce(round, sizes, seed=round))


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_any_number_of_slots(ring, slots):
    members = ring(2, slots=slots, chunk_bytes=64)
    members.check(members.reduce(1, [4 * 500]))


@pytest.mark.parametrize("chunks", [1, 2, 7, 64])
def test_up_to_64_chunks_a_partition(ring, chunks):
    members = ring(2, chunk_bytes=16, slots=4)
    members.check(members.reduce(1, [2 * 16 * chunks]))


def test_two_thread_blocks_share_the_work(ring):
    members = ring(2, blocks=2, chunk_bytes=2048)
    members.check(members.reduce(1, [4 * 3000]))


def test_one_member_alone_has_its_own_gradient(ring):
    members = ring(1)
    members.check(members.reduce(1, [4 * 10, 0]))


def test_rounds_may_have_other_members(ring):
    members = ring(4, chunk_bytes=512, quiet=20.0)
    ids, sizes = members.ids, [4 * 900]
    for round, present in enumerate([ids, ids[1:], (ids[0], ids[2], ids[3]), ids[2:], ids], start=1):
        members.check(members.reduce(round, sizes, members=present, seed=round))
    assert [one.revoked for one in members.all.values()] == [0] * 4, (
        "nothing went wrong, so nothing is taken away"
    )


def test_nothing_is_allocated_once_it_is_warm(ring):
    members = ring(2)
    members.check(members.reduce(1, [4 * 100]))
    slots = [(one.engine.received.data_ptr(), one.engine.sent.data_ptr()) for one in members.all.values()]
    members.check(members.reduce(2, [4 * 100]))
    assert slots == [
        (one.engine.received.data_ptr(), one.engine.sent.data_ptr()) for one in members.all.values()
    ]
