"""Chance plants the faults: whatever decisive field of a correct log is changed, something sees it."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.checker import BadEntry, check

from .log_builder import digest, good_log
from .planting import where

GOOD = good_log()
FIELDS = {
    "computed": (6, 7, 8, 9, 10),
    "reused": (6, 7),
    "applied": (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    "installed": (5, 6, 7),
    "initial": (5, 6, 7),
    "shard": (6, 7, 8),
    "checkpoint": (3, 4),
}
PLAN = ("base_step", "base_lineage", "base_ledger", "contributors", "ranges", "divisor", "lr_factor")
ROLLBACK = ("to_step", "to_lineage", "lost_steps", "from_step", "live")
COMMIT = ("round", "step_after", "lineage_after")


def mutant(value, delta):
    """``value`` with one thing in it changed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + delta
    if isinstance(value, float):
        return value * (1 + delta / 1000)
    if isinstance(value, str):
        return digest(value, delta)
    place = delta % len(value)
    return [mutant(v, delta) if i == place else v for i, v in enumerate(value)]


def seen(log):
    """Whether the checker refuses ``log``, as a run or as a log."""
    try:
        return not check(log).ok
    except BadEntry:
        return True


@pytest.mark.parametrize("kind", FIELDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_field_is_seen(kind, data):
    log = copy.deepcopy(GOOD)
    entry = log[data.draw(st.sampled_from(where(log, kind)))]
    field = data.draw(st.sampled_from(FIELDS[kind]))
    entry[field] = mutant(entry[field], data.draw(st.integers(1, 100)))
    assert not check(log).ok


@pytest.mark.parametrize(("part", "keys"), [(8, PLAN), (9, ROLLBACK), (7, COMMIT)])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_head_is_seen(part, keys, data):
    log = copy.deepcopy(GOOD)
    telling = [i for i in where(log, "head", lambda e: e[part])][:-1] if part == 8 else None
    telling = telling or where(log, "head", lambda e: e[part] and e[part].get("outcome") != "closed")
    head = log[data.draw(st.sampled_from(telling))]
    key = data.draw(st.sampled_from(keys))
    head[part][key] = mutant(head[part][key], data.draw(st.integers(1, 2)))
    assert seen(log)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_missing_entry_is_seen(data):
    """Any work that a commit rests on, any head, any start of a life; not the updates of the last step."""
    log = copy.deepcopy(GOOD)
    last = max(e[4] for e in log if e[0] == "head")
    dead = {(0, 1), (1, 1), (1, 2)}
    tables = {
        "computed": lambda e: e[5] < last,
        "applied": lambda e: e[5] < last - 1 and (e[2], e[3]) not in dead,
        "installed": lambda e: True,
        "initial": lambda e: True,
        "head": lambda e: e[8] is None or e[4] < last,
        "end": lambda e: True,
    }
    kind = data.draw(st.sampled_from(sorted(tables)))
    del log[data.draw(st.sampled_from(where(log, kind, tables[kind])))]
    assert not check(log).ok
