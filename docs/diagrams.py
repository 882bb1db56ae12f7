"""Keeps the parts of the documentation that are made from code: state diagrams, tables, messages, settings.

    python docs/diagrams.py            write them anew into the pages
    python docs/diagrams.py --check    say what is out of date, exit status 1 if anything is
    python docs/diagrams.py --runs     also run the worked examples again and paste what they print

A page holds a *block* between two comments; the first says what belongs there:

    <!-- diagram ftruntime/protocol/run.py:MOVES -->   a state diagram of that table, or of one in ``DRAWN``
    <!-- table ftruntime/protocol/run.py -->           the tables of that module's docstring
    <!-- messages Join Chunk -->                       what these messages carry
    <!-- settings Timeouts -->                         the keys of that part of the configuration
    <!-- order -->                                     which time-out must be shorter than which
    <!-- run fthsdp emulate --steps 20 -->             what that command prints (only with ``--runs``)
    <!-- end -->
"""

from __future__ import annotations

import argparse
import difflib
import enum
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # so that the script runs without an installation
    sys.path.insert(0, str(ROOT))

from ftruntime.protocol import advance, config, head, messages, recovery, registry, tap, way  # noqa: E402

BLOCK = re.compile(
    r"(?P<open><!-- (?P<kind>[a-z]+)(?P<what>[^\n]*?) -->\n)(?P<body>.*?)(?P<close><!-- end -->)", re.DOTALL
)
RULER = re.compile(r"-{3,}(?: {2,}-{3,})+")


class Edge(NamedTuple):
    """One arrow. ``source`` "[*]": where the machine begins; ``target`` "[*]": it is over."""

    source: str
    target: str
    label: str = ""


# -- machines without a table of moves in code: drawn here, from names that must exist ------------


def _status() -> Iterator[Edge]:
    s = head.Status
    ends, stops = _called(advance.advance), _called(recovery.suspend)
    yield Edge("[*]", s.RUNNING.name, _called(registry.genesis))
    yield Edge(s.RUNNING.name, s.RUNNING.name, f"{ends} commits or closes the round")
    yield Edge(s.RUNNING.name, s.RECOVERING.name, f"{ends} closes, and nobody can hold the end")
    yield Edge(s.RECOVERING.name, s.RUNNING.name, f"{_called(recovery.recover)} plans from promises")
    yield Edge(s.RUNNING.name, s.LOST.name, f"{stops} an older head that came back")
    yield Edge(s.RECOVERING.name, s.LOST.name, f"{stops} an older head that came back")
    yield Edge(
        s.LOST.name, s.RECOVERING.name, f"{_called(recovery.rebuild)} from the newest head in the records"
    )


def _fate() -> Iterator[Edge]:
    f = head.Fate
    yield Edge("[*]", f.OPEN.name, "the head of the round is written")
    yield Edge(f.OPEN.name, f.COMMITTED.name, "every rank of one contributor said yes, its CAS was taken")
    yield Edge(f.OPEN.name, f.CLOSED.name, "any leased member, for any reason")


def _holding() -> Iterator[Edge]:
    h = way.Holding
    yield Edge("[*]", h.RECEIVING.name, "Begin")
    yield Edge(h.RECEIVING.name, h.COMPLETE.name, "all ranks have every bucket")
    yield Edge(h.RECEIVING.name, h.BROKEN.name, "a tap broke, or it took too long")


def _learner() -> Iterator[Edge]:
    closed, opened, ended = _named(tap, "CLOSED", "OPEN", "ENDED")
    yield Edge("[*]", closed)
    yield Edge(closed, opened, "TapAck, count 0")
    yield Edge(opened, ended, "the buffer is reused")
    yield Edge(closed, ended, "the buffer is reused")


def _sink() -> Iterator[Edge]:
    receiving, complete, broken = _named(tap, "RECEIVING", "COMPLETE", "BROKEN")
    yield Edge("[*]", receiving)
    yield Edge(receiving, complete, "the last chunk")
    yield Edge(receiving, broken, "a gap, TapEnd, source lost")


