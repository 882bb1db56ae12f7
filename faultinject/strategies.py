"""Hypothesis strategies for property tests: faults and short schedules that are valid for a job.

Numbers are small and whole, so that what a test shrinks to can be read at a glance.
Importing this file needs hypothesis; nothing else in the package does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st

from .budget import fits_budget
from .decode import refuse_unknown
from .points import POINTS
from .schedule import Schedule
from .shape import JobShape
from .vocabulary import KINDS, AnyFault, Group, Phase

Drawn = st.SearchStrategy[Any]


def schedules(
    shape: JobShape,
    *,
    max_faults: int = 4,
    kinds: Iterable[str] | None = None,
    recoverable: bool = True,
    horizon_seconds: int = 3600,
    max_step: int = 20,
) -> st.SearchStrategy[Schedule]:
    """Schedules of at most ``max_faults`` faults of these kinds (default: all), valid for ``shape``.

    ``recoverable`` leaves out each fault that would exceed the budget (``budget.py``) together with
    those before it. Raises ScheduleError for an unknown kind.
    """
    one = faults(shape, kinds=kinds, horizon_seconds=horizon_seconds, max_step=max_step)
    keep = partial(_affordable, shape=shape) if recoverable else tuple
    return st.lists(one, max_size=max_faults).map(lambda drawn: Schedule(job=shape, faults=keep(drawn)))


def faults(
    shape: JobShape, *, kinds: Iterable[str] | None = None, horizon_seconds: int = 3600, max_step: int = 20
) -> st.SearchStrategy[AnyFault]:
    """One fault of one of these kinds (default: all), valid for ``shape``. Raises ScheduleError."""
    names = list(KINDS) if kinds is None else list(kinds)
    refuse_unknown(names, KINDS, "kinds: ", "a kind of fault")
    fields = _fields(shape)
    onsets = _onsets(horizon_seconds, max_step)
    return st.one_of([_faults_of(KINDS[name], fields, onsets) for name in names])


def _affordable(drawn: list[AnyFault], shape: JobShape) -> tuple[AnyFault, ...]:
    kept: tuple[AnyFault, ...] = ()
    for fault in drawn:
        if fits_budget((*kept, fault), shape):
            kept = (*kept, fault)
    return kept


def _faults_of(cls: type[AnyFault], fields: dict[str, Drawn], onsets: Drawn) -> st.SearchStrategy[AnyFault]:
    """Every field of the kind but those of the onset and the cause; of alternative targets, one."""
    own = {field.name for field in msgspec.structs.fields(cls)} & fields.keys()
    common = {name: fields[name] for name in sorted(own - set(cls.ONE_OF))}
    possible = {name: fields["apart" if name == "groups" else name] for name in cls.ONE_OF}
    targets = [st.fixed_dictionaries({name: drawn}) for name, drawn in possible.items() if not drawn.is_empty]
    target = st.one_of(targets) if targets else st.just({})
    rest = st.fixed_dictionaries(common)
    return st.builds(lambda onset, aimed, others: cls(**onset, **aimed, **others), onsets, target, rest)


def _onsets(horizon_seconds: int, max_step: int) -> Drawn:
    by_time = st.fixed_dictionaries({"at": st.integers(0, horizon_seconds).map(float)})
    by_phase = st.fixed_dictionaries({"step": st.integers(0, max_step), "phase": st.sampled_from(Phase)})
    by_point = st.fixed_dictionaries({"point": st.sampled_from(list(POINTS))})
    return st.one_of(by_phase, by_time, by_point)


def _fields(shape: JobShape) -> dict[str, Drawn]:
    replicas = st.integers(0, shape.replicas - 1)
    seconds = st.integers(1, 120).map(float)
    return {
        "rank": st.tuples(replicas, st.integers(0, shape.ranks_per_replica - 1)),
        "host": st.tuples(replicas, st.integers(0, shape.hosts_per_replica - 1)),
        "rack": st.tuples(replicas, st.integers(0, shape.racks_per_replica - 1)),
        "building": st.integers(0, shape.buildings_used - 1),
        "replica": replicas,
        "position": st.integers(0, shape.ranks_per_replica - 1),
        "link": _links(shape, replicas),
        "apart": _apart(shape, replicas),
        "variant": st.sampled_from(["never_joins", "joins_and_stalls"]),
        "part": st.sampled_from(["compute", "link"]),
        "factor": st.integers(2, 20).map(float),
        "period": st.one_of(st.none(), st.integers(1, 30).map(float)),
        "rate": st.sampled_from([0.5, 0.9, 1.1, 2.0]),
        "jump": st.sampled_from([-100.0, -1.0, 1.0, 100.0]),
        "share": st.sampled_from([0.01, 0.2, 0.9]),
        "damage": st.sampled_from(["torn", "truncated", "missing"]),
        "duration": seconds,
        "delay": seconds,
        "seconds": seconds,
        "count": st.integers(1, 3),
        "versions": st.integers(1, 5),
        "groups": _groups(shape, replicas),
        "one_way": st.booleans(),
    }


def _links(shape: JobShape, replicas: st.SearchStrategy[int]) -> Drawn:
    if shape.replicas < 2:
        return st.nothing()
    pairs = st.lists(replicas, min_size=2, max_size=2, unique=True)
    positions = st.integers(0, shape.ranks_per_replica - 1)
    return st.builds(lambda pair, p: ((pair[0], p), (pair[1], p)), pairs, positions)


def _apart(shape: JobShape, replicas: st.SearchStrategy[int]) -> Drawn:
    """Two groups of replicas, of one replica each at least."""
    if shape.replicas < 2:
        return st.nothing()

    def split(few: list[int]) -> tuple[Group, ...]:
        return tuple(sorted(few)), tuple(r for r in range(shape.replicas) if r not in few)

    return st.lists(replicas, min_size=1, max_size=min(3, shape.replicas - 1), unique=True).map(split)


def _groups(shape: JobShape, replicas: st.SearchStrategy[int]) -> Drawn:
    """Two groups: a few replicas, and all the others with or without the store; in either order."""

    def split(few: list[int], with_store: bool, few_first: bool) -> tuple[Group, ...]:
        cut: Group = tuple(sorted(few))
        others: Group = tuple(replica for replica in range(shape.replicas) if replica not in few)
        rest: Group = (*others, "store") if with_store or not others else others
        return (cut, rest) if few_first else (rest, cut)

    few = st.lists(replicas, min_size=1, max_size=3, unique=True)
    return st.builds(split, few, st.booleans(), st.booleans())
