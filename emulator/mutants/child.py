"""The hunt for one mutant, in a process of its own that has not imported the protocol yet."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import msgspec

from .table import bent_sources, mutants

WALL_SECONDS = 10.0  # of one case: a mutant that makes a job spin has been noticed


class Hunted(msgspec.Struct, frozen=True):
    """``schedules``: how many were run. The last of them caught it, if ``labels`` says what was wrong; or an
    exploration did, after ``states`` states; or the last of ``exhibits`` (0: none was needed).
    ``failed`` of ``counted`` schedules failed, where they were counted."""

    name: str
    schedules: int
    labels: tuple[str, ...] = ()
    states: int = 0
    exhibits: int = 0
    failed: int = 0
    counted: int = 0


class _Bent(SourceFileLoader):
    """Compiles another source than the one that lies at the path."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder:
    """Before all other finders: the modules that are bent."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._sources:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Bent(name, spec.origin, self._sources[name])
        return spec


def hunt(name: str, seed: int, schedules: int, states: int, counting: float = 0.0) -> Hunted:
    """Bend the protocol as mutant ``name`` does, and run the campaign's first cases until one fails. If none
    does, explore small jobs, of at most ``states`` states each (0: none); then show the museum's exhibits.

    counting: for so many seconds the schedules that fail are counted, over the whole budget
    Raises StaleMutant. Once for each process: what is imported stays bent.
    """
    (mutant,) = (each for each in mutants() if each.name == name)
    sources = bent_sources(mutant)
    loaded = sorted(sources.keys() & sys.modules.keys())
    assert not loaded, f"{loaded} are imported already, and as they are"
    sys.meta_path.insert(0, _Finder(sources))  # type: ignore[arg-type]
    found = _hunt(name, seed, schedules)
    if not found.labels and states:
        found = _explored(found, states)
    if not found.labels:
        found = _shown(found)
    return _counted(found, seed, schedules, counting) if counting else found


def _counted(found: Hunted, seed: int, schedules: int, seconds: float) -> Hunted:
    """How many of the budget's schedules fail, as far as the time goes; none did before the first."""
    from faultinject.fuzz import draw_case

    from ..fuzz.run import judge, many

    first = found.schedules
    failed = int(bool(found.labels) and not (found.states or found.exhibits))
    until, number = time.monotonic() + seconds, first
    with many() as ran:
        while number < schedules and time.monotonic() < until:
            failed += bool(judge(draw_case(seed, number), WALL_SECONDS).labels)
            number += 1
            ran()
    return msgspec.structs.replace(found, failed=failed, counted=number)


def _hunt(name: str, seed: int, schedules: int) -> Hunted:
    from faultinject.fuzz import draw_case

    from ..fuzz.run import judge, many

    with many() as ran:
        for number in range(schedules):
            found = judge(draw_case(seed, number), WALL_SECONDS)
            ran()
            if found.labels:
                return Hunted(name, number + 1, found.labels)
    return Hunted(name, schedules)


def _shown(outlived: Hunted) -> Hunted:
    from .exhibited import caught_by_exhibits

    exhibits, wrong = caught_by_exhibits()
    return msgspec.structs.replace(outlived, labels=(wrong,) if wrong else (), exhibits=exhibits)


def _explored(outlived: Hunted, most: int) -> Hunted:
    from .explored import caught_by_exploring

    states, wrong = caught_by_exploring(most)
    labels = (f"explored: {wrong}",) if wrong else ()
    return msgspec.structs.replace(outlived, labels=labels, states=states)
