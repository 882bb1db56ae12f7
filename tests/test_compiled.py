"""The compiled core does what the Python one does, and is never taken for what it is not."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ftruntime.compiled import CORE, STAMP, VARIABLE

ROOT = Path(__file__).resolve().parent.parent
FAULTY = ("--faults", "table", "--mtbf-minutes", "2", "--steps", "25")
JOBS = (
    ("--replicas", "4", "--ranks-per-replica", "5", "--seed", "1", *FAULTY),
    ("--replicas", "3", "--ranks-per-replica", "9", "--seed", "2", "--catch-up", "zeros", *FAULTY),
    ("--replicas", "5", "--ranks-per-replica", "3", "--seed", "3", "--buckets", "3", *FAULTY),
    ("--replicas", "3", "--ranks-per-replica", "40", "--seed", "4", "--steps", "4"),
    ("--replicas", "3", "--ranks-per-replica", "2", "--fidelity", "tensor", *FAULTY),
)


def _missing():
    """What it takes to compile, and is not here."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        return "mypyc or setuptools is not installed"
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler}"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "the headers of Python are not installed"
    return ""


def _python(*arguments, core=""):
    environment = {**os.environ, VARIABLE: str(core)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )


def _emulate(job, folder, core):
    program = "from emulator.cli import main; main()"
    done = _python("-c", program, "emulate", *job, "--json", "-q", "--run-dir", str(folder), core=core)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    return summary["trace_hash"], summary["messages"], summary["faults_injected"]


@pytest.mark.skipif(bool(_missing()), reason=_missing() or "all is here")
def test_the_compiled_core_leaves_the_same_traces(tmp_path):
    core = tmp_path / "core"
    built = _python("-m", "ftruntime.build", str(core), "--opt-level", "0")
    assert built.returncode == 0, built.stdout + built.stderr
    names = "emulator.process", "emulator.kernel", "ftruntime.protocol.ring"
    program = f"from importlib import import_module as i; print(*(i(n).__file__ for n in {names}), sep='\\n')"
    origins = _python("-c", program, core=core).stdout.split()
    assert len(origins) == 3 and all(Path(origin).is_relative_to(core) for origin in origins), origins
    injected = 0
    for number, job in enumerate(JOBS):
        compiled, python = (_emulate(job, tmp_path / f"{number}{c and 'c'}", c) for c in (str(core), ""))
        assert compiled == python, job
        injected += python[2]
    assert injected > 0


@pytest.mark.parametrize("stamp, word", [(None, "holds no compiled core"), ("0", "from other sources")])
def test_a_folder_without_the_core_of_these_sources_is_refused(tmp_path, stamp, word):
    if stamp is not None:
        (tmp_path / STAMP).write_text(stamp, encoding="ascii")
    done = _python("-c", "import emulator.mixing", core=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and word in last and "python -m ftruntime.build" in last


def test_without_the_variable_all_is_python():
    program = (
        "import sys, emulator.process; print(*(m.__file__ for m in map(sys.modules.get, sys.argv[1:]) if m))"
    )
    files = _python("-c", program, *CORE).stdout.split()
    assert files and all(file.endswith(".py") for file in files)
