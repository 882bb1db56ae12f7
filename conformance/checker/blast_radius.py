"""Invariant 10, blast radius: a fault in one replica restarts no rank of another, and costs the
others at most the stated stall.

- Every life that ends has a reason of its own: one of its ranks crashed, a fault touched its replica
  (or the whole job) while it lived, or it was succeeded. If the whole job stops, that is no one's
  blast radius; else a life that left without a reason was taken down by another's fault.
- A crash has a fault as its reason, too: a rank that dies of the runtime itself is a fault of the runtime. It
  ends its replica's life: a replica does not run on with a rank missing.
- Between two commits with disturbances in between there is at most the usual time (the median of
  undisturbed ones) and the stated stall for each disturbance: a fault that begins or ends, a crash, or, if
  none of these, a fault that is still on. Only while enough replicas are well, and without a rollback:
  what a job costs that has lost too many replicas is not the price of one fault.
"""

from __future__ import annotations

import statistics
from collections import deque

from .entries import Entry
from .invariant import Invariant
from .world import HeadView, World

UNNAMED_S = 1.0  # seconds that processes may be there, and be hit, before they are registered
USUAL = 64  # undisturbed intervals between commits that the usual time is taken from


class BlastRadius(Invariant):
    name = "blast_radius"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._usual: deque[float] = deque(maxlen=USUAL)
        self._commit: float | None = None
        self._disturbed = 0
        self._before = 0  # disturbances of the interval before: one at its very end is felt in this one
        self._restless = False  # a replica came or went
        self._excused = False
        self._unexplained: list[Entry] = []

    # -- who leaves, and why ---------------------------------------------------------------------

    def on_exit(self, e: Entry) -> None:
        self._restless = True
        self._look()
        life = self.world.gone.get((e[2], e[3]))
        if life is None:
            return
        self.checked += 1
        own = life.crashed is not None or self.world.faults.touched_since(e[2], life.since - UNNAMED_S)
        succeeded = life.fenced is not None or self.world.registered[e[2]] > e[3]
        if not own and not succeeded:
            if e[5]:
                self.fail(f"{life} restarts, but no fault was its own", e, members=(life.key,))
            else:
                self._unexplained.append(e)

    def on_crash(self, e: Entry) -> None:
        self.checked += 1
        self._disturbed += 1
        self._look()
        life = self.world.lives.get((e[2], e[3]))
        if life is None:
            self.fail(f"{e[2]}.{e[3]} crashes, but it is not alive", e, members=((e[2], e[3]),))
        elif not self.world.faults.touched_since(e[2], life.since - UNNAMED_S):
            self.fail(f"{life} crashes, but no fault was its own", e, members=(life.key,))

    def on_end(self, e: Entry) -> None:
        bound = self.world.config.progress_bound_s
        for life in self.world.lives.values():
            self.checked += 1
            if life.crashed is not None and e[1] - life.crashed > bound:
                message = f"{life} has lost a rank {e[1] - life.crashed:.3f} s ago and has not left"
                self.fail(message, e, members=(life.key,))
        if any(healthy for *_, healthy in e[2]):
            for left in self._unexplained:
                message = f"{left[2]}.{left[3]} leaves for good, but no fault was its own, and others go on"
                self.fail(message, left, members=((left[2], left[3]),))

    # -- what it costs the others ------------------------------------------------------------------

    def on_fault(self, e: Entry) -> None:
        self._disturbed += 1
        self._look()

    on_heal = on_fault

    def on_start(self, e: Entry) -> None:
        self._restless = True
        self._look()

    def on_head(self, e: Entry, head: HeadView) -> None:
        self._look()
        if head.recovering or head.rollback or (head.opens and head.opens.kind != "train"):
            self._excused = True
        if not head.committed:
            return
        if self._commit is not None:
            self._interval(e, head.t - self._commit)
        self._commit = head.t
        self._before, self._disturbed = self._disturbed, 0
        self._restless = self._excused = False

    def _look(self) -> None:
        if not self.world.enough():
            self._excused = True

    def _interval(self, e: Entry, took: float) -> None:
        disturbances = self._disturbed + self._before
        if self.world.faults.active:
            disturbances = max(1, disturbances)
        if not disturbances:
            if not self._restless and not self._excused:
                self._usual.append(took)
            return
        if self._excused or not self._usual:
            return
        self.checked += 1
        usual, stall = statistics.median(self._usual), self.world.config.stall_bound_s
        if took > usual + stall * disturbances:
            message = f"a step took {took:.3f} s with {disturbances} disturbances; usual are {usual:.3f} s"
            self.fail(f"{message}, the stated stall is {stall:g} s each", e, round=e[7]["round"])
