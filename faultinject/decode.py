"""From what JSON gave (dicts, lists, numbers) to faults and shapes.

Names are judged here, so that a slip of the pen gets an answer; types and values in ``check.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from .check import typed
from .errors import ScheduleError, choose, shown
from .fields import FIELDS
from .shape import JobShape
from .vocabulary import KINDS, AnyFault


def decode_fault(raw: Any, place: str) -> AnyFault:
    """One fault of known kind with its own fields, all of the right type. Raises ScheduleError."""
    if not isinstance(raw, dict):
        write = 'write an object, as {"kind": "crash", ...}'
        raise ScheduleError(f"{place}: {shown(raw)} is not a fault; {write}")
    cls = _class_of(raw, place)
    fields = msgspec.structs.fields(cls)
    refuse_unknown(raw, ["kind", *(field.name for field in fields)], f"{place}.", f"a field of {raw['kind']}")
    for field in fields:
        if field.required and field.name not in raw:
            needs = f"{raw['kind']} needs it: write {FIELDS[field.name].write}"
            raise ScheduleError(f"{place}.{field.name}: missing; {needs}")
    return typed(raw, cls, place)


def decode_job(raw: Any) -> JobShape:
    """The optional shape in a schedule. Raises ScheduleError."""
    write = 'write an object, as {"replicas": 12, "ranks_per_replica": 64}'
    if not isinstance(raw, dict):
        raise ScheduleError(f"job: {shown(raw)} is not the shape of a job; {write}")
    refuse_unknown(raw, JobShape.__struct_fields__, "job.", "a size of a job")
    for name in ("replicas", "ranks_per_replica"):
        if name not in raw:
            raise ScheduleError(f"job.{name}: missing; {write}")
    try:
        return JobShape(**raw)
    except ScheduleError as error:
        raise ScheduleError(f"job.{error}") from None


def refuse_unknown(names: Iterable[str], known: Iterable[str], before: str, what: str) -> None:
    """Raises ScheduleError for the first name that is none of those known."""
    known = list(known)
    for name in names:
        if name not in known:
            place = f"{before}{name if name.isidentifier() else shown(name)}"
            raise ScheduleError(f"{place}: {shown(name)} is not {what}; {choose(name, known)}")


def _class_of(raw: dict[str, Any], place: str) -> type[AnyFault]:
    if "kind" not in raw:
        raise ScheduleError(f"{place}.kind: missing; {choose('', KINDS)}")
    kind = raw["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        mend = choose(str(kind), KINDS)
        raise ScheduleError(f"{place}.kind: {shown(kind)} is not a kind of fault; {mend}")
    return KINDS[kind]
