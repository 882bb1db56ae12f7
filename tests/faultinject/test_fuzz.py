"""Drawing the cases of a campaign, and making one small: what must hold before anything is run."""

from __future__ import annotations

import msgspec
import pytest

from emulator.fuzz.run import settings_of
from faultinject import KINDS, JobShape, Phase, check, kind_of
from faultinject.fuzz import Case, draw_case, is_promised, shrink
from faultinject.vocabulary import (
    CorruptGradient,
    Crash,
    NanGradient,
    Pause,
    ReplicaLostForEver,
    StoreEmpty,
    StoreLostAnswer,
    StoreRestoredOld,
    StoreSlow,
    Zombie,
)

MANY = 500
THREE = JobShape(replicas=3, ranks_per_replica=2, min_replicas=2)


@pytest.fixture(scope="module")
def cases():
    return [draw_case(11, number) for number in range(MANY)]


def test_a_case_is_a_function_of_seed_and_number(cases):
    assert [draw_case(11, case.number) for case in reversed(cases)] == cases[::-1]
    assert draw_case(12, 0) != cases[0] and cases[0].faults != cases[1].faults


def test_every_case_is_valid_and_promised(cases):
    for case in cases:
        check(case.schedule, case.shape)
        assert case.faults and is_promised(case.faults, case.shape), case
        settings_of(case).check()


def test_every_kind_phase_and_choice_is_drawn(cases):
    faults = [fault for case in cases for fault in case.faults]
    assert {kind_of(fault) for fault in faults} == set(KINDS)
    assert {fault.phase for fault in faults} == {None, *Phase}
    assert {case.job["replicas"] for case in cases} == {2, 3, 4}
    assert {case.job["catch_up"] for case in cases} == {"tap", "zeros"}


def test_a_case_has_only_some_kinds(cases):
    """Swarm: even many faults together are never all of different kinds by nature of the mixture."""
    longest = [case for case in cases if len(case.faults) >= 4]
    assert any(len({kind_of(fault) for fault in case.faults}) == 1 for case in longest)


CRASH = Crash(at=50.0, rank=(0, 0))
NOT_PROMISED = {
    "too many are gone for ever": [ReplicaLostForEver(at=1.0, replica=r) for r in (0, 1)],
    "a zombie that nobody succeeds": [
        Zombie(at=1.0, replica=0, delay=5.0),
        ReplicaLostForEver(at=2.0, replica=0),
    ],
    "who knew the head is dead": [CRASH, StoreRestoredOld(at=60.0, versions=2)],
    "somebody may be away by then": [Crash(step=1, phase=Phase.VOTE, rank=(0, 0)), StoreEmpty(at=60.0)],
    "a gradient may end a replica": [NanGradient(at=50.0, rank=(0, 0)), StoreEmpty(at=60.0)],
    "nobody has heard of the head": [StoreSlow(at=58.0, factor=20.0, duration=10.0), StoreEmpty(at=60.0)],
    "answers may be lost at any time": [StoreLostAnswer(step=1, phase=Phase.COMMIT), StoreEmpty(at=60.0)],
    "lost before anybody has seen it": [StoreEmpty(at=1.0)],
    "lost twice at once": [StoreEmpty(at=60.0), StoreRestoredOld(at=61.0, versions=1)],
}
PROMISED = {
    "all crash at once": [Crash(at=50.0, rank=(r, 0)) for r in range(3)],
    "one is gone for ever": [ReplicaLostForEver(at=1.0, replica=2), CRASH],
    "the head is lost, and all are there": [StoreEmpty(at=60.0)],
    "lost twice, long after each other": [StoreEmpty(at=60.0), StoreEmpty(at=160.0)],
    "slow long before": [StoreSlow(at=10.0, factor=20.0, duration=10.0), StoreEmpty(at=60.0)],
}


@pytest.mark.parametrize("why", NOT_PROMISED)
def test_what_is_not_promised_is_refused(why):
    assert not is_promised(NOT_PROMISED[why], THREE)


@pytest.mark.parametrize("why", PROMISED)
def test_what_is_promised_is_taken(why):
    assert is_promised(PROMISED[why], THREE)


def a_case(faults):
    return msgspec.structs.replace(draw_case(0, 0), job=ROOMY, faults=tuple(faults))


ROOMY = {**draw_case(0, 0).job, "replicas": 4, "ranks_per_replica": 5, "min_replicas": 3, "steps": 20}


def test_shrinking_leaves_what_the_failure_needs():
    faults = [Pause(at=17.3, replica=n, duration=100.0) for n in range(4)]
    faults.insert(2, Crash(at=33.125, rank=(1, 2)))
    small = shrink(a_case(faults), lambda case: any(isinstance(fault, Crash) for fault in case.faults))
    (crash,) = small.faults
    assert crash == Crash(at=33.0, rank=(1, 2)) and small.job["replicas"] == 2
    assert small.job["ranks_per_replica"] == 3, "the rank that is hit must be there"


def test_shrinking_asks_only_what_is_valid_promised_and_so_many_times():
    asked = []

    def fails(case: Case) -> bool:
        asked.append(case)
        return False

    case = a_case([StoreEmpty(at=60.5), CorruptGradient(at=70.5, rank=(3, 4)), StoreEmpty(at=160.5)])
    assert shrink(case, fails, tries=9) is case and len(asked) == 9
    for other in asked:
        check(other.schedule, other.shape)
        assert is_promised(other.faults, other.shape)
