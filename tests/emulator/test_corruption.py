"""A gradient that silently goes wrong is a violation, unless a fault injected on that rank explains it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from conformance.checker import check
from emulator.emulation import Emulation
from emulator.settings import RunSettings
from faultinject import loads
from faultinject import vocabulary as v
from ftruntime.log.eventlog import EventLog

from .whole_job import run

FAULT = '{"schema": 1, "faults": [{"kind": "corrupt_gradient", "rank": [1, 2], "at": 30.0}]}'


@pytest.fixture(scope="module")
def log() -> list[list[object]]:
    """The log of a real run in which rank (1, 2) computes one wrong gradient."""
    settings = RunSettings(replicas=3, ranks_per_replica=4, steps=6)
    kept = EventLog(None, keep=100_000)
    Emulation(settings, loads(FAULT, settings.shape()), kept).run()
    kept.close()
    return [list(entry) for entry in kept.kept]


def test_the_injected_corruption_is_seen_and_every_invariant_holds(log: list[list[object]]) -> None:
    result = check(log)
    assert result.ok, result.failures
    assert result.corruptions_seen == 1


def test_without_the_fault_in_the_log_the_same_gradient_is_a_violation(log: list[list[object]]) -> None:
    result = check([entry for entry in log if entry[0] != "fault"])
    assert result.invariants["gradient"].violated == 1
    assert result.corruptions_seen == 0


@pytest.mark.parametrize("rank", [[1, 1], [0, 2]])
def test_a_corruption_of_another_rank_explains_nothing(log: list[list[object]], rank: list[int]) -> None:
    changed = [
        [kind, t, {"kind": "corrupt_gradient", "rank": rank}] if kind == "fault" else [kind, t, *rest]
        for kind, t, *rest in log
    ]
    assert check(changed).invariants["gradient"].violated == 1


# -- states, and data on its way ------------------------------------------------------------------

STATE = [v.CorruptParameter, v.CorruptOptimizer]


@pytest.mark.parametrize("kind", STATE)
@pytest.mark.parametrize("fidelity", ["fingerprint", "tensor"])
def test_a_state_that_went_wrong_is_seen_and_explained(kind: Any, fidelity: str) -> None:
    ran = run([kind(rank=(1, 1), at=50.0)], steps=8, fidelity=fidelity)
    assert ran.result.ok, ran.result.failures
    assert ran.result.corruptions_seen == 1


@pytest.mark.parametrize("kind", STATE)
def test_without_the_fault_in_the_log_the_same_state_is_a_violation(kind: Any) -> None:
    ran = run([kind(rank=(1, 1), at=50.0)], steps=8)
    found = check([entry for entry in ran.entries if entry[0] != "fault"])
    assert found.invariants["equality"].violated and not found.corruptions_seen


def test_a_corrupt_state_spreads_to_who_fetches_it() -> None:
    """The replica that comes back has some ranges from a donor that is well, and some from the other."""
    faults = [v.CorruptParameter(rank=(1, 1), at=50.0), v.Crash(rank=(2, 0), at=80.0)]
    ran = run(faults, steps=14)
    assert ran.result.ok, ran.result.failures
    assert ran.result.corruptions_seen == 2


def test_a_restart_mends_a_corrupt_state() -> None:
    faults = [v.CorruptParameter(rank=(1, 1), at=50.0), v.Crash(rank=(1, 0), at=80.0)]
    ran = run(faults, replicas=2, min_replicas=1, steps=16)
    assert ran.result.ok and ran.result.corruptions_seen == 1
    states = {process.device.digest() for (_, p), process in ran.emulation.processes.items() if p == 1}
    assert len(states) == 1, "it installed what the other has"


def test_an_infinite_gradient_leaves_the_update_out_at_all_replicas_alike() -> None:
    ran = run([v.InfGradient(rank=(1, 1), at=50.0)], steps=6, fidelity="tensor")
    assert ran.result.ok, ran.result.failures
    skipped = [entry for entry in ran.of("applied") if entry[10] == [math.inf]]
    assert len({entry[5] for entry in skipped}) == 1 and len({entry[2] for entry in skipped}) == 3
    assert all(entry[8] == entry[15] for entry in skipped), "the state is what it was"


CHUNK = v.CorruptChunk(rank=(1, 1), step=2, phase="ftar", count=2)


def test_a_chunk_that_is_spoilt_on_its_way_is_never_used() -> None:
    ran = run([CHUNK])
    assert ran.result.ok and ran.result.corruptions_seen == 0
    clean = run([])
    assert ran.emulation.messages > clean.emulation.messages, "it was sent again"


def test_if_nobody_looked_at_checksums_the_checker_would_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.device.FingerprintDevice.chunk_sum", lambda self, data: 0)
    assert run([CHUNK]).result.invariants["gradient"].violated


def test_a_damaged_checkpoint_is_passed_over() -> None:
    """Everybody dies: back to the checkpoint before, or to the beginning."""
    dead = [v.Crash(replica=r, at=160.0) for r in range(3)]
    job = {"checkpoint_every": 2, "steps": 10, "min_replicas": 2}
    whole = run(dead, **job)
    (to,) = [entry[9]["to_step"] for entry in whole.of("head") if entry[9]]
    assert to > 0
    for damage in ("torn", "truncated", "missing"):
        ran = run([v.CheckpointDamaged(position=1, damage=damage, at=159.0), *dead], **job)
        assert ran.result.ok, ran.result.failures
        *_, back = [entry[9]["to_step"] for entry in ran.of("head") if entry[9]]
        assert back < to
