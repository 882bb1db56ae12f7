"""The house style, kept by reading the syntax trees of the packages."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ftruntime", "emulator", "faultinject", "conformance")
FILE_LINES = 600
FUNCTION_LINES = 60
SELF_EVIDENT_LINES = 8  # a class or function this short may do without a docstring

PURE = ("ftruntime/protocol", "ftruntime/store")  # no I/O in here (design 2)

# What could bring a clock, chance, or the outside world in.
IMPURE = frozenset(
    "asyncio concurrent datetime io logging multiprocessing os pathlib queue random sched secrets select "
    "selectors shutil signal socket ssl subprocess sys tempfile threading time uuid".split()
)
# hash() of a str and id() differ between two processes; the rest is the outside world.
IMPURE_CALLS = frozenset({"hash", "id", "open", "print", "input", "__import__", "exec", "eval"})


def _sources(*folders: str) -> list[str]:
    files = sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))
    return [str(p.relative_to(ROOT)) for p in files]


CODE = _sources(*PACKAGES)
ALL_CODE = _sources(*PACKAGES, "tests", "examples", "benchmarks")


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), file)


def _imports(file: str) -> Iterator[str]:
    """Full dotted names of every module that ``file`` imports, wherever in it."""
    package = Path(file).parent.parts
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield ".".join((*base, *([node.module] if node.module else [])))


def _of(folder: str) -> list[str]:
    return [f for f in CODE if f.startswith(folder + "/")]


def test_every_package_is_looked_at():
    assert {Path(f).parts[0] for f in CODE} == set(PACKAGES)


@pytest.mark.parametrize("file", CODE)
def test_files_are_small(file):
    lines = (ROOT / file).read_text(encoding="utf-8").count("\n")
    assert lines <= FILE_LINES, f"{file} has {lines} lines: split it by ideas"


@pytest.mark.parametrize("file", CODE)
def test_functions_fit_a_screen(file):
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= FUNCTION_LINES, f"{file}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("file", CODE)
def test_public_things_say_what_they_are(file):
    if Path(file).name != "__init__.py" or _tree(file).body:
        assert ast.get_docstring(_tree(file)), f"{file} has no docstring"
    public = list(_public(_tree(file)))
    classes = [node for node in public if isinstance(node, ast.ClassDef)]
    for node in public:
        if classes == [node]:
            continue  # the file's docstring speaks of its only class
        lines = node.end_lineno - node.lineno + 1
        assert ast.get_docstring(node) or lines <= SELF_EVIDENT_LINES, f"{file}:{node.lineno} {node.name}"


def _public(
    scope: ast.Module | ast.ClassDef,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in scope.body:
        kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        # A handler, on_something, says what the table or base class that calls it says.
        if isinstance(node, kinds) and not node.name.startswith(("_", "on_")):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)


@pytest.mark.parametrize("file", [f for f in CODE if f.endswith("__init__.py")])
def test_init_files_show_a_public_face_and_nothing_else(file):
    for node in _tree(file).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        imports = isinstance(node, ast.Import | ast.ImportFrom)
        names = isinstance(node, ast.Assign | ast.AnnAssign) and _assigned(node) <= {"__all__", "_LAZY"}
        lazy = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        assert docstring or imports or names or lazy or typing, f"{file}:{node.lineno}"


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {ast.unparse(t) for t in targets}


@pytest.mark.parametrize("file", CODE)
def test_arrows_point_one_way(file):
    closed = {
        "ftruntime": {"emulator", "faultinject", "conformance"},
        "faultinject": {"emulator", "conformance"},
        "conformance": {"ftruntime", "emulator", "faultinject"},
    }
    refused = closed.get(Path(file).parts[0], set())
    assert not {name.split(".")[0] for name in _imports(file)} & refused


@pytest.mark.parametrize("file", [f for folder in PURE for f in _of(folder)])
def test_the_protocol_and_its_register_do_no_io(file):
    for name in _imports(file):
        top, parts = name.split(".")[0], name.split(".")
        own = "/".join(parts[:2]) in (PURE if file.startswith("ftruntime/store/") else PURE[:1])
        pure = top in sys.stdlib_module_names and top not in IMPURE
        assert own or pure or top == "msgspec", f"{file} imports {name}"


@pytest.mark.parametrize("file", [f for folder in PURE for f in _of(folder)])
def test_they_call_nothing_that_differs_between_processes(file):
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in IMPURE_CALLS, f"{file}:{node.lineno} calls {node.func.id}"


@pytest.mark.parametrize("file", ALL_CODE)
def test_nothing_is_left_undone(file):
    unfinished = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "Not" + "ImplementedError")))
    found = unfinished.search((ROOT / file).read_text(encoding="utf-8"))
    assert not found, f"{file} has {found.group() if found else ''}"


def _texts() -> list[str]:
    top = ["README.md", "pyproject.toml", "tox.ini", "constraints.txt", ".ci/run"]
    prose = sorted(p for f in ("docs", "examples", "benchmarks") for p in (ROOT / f).rglob("*.md"))
    return top + ALL_CODE + [str(p.relative_to(ROOT)) for p in prose]


@pytest.mark.parametrize("file", _texts())
def test_no_path_of_one_machine(file):
    machine = re.compile(r"(?<![\w.])/(?:work|root|home|opt|Users)/\w")
    found = machine.search((ROOT / file).read_text(encoding="utf-8"))
    assert not found, f"{file} has a path of one machine at character {found.start() if found else 0}"


def test_ci_runs_what_the_readme_says():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (command,) = (line for line in lines if "-m pytest" in line)
    script = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    places = [script.index(part) for part in command.split(" && ")]
    assert len(places) == 3 and places == sorted(places)


def test_every_dependency_is_pinned_and_every_install_keeps_to_the_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["dev"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    pinned = {line.partition("==")[0] for line in pins.splitlines() if "==" in line}
    assert {re.split("[><=;]", name)[0].lower() for name in asked} <= pinned
    for file in ("README.md", ".ci/run", "tox.ini"):
        installs = re.findall(r"pip install.*", (ROOT / file).read_text(encoding="utf-8"))
        assert installs and all("constraints.txt" in line for line in installs), file
