"""Scenario files: commands, ``----``, and what they must show, up to the next empty line.

    # Words for people.

    crash 1
    until step 3
    ----
    what happens, line by line

A block may have several commands; a block that shows nothing ends with ``----``. Lines that begin with ``#``
and empty lines between blocks are kept when a file is written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

RULE = "----"


@dataclass
class Block:
    """Commands and what they must show. ``line`` is where the first command stands."""

    line: int
    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def parse(text: str) -> list[Block | str]:
    """Blocks, and the lines of words and space between them, in order.

    Raises ValueError for commands without a ``----``.
    """
    parts: list[Block | str] = []
    block: Block | None = None
    ruled = False
    for number, line in enumerate(text.splitlines(), 1):
        if block is None:
            if not line.strip() or line.startswith("#"):
                parts.append(line)
                continue
            block, ruled = Block(number), False
            parts.append(block)
        if ruled and not line:
            parts.append("")
            block = None
        elif ruled:
            block.expected.append(line)
        elif line == RULE:
            ruled = True
        else:
            if not line.strip():
                raise ValueError(f"line {number}: a block of commands ends with {RULE}")
            block.commands.append(line)
    if block is not None and not ruled:
        raise ValueError(f"line {block.line}: a block of commands ends with {RULE}")
    return parts


def render(parts: list[Block | str]) -> str:
    """The text of a scenario file."""
    lines: list[str] = []
    for part in parts:
        lines += [part] if isinstance(part, str) else [*part.commands, RULE, *part.expected]
    return "\n".join(lines) + "\n"


def play(text: str, run: Callable[[Block], list[str]]) -> str:
    """The text with what ``run`` shows for each block in place of what is expected."""
    parts = parse(text)
    for part in parts:
        if isinstance(part, Block):
            part.expected = run(part)
    return render(parts)


def files() -> list[Path]:
    """Every scenario file, by name."""
    return sorted(Path(__file__).parent.glob("*.txt"))