DRAWN = {"status": _status, "fate": _fate, "holding": _holding, "learner": _learner, "sink": _sink}


def _called(function: Any) -> str:
    return str(function.__name__)


def _named(module: Any, *names: str) -> tuple[str, ...]:
    """``names``, each of which the module's docstring must still speak of."""
    missing = [name for name in names if name not in (module.__doc__ or "")]
    assert not missing, f"{module.__name__} no longer speaks of {missing}: draw its diagram anew"
    return names


# -- diagrams ------------------------------------------------------------------------------------


def diagram(what: str) -> str:
    """A mermaid state diagram: of a name in ``DRAWN``, or of ``file.py:TABLE``."""
    if what in DRAWN:
        return _mermaid(list(DRAWN[what]()))
    path, _, name = what.partition(":")
    module = load(path)
    edges = list(_edges(getattr(module, name), said(module)))
    states = list(type(_first_state(getattr(module, name))))
    leaving = {edge.source for edge in edges}
    ends = [Edge(s.name, "[*]") for s in states if s.name not in leaving]
    return _mermaid([Edge("[*]", states[0].name), *edges, *ends])


def _first_state(table: Mapping[Any, Any]) -> enum.Enum:
    key = next(iter(table))
    state = key[0] if isinstance(key, tuple) else key
    assert isinstance(state, enum.Enum)
    return state


def _edges(table: Mapping[Any, Any], labels: Mapping[tuple[str, str], str]) -> Iterator[Edge]:
    """The moves of a table, in any of the shapes in which the protocol has them."""
    for key, value in table.items():
        if isinstance(key, tuple):  # (state, cause): next
            yield Edge(key[0].name, value.name, key[1].name)
            continue
        following = [value] if isinstance(value, enum.Enum) else sorted(value)
        for state in following:
            yield Edge(
                key.name,
                state.name,
                labels.get((key.name, state.name)) or labels.get(("any", state.name), ""),
            )


def _mermaid(edges: Iterable[Edge]) -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for edge in edges:
        label = re.sub(r"[:;#`]", "", edge.label)
        lines.append(f"    {edge.source} --> {edge.target}" + (f" : {label}" if label else ""))
    return "\n".join([*lines, "```"])


# -- tables of docstrings --------------------------------------------------------------------------


def load(path: str) -> Any:
    """The module of a file, named from the root of the tree."""
    return importlib.import_module(path.removesuffix(".py").replace("/", "."))


def table(path: str) -> str:
    """The tables of a module's docstring, as they stand there."""
    blocks = [b for b in (inspect.getdoc(load(path)) or "").split("\n\n") if RULER.search(b)]
    assert blocks, f"the docstring of {path} has no table"
    return "\n".join(["```text", "\n\n".join(inspect.cleandoc("\n" + b) for b in blocks), "```"])


def said(module: Any) -> dict[tuple[str, str], str]:
    """(state, next state) -> event, from a docstring's table that has these columns."""
    found: dict[tuple[str, str], str] = {}
    for block in (inspect.getdoc(module) or "").split("\n\n"):
        for row in _rows(block):
            if "event" in row and "next" in row:
                for state in next(iter(row.values())).split(","):
                    move = state.strip(), row["next"]
                    found[move] = f"{found[move]}, or {row['event']}" if move in found else row["event"]
    return found


def _rows(block: str) -> Iterator[dict[str, str]]:
    """Rows of a ruled table. A line without a first cell, or after one that ends in a comma, goes on."""
    lines = block.splitlines()
    at = next((n for n, line in enumerate(lines) if RULER.search(line)), 0)
    if not at:
        return
    starts = [match.start() for match in re.finditer("-{3,}", lines[at])]
    columns = _cells(lines[at - 1], starts)
    rows: list[list[str]] = []
    for line in lines[at + 1 :]:
        cells = _cells(line, starts)
        if rows and (not cells[0] or rows[-1][0].endswith(",")):
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    yield from (dict(zip(columns, row, strict=True)) for row in rows)


def _cells(line: str, starts: list[int]) -> list[str]:
    ends = [*starts[1:], len(line) + 1]
    return [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]


