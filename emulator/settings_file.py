"""Settings in a file (TOML or JSON): every key of RunSettings and every key of JobConfig.

The settings that a run directory keeps can be read again as such a file.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from faultinject.errors import shown
from ftruntime.protocol.config import CatchUp, Ftar, JobConfig, Timeouts
from ftruntime.protocol.errors import ConfigError

from .settings import RunSettings, merge

SCHEMA = 1
SCHEMA_KEY = "run_schema"  # in the file that a run directory keeps
MOST_BYTES = 1 << 20
TABLES: dict[str, type[msgspec.Struct]] = {"ftar": Ftar, "catch_up": CatchUp, "timeouts": Timeouts}
# A field given on the command line wins over what a file says of the same thing in bytes.
IN_BYTES = {"buckets": "buckets", "bucket_mib": "buckets", "chunk_mib": "chunk_bytes", "slots": "slots"}

_PLACE = re.compile(r" - at `\$\.?(.*)`$")


def make_settings(given: Mapping[str, Any], file: Path | None = None) -> RunSettings:
    """Defaults, over them ``file``, over it what was ``given`` (fields of RunSettings); checked.

    Raises ConfigError, of which one about the file begins with its path.
    """
    from_file: dict[str, Any] = {}
    if file is not None:
        try:
            from_file = _sorted_out(_read(file))
            convert(from_file)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None
    ftar = from_file.get("overrides", {}).get("ftar", {})
    for name in given:
        ftar.pop(IN_BYTES.get(name, ""), None)
    return convert({**from_file, **given}).check()


def to_json(settings: RunSettings) -> bytes:
    """The text of a file that ``make_settings`` reads back to equal settings."""
    content = {SCHEMA_KEY: SCHEMA, **msgspec.to_builtins(settings)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def convert(values: dict[str, Any]) -> RunSettings:
    """Settings of these types, not checked further. Raises ConfigError."""
    try:
        return msgspec.convert(values, RunSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(_misfit(values, str(error))) from None


def _misfit(values: Any, message: str) -> str:
    """msgspec's message, led by the key and the value that it is about."""
    place = _PLACE.search(message)
    if place is None:
        return message
    value = values
    for key in re.findall(r"\w+", place[1]):
        value = value[int(key)] if isinstance(value, list | tuple) else value[key]
    choices = _choices(place[1])
    what = f"write {', '.join(choices)}" if choices else message[: place.start()].replace("`", "").lower()
    return f"{place[1]}: {shown(value)} does not fit: {what}"


def _choices(place: str) -> tuple[str, ...]:
    """The words that may stand at ``place``, if it takes only some."""
    table, _, key = place.rpartition(".")
    hints = get_type_hints(TABLES.get(table, RunSettings))
    hint = hints.get(key)
    return get_args(hint) if get_origin(hint) is Literal else ()


def _read(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise ConfigError("is a directory; name a TOML or JSON file")
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("no such file; check the path") from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); check the path and its permissions") from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"is longer than {MOST_BYTES} bytes; that is no file of settings")
    return _parse(raw, path.suffix == ".json" or raw.lstrip()[:1] == b"{")


def _parse(raw: bytes, as_json: bool) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(raw) if as_json else tomllib.loads(raw.decode())
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise ConfigError(f"is not {'JSON' if as_json else 'TOML'}: {what}; mend the syntax") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{shown(values)} is no table of settings; write key and value pairs")
    return values


def _sorted_out(raw: dict[str, Any]) -> dict[str, Any]:
    """Fields of RunSettings as they are, the other keys of JobConfig under "overrides"."""
    schema = raw.pop(SCHEMA_KEY, SCHEMA)
    if schema != SCHEMA:
        raise ConfigError(f"{SCHEMA_KEY}: {shown(schema)} is not known to this release; write {SCHEMA}")
    fields: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    nested = _table("overrides", raw.pop("overrides", {}))
    for key, value in [*nested.items(), *raw.items()]:
        name = key.replace("-", "_")
        if name in TABLES and not (name == "catch_up" and isinstance(value, str)):
            overrides[name] = merge(_table(name, overrides.get(name, {})), _table(name, value))
        elif name in RunSettings.__struct_fields__:
            fields[name] = value
        else:
            overrides[name] = value
    _check_overrides(overrides, fields)
    return {**fields, "overrides": overrides}


def _check_overrides(overrides: dict[str, Any], fields: dict[str, Any]) -> None:
    both = {*JobConfig.__struct_fields__, *RunSettings.__struct_fields__}
    for key, value in overrides.items():
        _known(key, "", JobConfig.__struct_fields__, both)
        if key in TABLES:
            for inner in _table(key, value):
                _known(inner, f"{key}.", TABLES[key].__struct_fields__)
    mode = overrides.get("catch_up", {}).pop("mode", None)
    if mode is not None:  # it has one place, so that the command line can win over it
        fields["catch_up"] = mode
    try:
        msgspec.convert(overrides, JobConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_misfit(overrides, str(error))) from None


def _known(key: str, prefix: str, names: Iterable[str], offered: Iterable[str] = ()) -> None:
    if key not in names:
        choices = sorted(offered or names)
        close = difflib.get_close_matches(key, choices, 1)
        mend = f"did you mean {prefix}{close[0]}?" if close else f"known: {', '.join(choices)}"
        raise ConfigError(f"{prefix}{key} is no setting; {mend}")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: {shown(value)} is no table; write its keys under [{name}]")
    return dict(value)
