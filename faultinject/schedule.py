"""A schedule: the faults of a run as a JSON file that a person can write and a run can replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from .check import check_fault
from .decode import decode_fault, decode_job, refuse_unknown
from .errors import ScheduleError, shown
from .shape import JobShape
from .vocabulary import AnyFault

SCHEMA = 1
MAX_FAULTS = 100_000
MAX_BYTES = 64 * 2**20


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Faults, in an order that decides between those that fall due together (``docs/schedules.md``).

    ``job`` is the shape for which it was written. It is optional: a run checks the targets against its own.
    """

    schema: int = SCHEMA
    job: JobShape | None = None
    faults: tuple[AnyFault, ...] = ()


def load(path: str | Path, shape: JobShape | None = None) -> Schedule:
    """Reads a schedule from a file and checks it against ``shape``, or else against its own job.

    Raises ScheduleError, whose message begins with the path, for anything wrong with it.
    """
    try:
        return loads(_read(Path(path)), shape)
    except ScheduleError as error:
        raise ScheduleError(f"{_printable(path)}: {error}") from None


def loads(text: str | bytes, shape: JobShape | None = None) -> Schedule:
    """A schedule from JSON text; otherwise like ``load``."""
    raw = _json(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    if not isinstance(raw, dict):
        write = 'write an object, as {"schema": 1, "faults": [...]}'
        raise ScheduleError(f"schedule: {shown(raw)} is not a schedule; {write}")
    if "schema" not in raw:
        raise ScheduleError(f'schema: missing; write "schema": {SCHEMA}')
    _check_schema(raw["schema"])
    refuse_unknown(raw, Schedule.__struct_fields__, "", "a part of a schedule")
    job = None if raw.get("job") is None else decode_job(raw["job"])
    faults = _faults(raw)
    schedule = Schedule(job=job, faults=tuple(decode_fault(f, f"faults[{i}]") for i, f in enumerate(faults)))
    check(schedule, shape)
    return schedule


def dump(schedule: Schedule, path: str | Path) -> None:
    """Writes a schedule to a file, one fault a line. Raises ScheduleError for one that is not valid."""
    text = dumps(schedule)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        why = f"cannot be written ({error.strerror}); choose another path"
        raise ScheduleError(f"{_printable(path)}: {why}") from None


def dumps(schedule: Schedule) -> str:
    """A schedule as JSON text that ``loads`` reads back. Raises ScheduleError if it is not valid."""
    check(schedule)
    job = "" if schedule.job is None else f' "job": {_line(schedule.job)},\n'
    lines = ",\n".join(f"  {_line(fault)}" for fault in schedule.faults)
    return f'{{"schema": {schedule.schema},\n{job} "faults": [\n{lines}\n]}}\n'


def check(schedule: Schedule, shape: JobShape | None = None) -> None:
    """Raises ScheduleError for the first thing wrong, judged by ``shape`` or else by the schedule's job."""
    _check_schema(schedule.schema)
    _check_number(schedule.faults)
    for index, fault in enumerate(schedule.faults):
        check_fault(fault, f"faults[{index}]", shape or schedule.job)


def _line(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _check_schema(number: Any) -> None:
    if type(number) is not int or number != SCHEMA:
        raise ScheduleError(f"schema: {shown(number)} is not known to this release; write {SCHEMA}")


def _faults(raw: dict[str, Any]) -> list[Any]:
    if "faults" not in raw:
        raise ScheduleError('faults: missing; write "faults": [...], which may be empty')
    if not isinstance(raw["faults"], list):
        raise ScheduleError(f"faults: {shown(raw['faults'])} is not a list; write a list of faults")
    _check_number(raw["faults"])
    return raw["faults"]


def _check_number(faults: Sequence[Any]) -> None:
    if len(faults) > MAX_FAULTS:
        raise ScheduleError(f"faults: {len(faults)} are too many; write at most {MAX_FAULTS}")


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise ScheduleError("is a directory; name a schedule file in it")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)  # bounded, for a device or a pipe has no size to look at
    except FileNotFoundError:
        raise ScheduleError("no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ScheduleError(f"cannot be read ({reason}); check the path and its permissions") from None
    if len(text) > MAX_BYTES:
        raise ScheduleError(f"more than {MAX_BYTES} bytes are too many for a schedule; write fewer faults")
    return text


def _json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ScheduleError("not JSON: nested too deep; write a list of flat faults") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScheduleError(_malformed(text, error)) from None


def _malformed(text: bytes, error: Exception) -> str:
    """Where JSON breaks off, by line and column, since that is what an editor shows."""
    reason, found, position = str(error).partition(" (byte ")
    if not found:  # the text ends too early, is not UTF-8, or has a number beyond any float
        return f"not JSON: {reason.partition(' - at ')[0].lower()}; mend the syntax"
    end = int(position.rstrip(")"))
    line = text.count(b"\n", 0, end) + 1
    column = end - text.rfind(b"\n", 0, end)
    near = ascii(text[end : end + 12].decode(errors="replace"))
    return f"not JSON: line {line}, column {column}, at {near}; mend the syntax there"


def _printable(path: str | Path) -> str:
    return str(path) if str(path).isprintable() else repr(str(path))
