"""The ring by brute force: every member gets the same, right sums, in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftruntime.protocol.congestion import Tier
from tests.protocol.ring_world import World

SEEDS = st.integers(0, 2**32)


def finish(world, timers=False):
    world.run(timers)
    stuck = [(r.me.replica, r.state.name, r.consumed, r.posted) for r in world.rings if not r.finished]
    assert not stuck, f"deadlock: {stuck}"
    world.check_sums()
    assert all(r.failure is None for r in world.rings)


@pytest.mark.parametrize("members", [2, 3, 4, 12])
@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3, 5, 64])
def test_no_deadlock_and_right_sums(members, slots, chunks):
    if chunks == 64 and members == 12 and slots not in (1, 8):
        chunks = 17
    for seed in range(3 if chunks < 10 else 1):
        sizes = (chunks * members - 1, 0, 3)
        finish(World(sizes, members, 1, slots, seed=seed))


@settings(max_examples=200, deadline=None)
@given(
    buckets=st.lists(st.integers(0, 90), max_size=4),
    members=st.sampled_from([2, 3, 4, 12]),
    chunk_bytes=st.sampled_from([1, 3, 8, 16]),
    slots=st.integers(1, 8),
    tier=st.sampled_from(Tier),
    seed=SEEDS,
)
def test_any_geometry_in_any_order(buckets, members, chunk_bytes, slots, tier, seed):
    finish(World(buckets, members, chunk_bytes, slots, seed=seed, tier=tier))


@settings(max_examples=200, deadline=None)
@given(
    members=st.sampled_from([2, 3, 4, 7]),
    slots=st.integers(1, 8),
    size=st.integers(0, 60),
    losses=st.lists(st.integers(0, 80), min_size=1, max_size=4),
    zeros=st.integers(0, 2),
    seed=SEEDS,
)
def test_lost_connections_are_mended(members, slots, size, losses, zeros, seed):
    """All that is on a link is lost, and one or both ends are told. What nobody hears of, a Probe heals."""
    world = World((size, 5), members, 2, slots, seed=seed, zeros=min(zeros, members - 1))
    for moves in losses:
        for _ in range(moves):
            world.step()
        told = world.chance.choice((lambda ends: ends, lambda ends: ends[:1], lambda ends: ends[1:]))
        world.lose(world.chance.randrange(members), told)
    finish(world, timers=True)


@settings(max_examples=100, deadline=None)
@given(members=st.sampled_from([2, 3, 5]), slots=st.integers(1, 8), zeros=st.integers(1, 3), seed=SEEDS)
def test_zeros_mode_gives_everyone_the_contributors_sum(members, slots, zeros, seed):
    """``World.check`` holds a contributor's yes against what the other contributors have."""
    finish(World((40, 7), members + zeros, 2, slots, seed=seed, zeros=zeros))


@settings(max_examples=60, deadline=None)
@given(members=st.sampled_from([2, 3, 4]), slots=st.integers(1, 8), moves=st.integers(0, 200), seed=SEEDS)
def test_a_sealed_rank_never_changes_its_answer(members, slots, moves, seed):
    world = World((40, 7), members, 2, slots, seed=seed)
    for _ in range(moves):
        world.step()
    i = world.chance.randrange(members)
    while i in world.unstarted:
        world.step()
    sealed = world.rings[i]
    answer, told, taken = sealed.seal(), sealed.acknowledged, sealed.consumed
    world.run()
    assert sealed.complete is answer is sealed.seal()
    assert (sealed.acknowledged, sealed.consumed) == (told, taken)
    assert all(ring.finished for ring in world.rings) is answer


@settings(max_examples=200, deadline=None)
@given(
    members=st.sampled_from([2, 3, 4, 5, 12]),
    slots=st.integers(1, 8),
    size=st.integers(1, 120),
    moves=st.integers(0, 400),
    ready=st.booleans(),
    jitter=st.sampled_from([0, 0.05]),
    seed=SEEDS,
)
def test_whoever_hangs_is_named_by_all_who_miss_it(members, slots, size, moves, ready, jitter, seed):
    """Rank h stops at some point (before it starts, or later), dead or merely never ready."""
    world = World((size, 9), members, 2, slots, seed=seed, jitter=jitter)
    h = world.chance.randrange(members)
    if ready and moves == 0:
        world.hung.add(h)
    if not ready:
        world.unready.add(h)
    for _ in range(moves):
        world.step()
    if ready:
        world.hung.add(h)
    world.run(timers=True)
    others = [ring for i, ring in enumerate(world.rings) if i != h]
    assert all(ring.finished or ring.failure for ring in others)
    assert {ring.failure.accused for ring in others if ring.failure} <= {(world.ids[h].replica,)}
    assert world.rings[h].failure is None
