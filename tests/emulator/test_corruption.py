"""A gradient that silently goes wrong is a violation, unless a fault injected on that rank explains it."""

from __future__ import annotations

import pytest

from conformance.checker import check
from emulator.emulation import Emulation
from emulator.settings import RunSettings
from faultinject import loads
from ftruntime.log.eventlog import EventLog

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
