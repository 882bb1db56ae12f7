"""What neither drawn schedules nor explorations caught is shown the museum: schedules that broke drafts."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path

from faultinject.museum import Player, files, read, violations_without

from ..museum import exhibits


def caught_by_exhibits() -> tuple[int, str]:
    """How many exhibits were shown, and what the last of them showed, or ""."""
    shown = 0
    for path in files():
        shown += 1
        schedule = read(path)
        found = violations_without(schedule, Player(schedule.config))
        if found:
            return shown, f"exhibit {path.stem}: {found[0].kind}"
    for exhibit in exhibits():
        shown += 1
        wrong = _emulated(exhibit.file, exhibit.options)
        if wrong:
            return shown, f"exhibit {exhibit.file.stem}: {wrong}"
    return shown, ""


def _emulated(file: Path, options: tuple[str, ...]) -> str:
    """What is wrong with the run of an exhibit, or "". The order of time is the mutant's own, so only what
    may never be is wrong: a violated invariant, a job that does not end, an assertion."""
    from ..emulate import emulate

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        words = ["--faults", str(file), *options, "--run-dir", f"{folder}/run", "--quiet", "--json"]
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                status = emulate.main(words, standalone_mode=False)
        except Exception as error:
            return type(error).__name__
        return "" if status == 0 else _violated(said.getvalue()) or f"exit status {status}"


def _violated(said: str) -> str:
    with contextlib.suppress(ValueError, KeyError):
        invariants = json.loads(said)["invariants"]
        return ", ".join(name for name, each in invariants.items() if each["violated"])
    return ""
