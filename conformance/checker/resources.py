"""Invariant 12, resources: after N recoveries everything is back where it was.

Counters are compared at quiet moments only: all replicas contribute, nobody catches up, no fault is
on, and this has been so for some commits. Quiet moments between two disturbances (fault, crash, start
or exit) are one epoch. Of an epoch each replica's *smallest* value of a counter counts, since what is
merely in use comes and goes while what has leaked stays; it may not exceed the *largest* value that
any replica showed in the first epoch. Besides it may not grow in four epochs in a row within one life,
however small it is. Counters named ``..._bytes`` are measured, not counted, and have a tenth to spare.
"""

from __future__ import annotations

from .entries import Entry, Member
from .invariant import Invariant
from .world import HeadView, World

SETTLED = 3  # commits in a row with everybody on board, before a moment is quiet
SAMPLES = 2  # samples of a replica that make an epoch worth judging
GROWTH = 4  # epochs in a row in which a counter has grown


class _Sum:
    """What the ranks of a replica use together, as far as they have said."""

    __slots__ = ("counters", "step", "weight")

    def __init__(self, step: int) -> None:
        self.step, self.weight = step, 0
        self.counters: dict[str, int] = {}

    def add(self, e: Entry) -> int:
        """One rank more, or as many as it stands for. Returns how many these are together."""
        for name, value in e[7].items():
            self.counters[name] = self.counters.get(name, 0) + value
        self.weight += e[6]
        return self.weight


class Resources(Invariant):
    name = "resources"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._full = 0  # commits in a row with everybody on board
        self._baseline: dict[str, int] | None = None
        self._least: dict[Member, dict[str, int]] = {}
        self._most: dict[str, int] = {}
        self._samples: dict[Member, int] = {}
        self._trail: dict[Member, dict[str, list[int]]] = {}
        self._last: Entry | None = None
        self._sums: dict[Member, _Sum] = {}
        self.epochs = 0  # epochs long enough to judge

    @property
    def due(self) -> bool:
        """There was a recovery, with quiet moments before and after it."""
        return self.epochs >= 2

    def on_head(self, e: Entry, head: HeadView) -> None:
        everyone = self.world.config.replicas
        done, opens = head.done, head.opens
        if head.committed and done is not None and opens is not None:
            crowd = min(len(done.contributors), len(opens.contributors))
            quiet = crowd == everyone and not opens.catchers and not self.world.faults.active
            self._full = self._full + 1 if quiet else 0
        else:
            self._full = 0

    def on_resources(self, e: Entry) -> None:
        """What all ranks of a replica use with the state of one step is one sample."""
        who, step = (e[2], e[3]), e[5]
        total = self._sums.get(who)
        if total is None or total.step != step:
            total = self._sums[who] = _Sum(step)
        if total.add(e) == self.world.config.ranks_per_replica:
            del self._sums[who]
            if self._full >= SETTLED:
                self._sample(e, who, total.counters)

    def _sample(self, e: Entry, who: Member, counters: dict[str, int]) -> None:
        self._last = e
        self._samples[who] = self._samples.get(who, 0) + 1
        least = self._least.setdefault(who, {})
        for name, value in counters.items():
            least[name] = min(value, least.get(name, value))
            self._most[name] = max(value, self._most.get(name, value))

    def on_fault(self, e: Entry) -> None:
        self._close()

    on_heal = on_crash = on_start = on_exit = on_fault

    def on_end(self, e: Entry) -> None:
        self._close()

    def _close(self) -> None:
        """The epoch is over: judge it, or make it what later ones are judged by."""
        if self._full >= SETTLED + SAMPLES:
            self.epochs += 1
        judged = [who for who, n in self._samples.items() if n >= SAMPLES]
        if judged and self._baseline is None:
            self._baseline = dict(self._most)
        elif judged:
            for who in judged:
                self._judge(who)
        for who in judged:
            self._follow(who)
        self._full = 0
        self._least, self._most, self._samples = {}, {}, {}
        for who in [who for who in self._sums if who not in self.world.lives]:
            del self._sums[who]

    def _judge(self, who: Member) -> None:
        assert self._baseline is not None and self._last is not None
        for name, value in self._least[who].items():
            self.checked += 1
            before = self._baseline.get(name, 0)
            if value > before * (1.1 if name.endswith("_bytes") else 1):
                message = (
                    f"{who[0]}.{who[1]}: {name} never falls below {value}; before it was {before} at most"
                )
                self.fail(message, self._last, members=(who,))

    def _follow(self, who: Member) -> None:
        assert self._last is not None
        trails = self._trail.setdefault(who, {})
        for name, value in self._least[who].items():
            trail = trails.setdefault(name, [])
            if (trail and value <= trail[-1]) or name.endswith("_bytes"):
                trail.clear()
            trail.append(value)
            if len(trail) > GROWTH:
                self.fail(
                    f"{who[0]}.{who[1]}: {name} has grown over and over: {trail}", self._last, members=(who,)
                )
                del trail[0]
        if len(self._trail) > 4 * self.world.config.replicas:
            del self._trail[next(iter(self._trail))]
