"""What the strategies draw is valid, covers the vocabulary, and leaves a healthy core."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from faultinject import KINDS, JobShape, ScheduleError, check, dumps, fits_budget, kind_of, loads
from faultinject.budget import RECOVERY_SECONDS
from faultinject.strategies import faults, schedules
from faultinject.vocabulary import (
    CorruptGradient,
    Crash,
    LauncherDelay,
    Partition,
    ReplicaLostForEver,
    StoreAway,
    StoreEmpty,
    Zombie,
)

SHAPE = JobShape(replicas=4, ranks_per_replica=12, min_replicas=2)
SHAPES = st.builds(
    lambda replicas, ranks: JobShape(replicas=replicas, ranks_per_replica=ranks),
    st.integers(1, 5),
    st.integers(1, 20),
)


def crash(replica: int, at: float) -> Crash:
    return Crash(rank=(replica, 0), at=at)


@given(data=st.data(), shape=SHAPES, recoverable=st.booleans())
def test_every_schedule_drawn_is_valid_and_within_its_budget(data, shape, recoverable):
    schedule = data.draw(schedules(shape, recoverable=recoverable))
    check(schedule, shape)
    assert loads(dumps(schedule)) == schedule
    assert len(schedule.faults) <= 4
    assert not recoverable or fits_budget(schedule.faults, shape)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_alone_with_either_onset(kind):
    quick = settings(max_examples=200, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    only = faults(SHAPE, kinds=[kind])
    assert kind_of(find(only, lambda fault: fault.at is not None, settings=quick)) == kind
    assert kind_of(find(only, lambda fault: fault.phase is not None, settings=quick)) == kind


@given(schedule=schedules(SHAPE, kinds=["crash", "store_away"], max_faults=2))
def test_only_the_kinds_asked_for_are_drawn(schedule):
    assert {kind_of(fault) for fault in schedule.faults} <= {"crash", "store_away"}
    assert len(schedule.faults) <= 2


def test_recoverable_schedules_may_hit_more_than_one_replica():
    found = find(schedules(SHAPE, kinds=["crash"]), lambda schedule: len(schedule.faults) >= 2)
    assert len(found.faults) == 2


def test_schedules_beyond_the_budget_come_only_when_asked_for():
    beyond = schedules(SHAPE, kinds=["replica_lost_for_ever"], recoverable=False)
    found = find(beyond, lambda schedule: not fits_budget(schedule.faults, SHAPE))
    assert len({fault.replica for fault in found.faults}) == 3


def test_an_unknown_kind_is_refused():
    with pytest.raises(ScheduleError) as caught:
        faults(SHAPE, kinds=["crsh"])
    assert str(caught.value) == 'kinds: crsh: "crsh" is not a kind of fault; did you mean crash?'


AFTER = RECOVERY_SECONDS
BUDGET = [  # 4 replicas of which 2 must stay
    ("none", [], True),
    ("two at once", [crash(0, 0), crash(1, 10)], True),
    ("three at once", [crash(0, 0), crash(1, 10), crash(2, 20)], False),
    ("one again and again", [crash(0, 0), crash(0, 10), crash(0, 20), crash(1, 20)], True),
    ("three, the first back", [crash(0, 0), crash(1, 10), crash(2, AFTER)], True),
    (
        "three, the first delayed",
        [crash(0, 0), LauncherDelay(replica=0, seconds=30.0, at=0.0), crash(1, 10), crash(2, AFTER)],
        False,
    ),
    (
        "a step may come at any time",
        [crash(0, 0), crash(1, 10), Crash(rank=(2, 0), step=1, phase="vote")],
        False,
    ),
    (
        "one lost for ever and two later",
        [ReplicaLostForEver(replica=0, at=0.0), crash(1, 9000), crash(2, 9001)],
        False,
    ),
    ("a corrupt gradient costs no replica", [CorruptGradient(rank=(r, 0), at=1.0) for r in range(4)], True),
    ("a store away costs no replica", [crash(0, 0), crash(1, 0), StoreAway(duration=9.0, at=0.0)], True),
    ("the smaller side is out", [Partition(groups=((0,), (1, 2, 3)), duration=5.0, at=0.0)], True),
    ("and a crash beside it", [Partition(groups=((0, 1), (2, 3)), duration=5.0, at=0.0), crash(0, 1)], False),
    (
        "the side without the store is out",
        [Partition(groups=((0, 1, 2), ("store",)), duration=5.0, at=0.0)],
        False,
    ),
    (
        "a zombie's successor is late",
        [Zombie(replica=0, delay=60.0, at=0.0), crash(1, 9), crash(2, AFTER)],
        False,
    ),
    ("an empty store, all well", [StoreEmpty(at=0.0), crash(0, AFTER)], True),
    ("an empty store, one out", [crash(0, 0), StoreEmpty(at=10.0)], False),
]


@pytest.mark.parametrize(("name", "some", "fits"), BUDGET, ids=[row[0] for row in BUDGET])
def test_the_budget(name, some, fits):
    assert fits_budget(some, SHAPE) is fits
