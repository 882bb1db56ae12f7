"""One rank's share in one round: what it reduces or holds, and what it has said of it.

state     event                                    next      what the member does
--------  ---------------------------------------  --------  -------------------------------------
WORKING   every bucket is reduced or held here     WHOLE     measures the scalars of the vote
WORKING   the ring failed, the tap broke           WORKING   votes no, once; what arrives counts
WORKING   the leader seals the round               SEALED    answers: a bucket is missing (final)
WHOLE     measured, and the right neighbour has    VOTED     votes yes, also after a no
          acknowledged every chunk
WHOLE     the leader seals the round, measured     WHOLE     answers: every bucket is here
VOTED     apply                                    APPLIED   serves neighbours that lack chunks
any       drop                                     -         frees the buffers
"""

from __future__ import annotations

import copy
import enum

from .messages import Scalars
from .plan import Plan
from .ring import Ring
from .tap import TapSink, TapSource
from .task import Task


class State(enum.IntEnum):
    WORKING = 1
    WHOLE = 2
    VOTED = 3
    SEALED = 4
    APPLIED = 5


MOVES: dict[State, frozenset[State]] = {
    State.WORKING: frozenset({State.WHOLE, State.SEALED}),
    State.WHOLE: frozenset({State.VOTED, State.APPLIED}),
    State.VOTED: frozenset({State.APPLIED}),
    State.SEALED: frozenset(),
    State.APPLIED: frozenset(),
}


class Share:
    """``ring`` for members of the ring, ``sink`` for a learner, ``source`` while learners tap us.

    scalars:   what Measure brought; None until then
    said_no:   a no was sent up; a later yes overwrites it
    sealing:   the leader has sealed the round and waits for the answer
    """

    __slots__ = (
        "plan",
        "ring",
        "said_no",
        "scalars",
        "sealing",
        "sink",
        "source",
        "state",
        "task",
    )

    def __init__(
        self, plan: Plan, task: Task, ring: Ring | None, sink: TapSink | None, source: TapSource | None
    ) -> None:
        self.plan, self.task = plan, task
        self.ring, self.sink, self.source = ring, sink, source
        self.state = State.WORKING
        self.scalars: Scalars | None = None
        self.said_no = self.sealing = False

    def clone(self) -> Share:
        other = copy.copy(self)
        other.ring = copy.copy(self.ring)
        other.sink = self.sink.clone() if self.sink is not None else None
        other.source = self.source.clone() if self.source is not None else None
        return other

    def progress(self) -> tuple[State, bool, bool, Scalars | None]:
        """How far this share is, beside its ring: what ``become`` takes."""
        return self.state, self.said_no, self.sealing, self.scalars

    def become(self, progress: tuple[State, bool, bool, Scalars | None]) -> None:
        """Be as far as a share of another position that has done the same."""
        self.state, self.said_no, self.sealing, self.scalars = progress

    @property
    def has_everything(self) -> bool:
        """Every bucket is reduced (or held) here."""
        if self.ring is not None:
            return self.ring.complete
        return self.sink is not None and self.sink.complete

    @property
    def acknowledged(self) -> bool:
        """Nobody needs a chunk from here any more (!)."""
        return self.ring is None or self.ring.finished

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], f"round {self.plan.round}: {self.state.name} to {state.name}"
        self.state = state
