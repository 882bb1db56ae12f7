"""The exhibits and how each is run, read off ``README.md``, which has their causes and their mends."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(str(resources.files(__package__)))
COMMAND: Final = re.compile(r"^fthsdp emulate --faults emulator/museum/(\S+) (.+)$", re.MULTILINE)


class Exhibit(NamedTuple):
    """``file``: the schedule. ``options``: of ``fthsdp emulate`` beside it."""

    name: str
    file: Path
    options: tuple[str, ...]


def exhibits() -> tuple[Exhibit, ...]:
    """All of them, in their order."""
    guide = (FOLDER / "README.md").read_text(encoding="utf-8")
    return tuple(Exhibit(name, FOLDER / name, tuple(rest.split())) for name, rest in COMMAND.findall(guide))
