"""Draws the faults of a case: kinds, onsets, targets and lengths, some of them close together.

Swarm testing: each case knows only some of the kinds, so that some cases have much of one kind and
none of another, which no even mixture ever has.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from ..points import POINTS
from ..shape import RANKS_PER_HOST, RANKS_PER_RACK, JobShape
from ..vocabulary import KINDS, AnyFault, CheckpointDamaged, Crash, Phase, ScaleDown, ScaleUp
from .promised import is_promised

HORIZONS = (60.0, 60.0, 120.0, 240.0)  # seconds in which faults begin
NUMBERS = (1, 1, 2, 2, 3, 3, 4, 5)  # of faults, before those are taken out that exceed what is promised
APART = (0.0, 0.0, 0.001, 0.01, 0.05, 0.1, 1.0, 5.0, 20.0, 40.0)  # seconds between faults of a cluster
KIND_ON, TIMED, POINTED = 0.2, 0.4, 0.25  # chances
# Chances of an arrangement; the others are left as drawn.
CLUSTERED, RETURNING, AROUND, FROM_STORAGE = 0.3, 0.15, 0.25, 0.05
PARTING = ("crash", "crash", "crash", "zombie", "pause", "partition", "partition", "link_flap", "hang",
           "store_lost_answer", "store_away", "store_leader_change", "gpu_lost",
           "launcher_early")  # fmt: skip
AT_COMMIT = (Phase.FTAR, Phase.VOTE, Phase.COMMIT, Phase.COMMIT, Phase.APPLY)


def draw_faults(r: Random, shape: JobShape, step_seconds: float) -> tuple[AnyFault, ...]:
    """A few faults that ``shape`` must survive, together as each by itself. At least one."""
    while True:
        kinds = [kind for kind in KINDS if r.random() < KIND_ON] or [r.choice(list(KINDS))]
        horizon = r.choice(HORIZONS)
        number = r.choice(NUMBERS)
        drawn = [fault_of_kind(r, r.choice(kinds), shape, horizon, step_seconds) for _ in range(number)]
        drawn = _gone_before(r, _arranged(r, drawn, shape, horizon, step_seconds))
        kept: tuple[AnyFault, ...] = ()
        for fault in drawn:
            if is_promised((*kept, fault), shape):
                kept = (*kept, fault)
        if kept:
            return kept


def _arranged(
    r: Random, drawn: list[AnyFault], shape: JobShape, horizon: float, step_seconds: float
) -> list[AnyFault]:
    chance = r.random()
    if chance < CLUSTERED:
        return _cluster(r, drawn)
    if chance < CLUSTERED + RETURNING:
        return _on_its_way_back(r, drawn, shape, horizon)
    if chance < CLUSTERED + RETURNING + AROUND:
        return _around_a_commit(r, shape, horizon, step_seconds)
    if chance < CLUSTERED + RETURNING + AROUND + FROM_STORAGE:
        return [*_all_from_storage(r, shape), *drawn[:1]]
    return drawn


def fault_of_kind(r: Random, kind: str, shape: JobShape, horizon: float, step_seconds: float) -> AnyFault:
    """A fault of this kind, valid for ``shape``, that begins within ``horizon`` seconds or so."""
    cls = KINDS[kind]
    names = {field.name for field in msgspec.structs.fields(cls)} & DRAW.keys()
    aimed = {r.choice(cls.ONE_OF)} if cls.ONE_OF else set()
    values = {name: DRAW[name](r, shape) for name in sorted(names - set(cls.ONE_OF) | aimed)}
    if "groups" in aimed:
        values["groups"] = _apart(r, shape)
    onset = _onset(r, horizon, step_seconds)
    if "rank" in values and "point" in onset and POINTS[onset["point"]].where != "rank":
        values["rank"] = (values["rank"][0], 0)  # others never reach it
    return cls(**onset, **values)


def _gone_before(r: Random, drawn: list[AnyFault]) -> list[AnyFault]:
    """A replica that is started by an operator was taken out by one."""
    found: list[AnyFault] = []
    for fault in drawn:
        if isinstance(fault, ScaleUp):
            found.append(ScaleDown(replica=fault.replica, at=0.0))
            if fault.at is not None:
                found[-1] = msgspec.structs.replace(found[-1], at=round(r.uniform(0.0, fault.at), 1))
        found.append(fault)
    return found


def _onset(r: Random, horizon: float, step_seconds: float) -> dict[str, Any]:
    chance = r.random()
    if chance < TIMED:
        return {"at": round(r.uniform(0.0, horizon), r.choice((0, 1, 3)))}
    if chance < TIMED + POINTED:
        step = {"step": r.randint(1, int(horizon / step_seconds))} if r.random() < 0.5 else {}
        return {"point": r.choice(list(POINTS)), **step}
    return {"step": r.randint(0, int(horizon / step_seconds)), "phase": r.choice(list(Phase))}


def _cluster(r: Random, drawn: list[AnyFault]) -> list[AnyFault]:
    """The same faults close to one of them: at nearly its time, or in phases of nearly its step."""
    first = r.choice(drawn)
    return [_near(r, first, fault) for fault in drawn]


def _on_its_way_back(r: Random, drawn: list[AnyFault], shape: JobShape, horizon: float) -> list[AnyFault]:
    """A replica crashes, and the other faults wait until one fetches, or is about to join."""
    crash = Crash(rank=_rank(r, shape), at=round(r.uniform(0.0, horizon), 1))
    phases = (Phase.FETCH, Phase.JOIN)
    others = [msgspec.structs.replace(f, at=None, step=0, phase=r.choice(phases), point=None) for f in drawn]
    return [crash, *others]


def _around_a_commit(r: Random, shape: JobShape, horizon: float, step_seconds: float) -> list[AnyFault]:
    """Several replicas lose each other, the store, or their lives while one step is being committed: some
    know of the commit then and some do not. What a rollback may take back is decided there."""
    step = r.randint(0, int(horizon / step_seconds))
    kinds = r.choices(PARTING, k=r.randint(2, shape.replicas + 1))
    drawn = [fault_of_kind(r, kind, shape, horizon, step_seconds) for kind in kinds]
    phases = [r.choice(AT_COMMIT) for _ in drawn]
    return [
        msgspec.structs.replace(f, at=None, step=step, phase=p, point=None)
        for f, p in zip(drawn, phases, strict=True)
    ]


def _all_from_storage(r: Random, shape: JobShape) -> list[AnyFault]:
    """Everybody dies when there may be a checkpoint, of which a shard is spoilt, or more."""
    at = round(r.uniform(100.0, 240.0), 1)
    spoilt = r.sample(range(shape.ranks_per_replica), r.randint(1, shape.ranks_per_replica))
    damages = r.choices(("torn", "truncated", "missing"), k=len(spoilt))
    damaged = [CheckpointDamaged(at=at, position=p, damage=d) for p, d in zip(spoilt, damages, strict=True)]
    return [*damaged, *(Crash(at=at, replica=replica) for replica in range(shape.replicas))]


def _near(r: Random, first: AnyFault, fault: AnyFault) -> AnyFault:
    if first.at is not None:
        at = round(first.at + r.choice(APART), 3)
        return msgspec.structs.replace(fault, at=at, step=None, phase=None, point=None)
    if first.point is not None and r.random() < 0.5:
        return msgspec.structs.replace(fault, at=None, step=first.step, phase=None, point=first.point)
    phase = first.phase if first.phase is not None and r.random() < 0.6 else r.choice(list(Phase))
    step = (first.step or 0) + r.choice((0, 0, 0, 1))
    return msgspec.structs.replace(fault, at=None, step=step, phase=phase, point=None)


def _seconds(r: Random, shape: JobShape) -> float:
    """Shorter than a chunk's time-out, about a round's, or longer than a lease."""
    return round(r.uniform(*r.choice(((0.1, 5.0), (5.0, 60.0), (60.0, 200.0)))), 1)


def _groups(r: Random, shape: JobShape) -> tuple[tuple[Any, ...], ...]:
    few = tuple(sorted(r.sample(range(shape.replicas), r.randint(1, shape.replicas))))
    rest: tuple[Any, ...] = tuple(replica for replica in range(shape.replicas) if replica not in few)
    if not rest or r.random() < 0.6:
        rest = (*rest, "store")
    return (few, rest) if r.random() < 0.5 else (rest, few)


def _apart(r: Random, shape: JobShape) -> tuple[tuple[int, ...], ...]:
    few = tuple(sorted(r.sample(range(shape.replicas), r.randint(1, shape.replicas - 1))))
    return (few, tuple(replica for replica in range(shape.replicas) if replica not in few))


def _link(r: Random, shape: JobShape) -> tuple[tuple[int, int], tuple[int, int]]:
    one, other = r.sample(range(shape.replicas), 2)
    position = r.randrange(shape.ranks_per_replica)
    return ((one, position), (other, position))


def _rack(r: Random, shape: JobShape) -> tuple[int, int]:
    replica, position = _rank(r, shape)
    return (replica, position // RANKS_PER_RACK)


def _rank(r: Random, shape: JobShape) -> tuple[int, int]:
    return (r.randrange(shape.replicas), r.randrange(shape.ranks_per_replica))


def _host(r: Random, shape: JobShape) -> tuple[int, int]:
    replica, position = _rank(r, shape)
    return (replica, position // RANKS_PER_HOST)


DRAW: dict[str, Callable[[Random, JobShape], Any]] = {
    "rank": _rank,
    "host": _host,
    "rack": _rack,
    "building": lambda r, shape: r.randrange(shape.buildings_used),
    "link": _link,
    "position": lambda r, shape: r.randrange(shape.ranks_per_replica),
    "period": lambda r, shape: r.choice((None, None, 2.0, 15.0)),
    "rate": lambda r, shape: r.choice((0.5, 0.9, 0.999, 1.001, 1.1, 2.0)),
    "jump": lambda r, shape: r.choice((-3600.0, -30.0, -0.5, 0.5, 30.0, 3600.0)),
    "share": lambda r, shape: r.choice((0.001, 0.05, 0.3, 0.9)),
    "damage": lambda r, shape: r.choice(("torn", "truncated", "missing")),
    "replica": lambda r, shape: r.randrange(shape.replicas),
    "variant": lambda r, shape: r.choice(("never_joins", "joins_and_stalls")),
    "part": lambda r, shape: r.choice(("compute", "link")),
    "factor": lambda r, shape: r.choice((1.5, 3.0, 20.0)),
    "duration": _seconds,
    "delay": _seconds,
    "seconds": _seconds,
    "count": lambda r, shape: r.randint(1, 3),
    "versions": lambda r, shape: r.randint(1, 6),
    "groups": _groups,
    "one_way": lambda r, shape: r.random() < 0.4,
}
