"""Whom a fault touches, and how long: the checker claims nothing of a job while a fault excuses it."""

from __future__ import annotations

import pytest

from conformance.checker.faults import EVERYONE, STORE, Faults, touched


@pytest.mark.parametrize(
    ("fault", "who"),
    [
        ({"kind": "crash", "target": [3, 12]}, {3}),
        ({"kind": "crash", "rank": [3, 12]}, {3}),
        ({"kind": "crash", "host": [3, 1]}, {3}),
        ({"kind": "pause", "replica": 4, "rank": None}, {4}),
        ({"kind": "slow", "target": 4}, {4}),
        ({"kind": "slow", "target": "4/7"}, {4}),
        ({"kind": "link", "target": "3/12-4/12"}, {3, 4}),
        ({"kind": "link", "target": [[3, 0], [4, 0]]}, {3, 4}),
        ({"kind": "hang", "target": {"replica": 2}}, {2}),
        ({"kind": "slow", "replicas": [1, 2]}, {1, 2}),
        ({"kind": "store_away", "duration": 3.0}, {STORE}),
        ({"kind": "away", "target": "store"}, {STORE}),
        ({"kind": "partition", "groups": [[0, 1, 2], [3, "store"]]}, {0, 1, 2}),
        ({"kind": "partition", "groups": [[0], [1, 2]]}, {0}),
        ({"kind": "partition", "groups": [["store"], [1, 2], [0]]}, {0, 1, 2}),
        ({"kind": "launcher_delay", "replica": 2}, set()),
        ({"kind": "weather", "target": "building"}, {EVERYONE}),
        ({"kind": "weather"}, {EVERYONE}),
    ],
)
def test_whom_a_fault_touches(fault, who):
    assert touched(fault) == who


def test_a_fault_is_on_until_it_heals():
    faults = Faults()
    faults.begin(1.0, {"kind": "partition", "groups": [[1], [0, "store"]], "duration": 4.0})
    assert faults.on(1) and not faults.on(0)
    faults.life_over(2.0, 1)
    assert faults.on(1), "a new life of the replica is cut off as well"
    faults.heal(5.0, {"kind": "partition", "groups": [[1], [0, "store"]]})
    assert not faults.on(1)
    assert faults.touched_since(1, 5.0) and not faults.touched_since(1, 5.1)
    assert faults.clean_since(1, 5.1) and not faults.clean_since(1, 4.0)


def test_a_fault_of_processes_ends_with_their_life():
    faults = Faults()
    faults.begin(1.0, {"kind": "hang", "rank": [1, 3]})
    faults.life_over(2.0, 0)
    assert faults.on(1)
    faults.life_over(3.0, 1)
    assert not faults.on(1) and faults.touched_since(1, 3.0)


def test_of_two_faults_the_right_one_heals():
    faults = Faults()
    first, second = {"kind": "slow", "rank": [1, 0]}, {"kind": "slow", "rank": [2, 0]}
    faults.begin(1.0, first)
    faults.begin(1.0, second)
    faults.heal(2.0, second)
    assert faults.on(1) and not faults.on(2)


@pytest.mark.parametrize("kind", ["store_empty", "store_restored_old"])
def test_a_store_without_its_content_is_away_until_a_new_epoch(kind):
    faults = Faults()
    faults.begin(1.0, {"kind": kind})
    assert faults.store_away()
    faults.new_epoch(9.0)
    assert not faults.store_away()


@pytest.mark.parametrize("kind", ["store_lost_answer", "corrupt_gradient"])
def test_what_strikes_once_is_no_lasting_excuse(kind):
    faults = Faults()
    faults.begin(1.0, {"kind": kind, "rank": [0, 0]})
    assert not faults.active and faults.seen == 1
