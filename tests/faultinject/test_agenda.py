"""The agenda hands out each fault once, when it is due, in the schedule's order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from faultinject import POINTS, Agenda, JobShape, Phase, Schedule
from faultinject.strategies import schedules
from faultinject.vocabulary import Crash, Partition, StoreAway

SHAPE = JobShape(replicas=3, ranks_per_replica=2)


def test_faults_by_time_come_in_order_and_once():
    late, early = Crash(rank=(0, 0), at=9.0), Crash(rank=(1, 0), at=2.0)
    same = Crash(rank=(2, 0), at=2.0)
    agenda = Agenda(Schedule(faults=(late, early, same)))
    assert agenda.next_time() == 2.0
    assert agenda.due(1.9) == ()
    assert agenda.due(2.0) == (early, same)
    assert agenda.due(2.0) == ()
    assert agenda.next_time() == 9.0
    assert agenda.due(100.0) == (late,)
    assert agenda.next_time() is None


def test_a_fault_waits_for_its_own_replica_and_its_phase():
    fault = Crash(rank=(1, 0), step=3, phase=Phase.FTAR)
    agenda = Agenda(Schedule(faults=(fault,)))
    assert agenda.at_phase(1, 2, Phase.FTAR) == ()
    assert agenda.at_phase(0, 3, Phase.FTAR) == ()
    assert agenda.at_phase(1, 3, Phase.VOTE) == ()
    assert agenda.pending() == (fault,)
    assert agenda.at_phase(1, 3, Phase.FTAR) == (fault,)
    assert agenda.at_phase(1, 3, Phase.FTAR) == ()
    assert agenda.pending() == ()


def test_a_replica_that_was_away_in_that_step_is_hit_in_a_later_one():
    fault = Crash(rank=(1, 0), step=3, phase=Phase.JOIN)
    assert Agenda(Schedule(faults=(fault,))).at_phase(1, 7, Phase.JOIN) == (fault,)


def test_a_fault_without_a_replica_waits_for_any():
    away = StoreAway(duration=1.0, step=3, phase=Phase.COMMIT)
    split = Partition(groups=((0,), (1,)), duration=1.0, step=3, phase=Phase.COMMIT)
    agenda = Agenda(Schedule(faults=(away, split)))
    assert agenda.next_time() is None
    assert agenda.at_phase(2, 3, Phase.COMMIT) == (away, split)


def test_a_fault_waits_for_its_point_its_step_and_a_rank_that_it_hits():
    fault = Crash(rank=(1, 0), step=3, point="vote.yes")
    agenda = Agenda(Schedule(faults=(fault,)))
    assert agenda.waits_for_points and not any(map(agenda.waits_for, Phase))
    assert agenda.at_point("vote.no", 3, lambda fault: True) == ()
    assert agenda.at_point("vote.yes", 2, lambda fault: True) == ()
    assert agenda.at_point("vote.yes", 3, lambda fault: False) == ()
    assert agenda.pending() == (fault,)
    assert agenda.at_point("vote.yes", 4, lambda fault: fault.rank == (1, 0)) == (fault,)
    assert not agenda.waits_for_points and agenda.pending() == ()


@given(schedule=schedules(SHAPE, max_faults=6, recoverable=False), times=st.lists(st.integers(0, 3600)))
def test_every_fault_falls_due_exactly_once(schedule, times):
    agenda = Agenda(schedule)
    seen = []
    for now in sorted(times):
        seen += agenda.due(now)
        seen += agenda.at_phase(now % 3, now // 100, list(Phase)[now % 9])
        assert agenda.next_time() is None or agenda.next_time() > now
    rest = agenda.pending()
    key = repr
    assert sorted((*seen, *rest), key=key) == sorted(schedule.faults, key=key)
    seen += agenda.due(3600)
    for phase in Phase:
        for replica in range(3):
            seen += agenda.at_phase(replica, 20, phase)
    for point in POINTS:
        seen += agenda.at_point(point, 20, lambda fault: True)
    assert sorted(seen, key=key) == sorted(schedule.faults, key=key)
    assert agenda.pending() == ()
