"""The documentation says what is: parts made from code are up to date, links and names lead somewhere, and
commands are commands."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import runpy
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

import faultinject
from emulator.cli import main
from faultinject import JobShape

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    + list((ROOT / "docs").rglob("*.md"))
)
DIAGRAMS = runpy.run_path(str(ROOT / "docs/diagrams.py"))
HEADING = re.compile(r"^#+ +(.*)$", re.M)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
SOURCE = re.compile(r"(?P<file>[\w./-]+\.(?:py|md|txt|toml|json|ini))(?::(?P<name>[\w.]+))?")
TREE = (
    "ftruntime/",
    "emulator/",
    "faultinject/",
    "conformance/",
    "tests/",
    "docs/",
    "benchmarks/",
    "examples/",
)


def _id(page):
    return str(page.relative_to(ROOT))


@cache
def _text(page):
    return page.read_text(encoding="utf-8")


def _prose(page):
    return FENCE.sub("", _text(page))


def _every(find):
    """(page, what it finds there), for a readable id of each."""
    return [pytest.param(page, what, id=f"{_id(page)}: {what}") for page in PAGES for what in find(page)]


def test_every_protocol_page_and_how_to_is_looked_at():
    found = {_id(page) for page in PAGES}
    assert {
        f"docs/protocol/{name}.md" for name in "consensus step ftar catch-up session data".split()
    } <= found
    assert {"docs/design.md", "docs/guarantees.md", "docs/museum.md", "docs/schedules.md"} <= found


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_what_is_made_from_code_is_up_to_date(page):
    assert DIAGRAMS["renewed"](_text(page)) == _text(page), "run: python docs/diagrams.py"


def test_every_machine_with_a_table_has_its_diagram():
    tables = re.compile(r"^(MOVES|MOODS|TRANSITIONS)\b", re.M)
    wanted = {
        f"<!-- diagram {_id(file)}:{name} -->"
        for file in (ROOT / "ftruntime/protocol").glob("*.py")
        for name in tables.findall(file.read_text(encoding="utf-8"))
    }
    shown = "\n".join(_text(page) for page in PAGES)
    assert len(wanted) >= 7 and all(marker in shown for marker in wanted)


def test_a_diagram_has_every_state_and_move_of_its_table():
    from ftruntime.protocol import run

    drawn = DIAGRAMS["diagram"]("ftruntime/protocol/run.py:MOVES")
    moves = {(a.name, b.name) for a, following in run.MOVES.items() for b in following}
    assert set(re.findall(r"([A-Z]+) --> ([A-Z]+)", drawn)) == moves


@pytest.mark.parametrize("file", ["run", "share", "session", "shard"])
def test_the_table_in_a_docstring_tells_no_move_that_the_machine_does_not_know(file):
    module = DIAGRAMS["load"](f"ftruntime/protocol/{file}.py")
    moves = {(edge.source, edge.target) for edge in DIAGRAMS["_edges"](module.MOVES, {})}
    told = {(a, b) for a, b in DIAGRAMS["said"](module) if a != "any" and a != b}
    assert told and told <= moves


# -- links and names ---------------------------------------------------------------------------------


def _links(page):
    return sorted({link for link in LINK.findall(_prose(page)) if "://" not in link})


def _anchors(page):
    """As GitHub makes them of headings."""
    titles = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(_prose(page))]
    return {title.strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page, link", _every(_links))
def test_relative_links_lead_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.exists() and target.is_relative_to(ROOT)
    assert not anchor or anchor in _anchors(target)


def _sources(page):
    """Names in backticks that are files of the tree, with or without a name in them."""
    names = {name for name in CODE.findall(_prose(page)) if SOURCE.fullmatch(name)}
    return sorted(name for name in names if name.startswith(TREE))


@cache
def _names(file):
    """Dotted names of every class, function, method and assignment at the top of a module or class."""
    return set(_defined(ast.parse((ROOT / file).read_text(encoding="utf-8")).body, ""))


def _defined(body, prefix):
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{prefix}{node.name}.")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield prefix + ast.unparse(target)


@pytest.mark.parametrize("page, source", _every(_sources))
def test_files_and_functions_that_are_named_exist(page, source):
    match = SOURCE.fullmatch(source)
    assert (ROOT / match["file"]).is_file()
    assert match["name"] is None or match["name"] in _names(match["file"])


# -- commands ------------------------------------------------------------------------------------------


def _commands(page):
    """Every command of ours: lines of shell blocks, and backticks with more than the command's name."""
    shell = [line for kind, body in FENCE.findall(_text(page)) if kind == "sh" for line in body.splitlines()]
    parts = [part.strip() for line in shell for part in line.split("&&")]
    ours = [part for part in parts if Path(part.split(" ")[0]).name == "fthsdp"]
    inline = [code for code in CODE.findall(_prose(page)) if re.match(r"fthsdp [a-z]+ ?", code)]
    runs = re.findall(r"<!-- run (.*?) -->", _text(page))
    return sorted({*ours, *inline, *(part for line in runs for part in line.split(" && "))})


def _parse(words):
    """Everything that click does with a command line but to carry it out."""
    with click.Context(main) as above:
        name, command, rest = main.resolve_command(above, words)
        if not rest and any(parameter.required for parameter in command.params):
            return  # "fthsdp replay": the command is spoken of, not shown
        with command.make_context(name, rest, parent=above):
            return


@pytest.mark.parametrize("page, command", _every(_commands))
def test_commands_parse(page, command):
    _parse(shlex.split(command)[1:])


@pytest.mark.parametrize("wrong", ["emulate --step 3", "emulate --replicas many", "run it", "replay a b"])
def test_a_wrong_command_is_noticed(wrong):
    with pytest.raises(click.ClickException):
        _parse(shlex.split(wrong))


def _modules(page):
    return sorted(set(re.findall(r"python -m ([\w.]+)", _text(page))))


@pytest.mark.parametrize("page, module", _every(_modules))
def test_modules_that_are_run_exist(page, module):
    assert importlib.util.find_spec(module) is not None


# -- examples ------------------------------------------------------------------------------------------


def test_the_schedule_of_the_how_to_is_the_file_beside_it_and_fits_its_job():
    page = _text(ROOT / "docs/how-to/write-a-schedule.md")
    shown = next(body for kind, body in FENCE.findall(page) if kind == "json")
    file = ROOT / "docs/how-to/outage.json"
    assert json.loads(shown) == json.loads(file.read_text(encoding="utf-8"))
    schedule = faultinject.load(file, JobShape(replicas=4, ranks_per_replica=2, min_replicas=2))
    assert len(schedule.faults) == 3


def test_the_settings_file_of_the_how_to_can_be_read(tmp_path):
    from emulator.settings_file import make_settings

    page = _text(ROOT / "docs/how-to/timeouts.md")
    path = tmp_path / "job.toml"
    path.write_text(next(body for kind, body in FENCE.findall(page) if kind == "toml"), encoding="utf-8")
    settings = make_settings({}, path)
    assert settings.replicas == 24 and settings.job_config().timeouts.round == 40