# -- messages and settings -------------------------------------------------------------------------


def message_table(names: str) -> str:
    """What each of these messages carries, and what it says."""
    lines = ["| message | carries | says |", "|---|---|---|"]
    for name in names.split():
        kind = getattr(messages, name)
        fields = ", ".join(f"`{field}`" for field in kind.__struct_fields__) or "nothing"
        lines.append(f"| `{name}` | {fields} | {_plain(_first_sentence(kind))} |")
    return "\n".join(lines)


def _first_sentence(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def _plain(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def settings_table(name: str) -> str:
    """Keys, defaults and meaning of one struct of the configuration."""
    kind = getattr(config, name)
    says = _explained(inspect.getdoc(kind) or "")
    lines = ["| key | default | what it is |", "|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        words = next((text for names, text in says if field.name in names), "")
        lines.append(f"| `{field.name}` | {_default(field.default)} | {_plain(words)} |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    return "a table" if isinstance(value, msgspec.Struct) else f"`{value!r}`"


def _explained(doc: str) -> list[tuple[set[str], str]]:
    """Lines of the form "name, name:  words" of a docstring, with the lines that go on with them."""
    found: list[tuple[set[str], str]] = []
    for line in doc.splitlines():
        match = re.match(r"([a-z_]+(?:, [a-z_]+)*): +(\S.*)", line)
        if match:
            found.append((set(match[1].split(", ")), match[2]))
        elif found and line.startswith("  "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


def order_table() -> str:
    """Which time-outs must be shorter than which, as ``config.check`` holds them."""
    lines = ["| must be less than | | because |", "|---|---|---|"]
    for shorter, factor, longer, why in config._ORDER:
        times = "" if factor == 1 else f"{factor:g} x "
        lines.append(f"| {times}`{shorter}` | `{longer}` | {why} |")
    return "\n".join(lines)


# -- runs --------------------------------------------------------------------------------------------


def run(command: str) -> str:
    """What ``command`` prints, run in an empty folder; files that it names are taken from ``docs/how-to``."""
    with tempfile.TemporaryDirectory() as folder:
        for file in (ROOT / "docs/how-to").glob("*"):
            if file.suffix in (".json", ".txt", ".toml"):
                (Path(folder) / file.name).write_bytes(file.read_bytes())
        shown = []
        for part in command.split(" && "):
            done = subprocess.run(
                [sys.executable, "-c", "from emulator.cli import main; main()", *shlex.split(part)[1:]],
                cwd=folder,
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
            )
            shown.append(done.stderr + done.stdout)  # progress comes before the result
    lines = [line.rstrip() for line in "".join(shown).splitlines()]
    return "\n".join(["```text", *lines, "```"])


# -- pages -------------------------------------------------------------------------------------------

MAKERS = {"diagram": diagram, "table": table, "messages": message_table, "settings": settings_table}


def pages() -> list[Path]:
    """Every page that may hold blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(text: str, runs: bool = False) -> str:
    """``text`` with every block made anew."""

    def make(match: re.Match[str]) -> str:
        kind, what = match["kind"], match["what"].strip()
        if kind == "run":
            body = run(what) if runs else match["body"].rstrip("\n")
        elif kind == "order":
            body = order_table()
        else:
            body = MAKERS[kind](what)
        return f"{match['open']}{body}\n{match['close']}"

    return BLOCK.sub(make, text)


def main() -> int:
    """Write or check every page; the number of pages out of date decides the exit status."""
    parser = argparse.ArgumentParser(description="The parts of the documentation that are made from code.")
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if a page is out of date")
    parser.add_argument("--runs", action="store_true", help="run the worked examples again, too")
    options = parser.parse_args()
    stale = 0
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = renewed(before, options.runs)
        if before == after:
            continue
        stale += 1
        if options.check:
            name = str(page.relative_to(ROOT))
            print(
                "\n".join(
                    difflib.unified_diff(before.splitlines(), after.splitlines(), name, "made from code")
                )
            )
        else:
            page.write_text(after, encoding="utf-8")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
