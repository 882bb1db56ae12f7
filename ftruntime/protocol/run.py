"""A contributor's round, seen by its leader: from the plan to what became of it (design 3.3).

    state      event                        next       what the leader does
    ---------  ---------------------------  ---------  ------------------------------------------
    RUNNING    all ranks vote yes           COMPLETE   asks the store to commit
    RUNNING    a no, a time-out, a peer's   SEALING    seals the round at every rank
               no, or ``recovering``
    SEALING    every rank has every bucket  KEPT       says no (advice) and keeps the buckets
    SEALING    a sealed rank lacks one      DROPPED    says no (final), the ranks drop
    KEPT       all ranks vote yes after all COMPLETE   a later yes overwrites a no
    COMPLETE   the head shows committed     APPLYING   the ranks apply
    KEPT       the head shows committed     APPLYING   the ranks apply
    COMPLETE,  the head shows closed        DROPPING   the ranks drop, gradients stay retained
    KEPT,
    RUNNING,
    SEALING

Only the head decides; a time-out, a no, or a lost answer is a report (!). Having dropped, a
replica is a catcher for this round, whatever the head says afterwards (!).
"""

from __future__ import annotations

import enum

from .errors import ErrorReport
from .ids import Replica, Round
from .messages import Scalars
from .plan import Plan


class State(enum.IntEnum):
    RUNNING = 1
    SEALING = 2
    KEPT = 3
    COMPLETE = 4
    DROPPED = 5
    APPLYING = 6
    DROPPING = 7


MOVES: dict[State, frozenset[State]] = {
    State.RUNNING: frozenset({State.COMPLETE, State.SEALING, State.DROPPING}),
    State.SEALING: frozenset({State.KEPT, State.DROPPED, State.DROPPING}),
    State.KEPT: frozenset({State.COMPLETE, State.APPLYING, State.DROPPING}),
    State.COMPLETE: frozenset({State.APPLYING, State.DROPPING}),
    State.DROPPED: frozenset(),
    State.APPLYING: frozenset(),
    State.DROPPING: frozenset(),
}
WHOLE = (State.KEPT, State.COMPLETE)  # every rank has every bucket


class Run:
    """One contributor's round. ``report`` is the first reason why it may not finish; ``yes``: all
    ranks have voted yes, which a seal that is under way does not undo."""

    __slots__ = ("plan", "report", "scalars", "state", "yes")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = State.RUNNING
        self.scalars: Scalars = ()
        self.report: ErrorReport | None = None
        self.yes = False

    @property
    def round(self) -> Round:
        return self.plan.round

    @property
    def accused(self) -> tuple[Replica, ...]:
        return self.report.accused if self.report is not None else ()

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], f"round {self.round}: {self.state.name} to {state.name}"
        self.state = state
