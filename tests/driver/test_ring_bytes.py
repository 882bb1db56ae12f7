"""The data plane on the host: sums of real bytes, to the bit, whatever the sizes."""

from __future__ import annotations

import gc
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.driver.memory import Pool
from ftruntime.driver.ring_bytes import ITEM, HeldBytes, RingBytes, adder, as_lists, square_norm
from ftruntime.protocol import effects as f
from ftruntime.protocol import messages as m
from ftruntime.protocol.congestion import Tier, fresh_window
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.ring import Ring


def reduce_all(grads, shape, add=None, dtype="float32"):
    """Run the protocol's rings over ``grads[member][bucket]``; returns what each member has at the end."""
    n, pool, queue = len(grads), Pool(), deque()
    ends = [RingBytes(pool, shape, i, grads[i], add or adder(dtype)) for i in range(n)]
    slots = [[None] * shape.slots for _ in range(n)]
    rings = []
    for i in range(n):
        around = [MemberId(j % n, 1) for j in (i, i - 1, i + 1)]
        rings.append(
            Ring(
                shape, *around, position=0, round=1, window=fresh_window(Tier.RACK, shape.slots),
                contributing=True, chunk_timeout=10.0, max_retries=0,
            )
        )  # fmt: skip

    def carry_out(i, effects):
        for effect in effects:
            if isinstance(effect, f.Send):
                queue.append((i, effect.to[0], effect.message, None))
            elif isinstance(effect, f.Post):
                post(i, effect)

    def post(i, p):
        if p.filled:
            data = slots[i][p.give % shape.slots]
        else:
            data = ends[i].take(p.take) if p.take >= 0 else ends[i].produce(p.give)
            if p.give < 0:
                return
            slots[i][p.give % shape.slots] = data
        if p.send:
            queue.append((i, (i + 1) % n, m.Chunk(1, 1, p.give, p.push), bytes(data)))
            if shape.needs_completions:
                queue.append((i, i, f.Note("sent", p.give + 1), None))

    for i, ring in enumerate(rings):
        out = []
        ring.start(0.0, out)
        for bucket in range(len(shape.buckets)):
            ring.bucket_ready(bucket, 0.0, out)
        carry_out(i, out)
    while queue:
        source, to, message, data = queue.popleft()
        out = []
        if isinstance(message, f.Note):
            rings[to].sent(message.round, 0.0, out)
        else:
            if data:
                ends[to].landing(message.seq)[:] = np.frombuffer(data, np.uint8)
            rings[to].handle(source, message, 0.0, out)
        carry_out(to, out)
    assert all(ring.finished for ring in rings)
    return ends


def draw_grads(members, sizes, seed, dtype=np.float32):
    draw = np.random.default_rng(seed)
    return [
        [draw.standard_normal(size).astype(dtype).view(np.uint8) for size in sizes] for _ in range(members)
    ]


@given(
    members=st.integers(1, 6),
    sizes=st.lists(st.integers(0, 90), min_size=1, max_size=3),
    chunk=st.sampled_from([16, 48, 64, 1024]),
    slots=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_all_members_get_the_same_bits_and_they_are_the_sum(members, sizes, chunk, slots, seed):
    grads = draw_grads(members, sizes, seed)
    shape = geometry(tuple(4 * size for size in sizes), members, chunk, slots)
    ends = reduce_all(grads, shape)
    for bucket in range(len(sizes)):
        found = {bytes(end.sums[bucket]) for end in ends}
        assert len(found) == 1
        exact = np.sum([g[bucket].view(np.float32).astype(np.float64) for g in grads], axis=0)
        np.testing.assert_allclose(ends[0].sums[bucket].view(np.float32), exact, rtol=1e-5, atol=1e-5)


def test_a_partition_is_summed_in_the_order_of_the_ring():
    grads = draw_grads(3, [48], 1)
    ends = reduce_all(grads, geometry((192,), 3, 64, 4))
    values = [g[0].view(np.float32) for g in grads]
    for partition in range(3):
        part = slice(16 * partition, 16 * (partition + 1))
        first, second, third = (values[(partition + k) % 3][part] for k in range(3))
        assert bytes(ends[0].sums[0].view(np.float32)[part]) == bytes((first + second) + third)


def test_bfloat16_is_summed_in_float32_and_rounded():
    torch = pytest.importorskip("torch")
    tensors = [torch.randn(64).to(torch.bfloat16) for _ in range(2)]
    grads = [[t.view(torch.uint8).numpy()] for t in tensors]
    ends = reduce_all(grads, geometry((128,), 2, 32, 4), dtype="bfloat16")
    assert torch.equal(torch.from_numpy(ends[1].sums[0].copy()).view(torch.bfloat16), tensors[0] + tensors[1])


def test_other_types_are_refused():
    with pytest.raises(ConfigError, match="int8 cannot be summed; choose one of float32"):
        adder("int8")


def test_a_learner_ends_with_what_it_taps():
    shape = geometry((400, 36), 3, 64, 4)
    ends = reduce_all(draw_grads(3, [100, 9], 3), shape)
    held = HeldBytes(Pool(), shape, 1)
    for index in range(shape.finished_total):
        held.landing(index)[:] = ends[1].finished(index)
    assert [bytes(block) for block in held.sums] == [bytes(block) for block in ends[0].sums]


def test_who_sends_zeros_adds_nothing():
    grads = draw_grads(3, [30], 4)
    shape = geometry((120,), 3, 64, 4)
    with_zeros = reduce_all([*grads[:2], None], shape)
    zeros = [np.zeros(120, np.uint8)]
    assert bytes(with_zeros[2].sums[0]) == bytes(reduce_all([*grads[:2], zeros], shape)[0].sums[0])


def test_the_norm_is_of_all_buckets():
    blocks = [np.array([3, 0], np.float32).view(np.uint8), np.array([4], np.float32).view(np.uint8)]
    assert square_norm(blocks, "float32") == 25.0
    assert as_lists(blocks, "float32") == [[3.0, 0.0], [4.0]]


def test_memory_is_used_again_only_when_nobody_looks_at_it():
    pool = Pool()
    first = pool.take(1000)
    first.fill(7)
    view = memoryview(first)[10:20]
    address = first.ctypes.data
    del first
    gc.collect()
    other = pool.take(1000)
    assert other.ctypes.data != address and bytes(view) == bytes([7] * 10)
    del view
    gc.collect()
    again = pool.take(1000)
    assert again.ctypes.data == address
    assert (pool.used, pool.most) == (2000, 2000)


def test_the_pool_keeps_no_more_than_was_ever_in_use():
    pool = Pool()
    kept = [pool.take(100) for _ in range(5)]
    del kept
    gc.collect()
    assert (pool.used, pool.free) == (0, 500)
    for size in range(200, 210):
        pool.take(size)
    gc.collect()
    assert pool.free <= pool.most


def test_empty_chunks_are_summed_in_any_type():
    """A bucket of fewer bytes than there are members has empty chunks."""
    for dtype, item in ITEM.items():
        grads = [[np.full(item, 0, np.uint8), np.zeros(0, np.uint8)] for _ in range(3)]
        ends = reduce_all(grads, geometry((item, 0), 3, 32, 4), dtype=dtype)
        assert [len(block) for block in ends[0].sums] == [item, 0]
