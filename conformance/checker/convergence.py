"""Invariant 7, convergence: after the last fault all live replicas reach one lineage within a bound.

"Reach" means that there is a lineage at which all ranks of each replica have been, after the last
fault; replicas need not be there at the same instant, since a job that trains never stands still.
"All" are those that the run calls healthy at its end. What was shared before the last fault does not
count, unless nothing has moved since and it is still shared at the end. A run that ends before the
bound has passed, and has not converged, says nothing either way.
"""

from __future__ import annotations

from .entries import Entry, Member
from .invariant import Invariant
from .lives import Life
from .rounds import Book
from .world import World

WINDOW = 256  # lineages for which it is remembered who has been there
GROUPS = 4_096  # sets of lives that have met, remembered with the time of their first meeting


class Convergence(Invariant):
    name = "convergence"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._reached: dict[str, set[Member]] = {}
        self._met: dict[frozenset[Member], float] = {}
        self.due = False  # the run was long enough to tell

    def on_fault(self, e: Entry) -> None:
        """Whatever was shared before is no answer to this fault."""
        self._met.clear()
        self._reached.clear()
        for life in self.world.lives.values():
            if (state := life.level) is not None:
                self._reached.setdefault(state[1], set()).add(life.key)

    on_heal = on_fault

    def on_applied(self, e: Entry, life: Life, book: Book | None) -> None:
        if life.at_top == life.width:
            self._level(e[1], life)

    def on_installed(self, e: Entry, life: Life) -> None:
        if life.at_top == life.width:
            self._level(e[1], life)

    on_initial = on_installed

    def _level(self, t: float, life: Life) -> None:
        state = life.level
        if state is None or not self.world.faults.seen:
            return
        here = self._reached.setdefault(state[1], set())
        here.add(life.key)
        if len(self._reached) > WINDOW:
            del self._reached[next(iter(self._reached))]
        world = self.world
        current = (v for v in world.lives.values() if v.key[1] >= world.registered[v.key[0]])
        well = {v.key for v in current if v.crashed is None}
        if here >= well and len(self._met) < GROUPS:
            self._met.setdefault(frozenset(here), t)

    def on_end(self, e: Entry) -> None:
        world = self.world
        healthy = {(r, k) for r, k, _, _, well in e[2] if well}
        if not world.faults.seen or not healthy:
            return
        fault = max(world.faults.last, world.last_fault or 0.0)
        bound = world.config.convergence_bound_s
        times = [t for group, t in self._met.items() if group >= healthy]
        if not times and self._together(healthy):
            times = [fault]
        self.due = e[1] >= fault + bound
        if times or self.due:
            self.checked += 1
        if times and min(times) > fault + bound:
            late = min(times) - fault
            self.fail(f"replicas met {late:.3f} s after the last fault; the bound is {bound:g} s", e)
        elif not times and self.due:
            waited = e[1] - fault
            message = (
                f"healthy replicas have not met in the {waited:.3f} s since the last fault; the bound is"
            )
            self.fail(f"{message} {bound:g} s", e, members=tuple(sorted(healthy)))

    def _together(self, healthy: set[Member]) -> bool:
        lives = [self.world.lives.get(key) for key in healthy]
        states = {None if life is None else life.level for life in lives}
        return len(states) == 1 and None not in states
