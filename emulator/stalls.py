"""Where the time went: lost time and effective training time, from the event log alone.

Expected step: the median time between two commits that nothing disturbed (same contributors, nobody
catching up, no fault, start or end of a process). The time from the opening of the first round that trains
to the first commit, between commits, and from the last commit to the end is cut into *gaps*. The first
``expected`` seconds of a gap are the step that was due; the rest, if the gap is longer by more than
``TOLERANCE``, is lost, and every lost second belongs to the phase that it falls in:

detect       from the effect of a fault (fault, crash, exit) to the first close of a round, or first no (drop)
reconfigure  from the close to the first gradient (computed or reused) of a later round
retry        from there to the commit, or to the next fault or close; and the due part of a step that was
             committed before and rolled back, for it is trained again
join         all of a gap in which a replica contributes for the first time after a restart, or was refused
             for it, unless a fault struck in it
other        the rest: waiting for the store, slow links, ...

So the parts add up to the lost time exactly. A step counts as effective by its share of contributors, unless
a rollback took it away: effective = sum(contributors / R x expected) / virtual seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

TOLERANCE = 0.1  # share of a step by which a gap may be longer before its excess counts as lost
PHASES = ("detect", "reconfigure", "retry", "join", "other")

Entry = Any  # [kind, seconds, ...fields]
Member = tuple[int, int]
Mark = tuple[float, str, int]  # (seconds, "fault" | "close" | "work", round)


@dataclass(slots=True)
class Gap:
    """From one commit to the next; ``step`` is None when no commit ended it. Times in virtual seconds."""

    begin: float
    contributors: tuple[Member, ...] = ()  # of the round that was committed at the end
    tried: set[Member] = field(default_factory=set)  # contributors of every round in it
    end: float = 0.0
    step: int | None = None
    again: bool = False  # the step had been committed before
    quiet: bool = True  # nothing but rounds happened
    marks: list[Mark] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Stalls:
    """Virtual seconds. ``lost`` has every phase, and adds up to all time lost; ``effective`` is a share."""

    expected: float
    lost: dict[str, float]
    effective: float
    rounds: int
    commits: int
    rolled_back: int


class Timeline:
    """Takes in the entries of a log in order, and keeps a few numbers for each round.

    steps: what the run was asked for: after that commit the time until the end is no gap
    """

    def __init__(self, steps: int | None = None) -> None:
        self._steps = steps
        self.replicas = 1
        self.now = 0.0
        self.rounds = 0
        self.gaps: list[Gap] = []
        self.kept: list[tuple[int, int]] = []  # (step, contributors) of commits that were not rolled back
        self.rolled_back = 0
        self._gap: Gap | None = None
        self._plan: tuple[Member, ...] = ()  # contributors of the open round
        self._round = -1
        self._worked = -1  # the newest round of which a gradient was seen
        self._given_up = -1  # the newest round that a contributor dropped while it was open
        self._highest = 0
        self._handlers = {
            "meta": self._on_meta,
            "head": self._on_head,
            "computed": self._on_work,
            "reused": self._on_work,
            "dropped": self._on_dropped,
            **{kind: self._on_fault for kind in ("fault", "crash", "exit")},
            **{kind: self._on_disturbance for kind in ("heal", "start", "register")},
        }

    def observe(self, entry: Entry) -> None:
        self.now = max(self.now, entry[1])  # "last_fault" tells an earlier time
        handler = self._handlers.get(entry[0])
        if handler is not None:
            handler(entry)

    def _on_meta(self, entry: Entry) -> None:
        self.replicas = entry[2]["replicas"]

    def _on_fault(self, entry: Entry) -> None:
        self._on_disturbance(entry)
        self._mark("fault", self._round)

    def _on_disturbance(self, entry: Entry) -> None:
        if self._gap is not None:
            self._gap.quiet = False

    def _on_dropped(self, entry: Entry) -> None:
        """A contributor gave the open round up. What a catcher drops, or what is over, delays nobody."""
        if entry[5] == self._round and (entry[2], entry[3]) in self._plan and self._given_up < self._round:
            self._given_up = self._round
            self._mark("close", self._round)

    def _on_work(self, entry: Entry) -> None:
        if entry[5] > self._worked:
            self._worked = entry[5]
            self._mark("work", entry[5])

    def _mark(self, kind: str, round: int) -> None:
        if self._gap is not None:
            self._gap.marks.append((self.now, kind, round))

    def _on_head(self, entry: Entry) -> None:
        _, _, _, _, round, _, _, closed, plan, rollback = entry
        if round != self._round:
            self.rounds += 1
        if closed is not None:
            self._on_closed(closed)
        if rollback is not None:
            self._on_rollback(rollback)
        self._round = round
        if plan is not None:
            self._on_plan(plan)

    def _on_closed(self, closed: dict[str, Any]) -> None:
        gap = self._gap
        if gap is None:
            return
        if closed["outcome"] != "committed":
            gap.quiet = False
            if self._given_up < closed["round"]:
                self._mark("close", closed["round"])
            return
        gap.step, gap.contributors = closed["step_after"], self._plan
        gap.again = closed["step_after"] <= self._highest
        self._highest = max(self._highest, closed["step_after"])
        self.kept.append((closed["step_after"], len(self._plan)))
        self._end_gap(gap)
        self._gap = Gap(self.now)

    def _end_gap(self, gap: Gap) -> None:
        gap.end = self.now
        self.gaps.append(gap)

    def _on_rollback(self, rollback: dict[str, Any]) -> None:
        before = len(self.kept)
        self.kept = [(step, n) for step, n in self.kept if step <= rollback["to_step"]]
        self.rolled_back += before - len(self.kept)
        if self._gap is not None:
            self._gap.quiet = False

    def _on_plan(self, plan: dict[str, Any]) -> None:
        self._plan = tuple((replica, incarnation) for replica, incarnation in plan["contributors"])
        if self._gap is None and self._plan:
            self._gap = Gap(self.now)
        if self._gap is not None:
            self._gap.tried.update(self._plan)
            self._gap.quiet = self._gap.quiet and not plan["catchers"]

    def finish(self) -> Stalls:
        """What came of it. The timeline takes no more entries after this."""
        commits = len(self.gaps)
        expected = _expected(self.gaps)
        gap, self._gap = self._gap, None
        if gap is not None and self._highest != self._steps:
            self._end_gap(gap)
        useful = sum(contributors for _, contributors in self.kept) / self.replicas * expected
        effective = min(1.0, useful / self.now) if self.now > 0 else 0.0
        return Stalls(expected, _lost(self.gaps, expected), effective, self.rounds, commits, self.rolled_back)


def attribute(entries: Iterable[Entry], steps: int | None = None) -> Stalls:
    """Lost and effective time of a whole log, of a run that was asked for ``steps``."""
    timeline = Timeline(steps)
    for entry in entries:
        timeline.observe(entry)
    return timeline.finish()


def _expected(gaps: list[Gap]) -> float:
    """Seconds of an undisturbed step; where there is none, of a step; 0 for a log without commits."""
    undisturbed = [
        gap.seconds for before, gap in pairwise(gaps)
        if gap.quiet and gap.contributors == before.contributors
    ]  # fmt: skip
    return median(undisturbed or [gap.seconds for gap in gaps] or [0.0])


def _lost(gaps: list[Gap], expected: float) -> dict[str, float]:
    lost = dict.fromkeys(PHASES, 0.0)
    known: set[Member] = set()
    carried = False  # a fault of the gap before, which closed no round there: its effect may come in this one
    for gap in gaps:
        if not known:
            known = set(gap.tried)
        joining = not gap.tried <= known
        known.update(gap.contributors)
        if gap.again:
            lost["retry"] += min(expected, gap.seconds)
        if gap.seconds > expected * (1 + TOLERANCE):
            for phase, seconds in _parts(gap, expected, joining, carried):
                lost[phase] += seconds
        kinds = {kind for _, kind, _ in gap.marks}
        carried = "fault" in kinds and "close" not in kinds
    return lost


def _parts(gap: Gap, expected: float, joining: bool, carried: bool) -> Iterator[tuple[str, float]]:
    """What lies beyond the step that was due, by the phase that it falls in."""
    due = gap.begin + expected
    struck = carried or any(kind == "fault" for _, kind, _ in gap.marks)
    if joining and not struck:
        yield "join", gap.end - due
        return
    for begin, end, phase in _segments(gap, carried):
        seconds = end - max(begin, due)
        if seconds > 0:
            yield phase, seconds


def _segments(gap: Gap, carried: bool) -> Iterator[tuple[float, float, str]]:
    """(begin, end, phase) that tile the gap."""
    phase, since = ("detect" if carried else "other"), gap.begin
    closed = -1
    stretches: list[tuple[float, float, str]] = []
    for time, kind, round in gap.marks:
        after = phase
        if kind == "fault" and phase in ("other", "retry"):
            after = "detect"
        elif kind == "close" and round > closed:
            after, closed = "reconfigure", round
        elif kind == "work" and phase == "reconfigure" and round > closed:
            after = "retry"
        if after != phase:
            stretches.append((since, time, phase))
            phase, since = after, time
    stretches.append((since, gap.end, phase))
    return _settled(stretches, closed >= 0)


def _settled(stretches: list[tuple[float, float, str]], closed: bool) -> Iterator[tuple[float, float, str]]:
    """Without a close nothing was detected: the round was only slow. Nor by a fault that came after it."""
    for number, (begin, end, phase) in enumerate(stretches):
        last = number == len(stretches) - 1
        if phase == "detect" and not closed:
            phase = "other"
        elif phase == "detect" and last:
            phase = "retry"
        yield begin, end, phase
