"""A wrong gradient is a violation, unless a fault that was injected on that rank explains it."""

from __future__ import annotations

import pytest

from conformance.checker import check
from tests.conformance.log_builder import good_log
from tests.conformance.planting import broken, of, where


def corrupted(fault_on: list[int] | None) -> list[list[object]]:
    """A good log in which rank (0, 0) computes a wrong gradient in a round that is then dropped, so that
    no sum is wrong; ``fault_on``: the rank of an injected corruption just before."""
    log = good_log()
    at = where(log, "computed", of(0, 1, 0))[8]
    assert any(e[0] == "dropped" and e[5] == log[at][5] for e in log), "a round that is not committed"
    log[at][10][0] ^= 1 << 17
    if fault_on is not None:
        log.insert(at, ["fault", log[at][1], {"kind": "corrupt_gradient", "rank": fault_on}])
    return log


def test_a_wrong_gradient_that_nothing_explains_is_a_violation() -> None:
    assert broken(corrupted(None)) == {"gradient"}


def test_an_injected_corruption_explains_it_and_is_counted_as_seen() -> None:
    result = check(corrupted([0, 0]))
    assert not result.invariants["gradient"].violated
    assert result.corruptions_seen == 1


@pytest.mark.parametrize("rank", [[0, 1], [1, 0]])
def test_a_corruption_injected_elsewhere_explains_nothing(rank: list[int]) -> None:
    assert "gradient" in broken(corrupted(rank))
