"""Judges faults: types, ranges, onset, and targets against the shape of a job.

Used for what a file says and for what a program built, so both are refused in the same words.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .errors import ScheduleError, choose, shown
from .fields import FIELDS
from .points import POINTS
from .shape import JobShape
from .vocabulary import AnyFault, Fault, Group, Link, kind_of

_FIELD_AT_FAULT = re.compile(r" - at `\$\.(\w+)")  # the path that msgspec puts at the end


def misfit(place: str, name: str, value: Any) -> ScheduleError:
    """The error for a value that its field cannot have; ``place`` ends before the field's name."""
    return ScheduleError(f"{place}.{name}: {shown(value)} does not fit; write {FIELDS[name].write}")


def typed(raw: dict[str, Any], cls: type[AnyFault], place: str) -> AnyFault:
    """A fault from its fields, of which none is missing or unknown. Raises ScheduleError for a wrong type.

    msgspec says where a type is wrong, and the table of fields says what to write there.
    """
    try:
        return msgspec.convert(raw, cls)
    except msgspec.ValidationError as error:
        where = _FIELD_AT_FAULT.search(str(error))
        assert where is not None, str(error)
        raise misfit(place, where[1], raw[where[1]]) from None


def check_fault(fault: AnyFault, place: str, shape: JobShape | None) -> None:
    """Raises ScheduleError for the first thing wrong with a fault; ``place`` is ``faults[3]``, say.

    Without a shape the targets are only known to be 0 or more.
    """
    typed(msgspec.to_builtins(fault, enc_hook=repr), type(fault), place)  # a program may put in anything
    _check_ranges(fault, place)
    _check_onset(fault, place)
    _check_one_target(fault, place)
    groups: tuple[Group, ...] | None = getattr(fault, "groups", None)
    if groups is not None:
        _check_groups(fault, groups, place)
    link: Link | None = getattr(fault, "link", None)
    if link is not None and (link[0][1] != link[1][1] or link[0] == link[1]):
        raise ScheduleError(f"{place}.link: {shown(link)} is no link; write {FIELDS['link'].write}")
    if shape is not None:
        _check_targets(fault, place, shape)


def _check_ranges(fault: Fault, place: str) -> None:
    for name in fault.__struct_fields__:
        value = getattr(fault, name)
        if value is not None and not FIELDS[name].fits(value):
            raise misfit(place, name, value)


def _check_onset(fault: Fault, place: str) -> None:
    either = 'give one of "at", "step" and "phase", or "point"'
    if fault.point is not None:
        _check_point(fault, place, either)
        return
    if fault.at is None and fault.step is None and fault.phase is None:
        raise ScheduleError(f"{place}: {kind_of(fault)} has no onset; {either}")
    for name, other in (("step", "phase"), ("phase", "step")):
        value = getattr(fault, name)
        if value is not None and fault.at is not None:
            beside = f"stands beside at {shown(fault.at)}"
            raise ScheduleError(f"{place}.{name}: {shown(value)} {beside}; {either}")
        if value is not None and getattr(fault, other) is None:
            beside = f"missing beside {name} {shown(value)}"
            raise ScheduleError(f"{place}.{other}: {beside}; write {FIELDS[other].write}")


def _check_point(fault: Fault, place: str, either: str) -> None:
    """A point may have a step beside it, and nothing else."""
    assert fault.point is not None
    if fault.point not in POINTS:
        told = f"{shown(fault.point)} is not a fault point"
        raise ScheduleError(f"{place}.point: {told}; {choose(fault.point, POINTS)}")
    for name in ("at", "phase"):
        value = getattr(fault, name)
        if value is not None:
            beside = f"stands beside point {shown(fault.point)}"
            raise ScheduleError(f"{place}.{name}: {shown(value)} {beside}; {either}")


def _check_one_target(fault: Fault, place: str) -> None:
    given = [name for name in fault.ONE_OF if getattr(fault, name) is not None]
    if fault.ONE_OF and len(given) != 1:
        has = " and ".join(given) if given else "no target"
        names = " or ".join(fault.ONE_OF)
        raise ScheduleError(f"{place}: {kind_of(fault)} has {has}; give exactly one of {names}")


def _check_groups(fault: Fault, groups: tuple[Group, ...], place: str) -> None:
    told = f"{place}.groups: {shown(groups)}"
    if len(groups) < 2 or not all(groups):
        raise ScheduleError(f"{told} separates nothing; write two or more groups, none empty")
    if getattr(fault, "one_way", False) and len(groups) != 2:
        raise ScheduleError(f"{told} are {len(groups)} groups; one_way needs exactly 2")
    parties = [party for group in groups for party in group]
    for party in parties:
        if party != "store" and party < 0:
            raise misfit(place, "groups", groups)
        if party == "store" and not hasattr(fault, "one_way"):
            raise ScheduleError(f'{told} names "store"; {kind_of(fault)} is between replicas alone')
        if parties.count(party) > 1:
            raise ScheduleError(f"{told} names {shown(party)} twice; name each party once")


def _check_targets(fault: Fault, place: str, shape: JobShape) -> None:
    """Every replica, position and host that the fault names must be one of the job's."""
    for name, inner, what, size in (
        ("rank", "position", "positions", shape.ranks_per_replica),
        ("host", "host", "hosts", shape.hosts_per_replica),
        ("rack", "rack", "racks", shape.racks_per_replica),
    ):
        _check_pair(
            f"{place}.{name}", getattr(fault, name, None), inner, f"a replica has {what}", size, shape
        )
    for end in getattr(fault, "link", None) or ():
        having, size = "a replica has positions", shape.ranks_per_replica
        _check_pair(f"{place}.link", end, "position", having, size, shape)
    for name, having, size in (
        ("replica", "the job has replicas", shape.replicas),
        ("position", "a replica has positions", shape.ranks_per_replica),
        ("building", "the job has buildings", shape.buildings_used),
    ):
        number = getattr(fault, name, None)
        if number is not None:
            _check_number(f"{place}.{name}", number, name, number, having, size)
    _check_parties(getattr(fault, "groups", None) or (), f"{place}.groups", shape)


def _check_pair(
    place: str, pair: tuple[int, int] | None, inner: str, having: str, size: int, shape: JobShape
) -> None:
    if pair is not None:
        _check_replica(place, pair, pair[0], shape)
        _check_number(place, pair, inner, pair[1], having, size)


def _check_parties(groups: tuple[Group, ...], place: str, shape: JobShape) -> None:
    for group in groups:
        for party in group:
            if party != "store":
                _check_replica(place, groups, party, shape)


def _check_replica(place: str, value: Any, replica: int, shape: JobShape) -> None:
    _check_number(place, value, "replica", replica, "the job has replicas", shape.replicas)


def _check_number(place: str, value: Any, what: str, number: int, having: str, size: int) -> None:
    if number >= size:
        mend = f"{having} 0 to {size - 1}; choose one of them"
        raise ScheduleError(f"{place}: {shown(value)} names {what} {number}, but {mend}")
