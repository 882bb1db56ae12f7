"""The table of mutants: what each takes out of which source. It stands in ``table.toml``."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]  # where the packages lie


class StaleMutant(Exception):
    """A mutant does not fit the sources any more: one line."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In ``file``, the only place that says ``take`` says ``put``."""

    file: str
    take: str
    put: str

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``section``: of docs/design.md, where the ``rule`` stands that the mutant breaks. ``together``: the
    rule is guarded more than once, and this mutant takes all guards out; alone, this one may do no harm."""

    name: str
    section: str
    rule: str
    edit: tuple[Edit, ...]
    together: str = ""


class _Table(msgspec.Struct, frozen=True):
    mutant: tuple[Mutant, ...]


def mutants() -> tuple[Mutant, ...]:
    """All of them, in the order of the table."""
    text = resources.files(__package__).joinpath("table.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Table).mutant


def bent_sources(mutant: Mutant) -> dict[str, str]:
    """Module -> its source, bent. Raises StaleMutant for a snippet that does not stand in just one place."""
    bent: dict[str, str] = {}
    for edit in mutant.edit:
        source = bent.get(edit.module) or (ROOT / edit.file).read_text(encoding="utf-8")
        found = source.count(edit.take)
        if found != 1:
            line = edit.take.strip().splitlines()[0]
            raise StaleMutant(
                f"{mutant.name}: {edit.file} has {line!r} {found} times, not once; mend the table"
            )
        bent[edit.module] = source.replace(edit.take, edit.put)
    return bent
