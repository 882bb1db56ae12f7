"""Invariant 8, progress: with enough replicas well and consensus reachable, steps are committed.

The clock runs while at least ``min_replicas`` replicas are up and untouched by a fault, and no fault
is on the store. It starts anew at a commit, when the condition becomes true, and at each fault and
each heal, since the bound is on what one disturbance costs. A replica's crashes and restarts of its
own do not start it anew: one that keeps crashing is no excuse for the others.
"""

from __future__ import annotations

from .entries import Entry
from .invariant import Invariant
from .world import HeadView, World


class Progress(Invariant):
    name = "progress"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._running = False
        self._since = 0.0
        self._ran = 0.0  # seconds that the clock ran altogether
        self._last = 0.0

    @property
    def due(self) -> bool:
        """The run was whole, or well for long enough, to show a commit."""
        world = self.world
        return world.commits > 0 and (not world.faults.seen or self._ran > world.config.progress_bound_s)

    def on_head(self, e: Entry, head: HeadView) -> None:
        self._tick(e, again=head.committed)
        if head.committed and self._running:
            self.checked += 1

    def on_fault(self, e: Entry) -> None:
        self._tick(e, again=True)

    on_heal = on_goes_on = on_fault

    def on_start(self, e: Entry) -> None:
        self._tick(e, again=False)

    on_register = on_crash = on_exit = on_end = on_start

    def _tick(self, e: Entry, again: bool) -> None:
        """Judge the time until now, then look whether the clock goes on."""
        t, bound = e[1], self.world.config.progress_bound_s
        self._ran += (t - self._last) * self._running
        self._last = t
        if self._running and t - self._since > bound:
            waited = t - self._since
            message = f"no commit for {waited:.3f} s with enough replicas well; the bound is {bound:g} s"
            members = tuple(sorted(life.key for life in self.world.well()))
            self.fail(message, e, members=members)
            again = True
        running = self.world.enough()
        if again or not self._running:
            self._since = t
        self._running = running
