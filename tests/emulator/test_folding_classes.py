"""Which positions are alike, against a search by brute force on small trees."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from emulator.folding import Seating, classes, combined, link_colours
from emulator.network import NetworkConfig, Topology
from ftruntime.protocol.tree import children, parent


def refined(colours: list[int], fan_out: int) -> list[int]:
    """Colour refinement as the books have it: until nothing changes."""
    ranks = len(colours)
    while True:
        names: dict[object, int] = {}
        new = []
        for p in range(ranks):
            above = parent(p, fan_out)
            kids = sorted(colours[c] for c in children(p, ranks, fan_out))
            key = (colours[p], None if above is None else colours[above], tuple(kids))
            new.append(names.setdefault(key, len(names)))
        if len(set(new)) == len(set(colours)):
            return new
        colours = new


def blocks(names: list[int]) -> set[frozenset[int]]:
    return {frozenset(p for p, n in enumerate(names) if n == name) for name in set(names)}


def drawn(seed: int) -> tuple[list[int], int]:
    rng = random.Random(seed)
    ranks, fan_out = rng.randint(1, 60), rng.randint(1, 5)
    special = {rng.randrange(ranks) for _ in range(rng.randint(0, 3))}
    return [1 if p in special else 2 if p == 0 else rng.choice([0, 0, 0, 3]) for p in range(ranks)], fan_out


@pytest.mark.parametrize("seed", range(60))
def test_the_classes_are_those_of_colour_refinement(seed: int) -> None:
    colours, fan_out = drawn(seed)
    assert blocks(classes(colours, fan_out)) == blocks(refined(colours, fan_out))


@pytest.mark.parametrize("seed", range(30))
def test_who_is_run_hears_what_each_of_its_class_would(seed: int) -> None:
    """Each message of the unfolded tree has one place in the folded one: nothing twice, nothing missing."""
    colours, fan_out = drawn(seed)
    found = classes(colours, fan_out)
    seating = Seating(found, fan_out)
    ranks = len(colours)
    assert sum(seating.counts.values()) == ranks
    for position in seating.positions:
        kids = children(position, ranks, fan_out)
        heard = Counter(seating.route(position, child).hearer for child in seating.family(position))
        assert set(heard.values()) <= {1}, "who is run for several children is told once"
        assert set(heard) == {seating.stands_in[child] for child in kids}
        assert sum(seating.route(position, c).times for c in seating.family(position)) == len(kids)
        above = parent(position, fan_out)
        if above is not None:
            speaker, hearer, times = seating.route(position, above)
            assert hearer == seating.stands_in[above] and times == 1
            assert speaker in seating.family(hearer), "only whom it waits for speaks to it"
            assert seating.stands_in[speaker] == position


def test_the_preferred_stay_where_there_is_a_choice() -> None:
    seating = Seating([0, 1, 1, 1, 2, 2], 2, preferred=(3, 5))
    assert seating.positions == (0, 3, 5)
    assert seating.counts == {0: 1, 3: 3, 5: 2}
    assert seating.alone(0) and not seating.alone(1)


def test_a_fault_unfolds_the_way_to_the_root_and_no_more() -> None:
    topology = Topology(12, 8192, NetworkConfig())
    links = link_colours(topology, 32)
    usual = len(set(classes(links, 32)))
    assert usual < 40
    touched = classes(combined(8192, links, {5000: 5000}), 32)
    assert usual < len(set(touched)) <= usual + 8
    assert touched.count(touched[5000]) == 1


def test_replicas_of_one_building_make_places_differ() -> None:
    """Where two replicas share racks, equal positions in them are not equally near everywhere."""
    near = link_colours(Topology(14, 20, NetworkConfig()), 2)
    far = link_colours(Topology(12, 20, NetworkConfig()), 2)
    assert len(set(near)) > len(set(far))
