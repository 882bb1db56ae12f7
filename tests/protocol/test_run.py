"""A contributor's round: its table, and nothing but its table."""

from __future__ import annotations

import itertools

import pytest

from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.run import MOVES, WHOLE, Run, State

from .builders import job, train_plan

PLAN = train_plan(job(), 2)

# The table of the docstring, written once more.
TABLE = {
    (State.RUNNING, State.COMPLETE),
    (State.RUNNING, State.SEALING),
    (State.SEALING, State.KEPT),
    (State.SEALING, State.DROPPED),
    (State.KEPT, State.COMPLETE),
    (State.COMPLETE, State.APPLYING),
    (State.KEPT, State.APPLYING),
    (State.COMPLETE, State.DROPPING),
    (State.KEPT, State.DROPPING),
    (State.RUNNING, State.DROPPING),
    (State.SEALING, State.DROPPING),
}


@pytest.mark.parametrize(("here", "there"), list(itertools.product(State, repeat=2)))
def test_a_run_moves_as_the_table_says(here, there):
    run = Run(PLAN)
    run.state = here
    if (here, there) in TABLE:
        run.move(there)
        assert run.state is there
    else:
        with pytest.raises(AssertionError, match=f"round 4: {here.name} to {there.name}"):
            run.move(there)


def test_the_table_is_whole():
    assert set(MOVES) == set(State)
    assert {(a, b) for a, after in MOVES.items() for b in after} == TABLE


def test_what_was_dropped_is_never_applied():
    """Schedules 4 and 17: whatever the head says afterwards."""
    reached, todo = set(), [State.DROPPED]
    while todo:
        state = todo.pop()
        reached.add(state)
        todo += MOVES[state] - reached
    assert State.APPLYING not in reached


def test_only_whole_rounds_are_applied():
    assert {a for a, after in MOVES.items() if State.APPLYING in after} == set(WHOLE)


def test_a_new_run():
    run = Run(PLAN)
    assert (run.round, run.state, run.scalars, run.yes, run.accused) == (4, State.RUNNING, (), False, ())
    run.report = ErrorReport(ErrorClass.PEER_LOST, "reset", (2,))
    assert run.accused == (2,)
