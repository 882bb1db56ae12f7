"""What a plan is, and that lineage depends on every part of what is committed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Catcher, Durations, Kind, Plan, lineage_after, lineage_root
from ftruntime.protocol.planner import make_plan

from .builders import base, everyone, head_at, job, life, lives, said, target, train_plan

RANGES = ((SampleRange(0, 4, 4),), (SampleRange(1, 8, 4),))
WHOLE = ("base", 7, lives(0, 1), RANGES, 8, 0.5)

# Each is ``WHOLE`` with one thing else.
CHANGES = [
    ("other", *WHOLE[1:]),
    ("base", 8, *WHOLE[2:]),
    ("base", 7, lives(0, 2), *WHOLE[3:]),
    ("base", 7, lives(1, 0), *WHOLE[3:]),
    ("base", 7, (life(0), life(1, 2)), *WHOLE[3:]),
    ("base", 7, lives(0, 1), RANGES[::-1], 8, 0.5),
    ("base", 7, lives(0, 1), ((SampleRange(0, 5, 4),), RANGES[1]), 8, 0.5),
    ("base", 7, lives(0, 1), ((SampleRange(0, 4, 5),), RANGES[1]), 8, 0.5),
    ("base", 7, lives(0, 1), ((SampleRange(2, 4, 4),), RANGES[1]), 8, 0.5),
    ("base", 7, lives(0, 1), ((*RANGES[0], *RANGES[1]), ()), 8, 0.5),
    ("base", 7, lives(0, 1), RANGES, 9, 0.5),
    ("base", 7, lives(0, 1), RANGES, 8, 0.25),
    ("base", 7, lives(0, 1), RANGES, 8, 0.5 + 2**-53),
]


def test_lineage_depends_on_every_part_of_what_is_committed():
    names = [lineage_after(*parts) for parts in [WHOLE, *CHANGES]]
    assert len(set(names)) == len(names)
    assert all(len(n) == 32 and set(n) <= set("0123456789abcdef") for n in names)


def test_lineage_depends_on_nothing_else():
    assert lineage_after(*WHOLE) == lineage_after(*WHOLE)


def test_who_catches_up_does_not_enter_the_lineage():
    """It does not enter the state either: equal lineage means equal bits, and no more than that."""
    config = job()
    head = head_at(config, 2)
    alone = make_plan(config, head, base(config, 2), lives(0, 1), said(leased=lives(0, 1)))
    catching = make_plan(config, head, base(config, 2), lives(0, 1), said(leased=everyone(config)))
    assert alone.lineage_after == catching.lineage_after


# Names of jobs have no such character.
JOBS = st.text(st.characters(exclude_characters="\0"), max_size=3)


@given(JOBS, st.text(max_size=3), JOBS, st.text(max_size=3))
def test_the_root_is_of_the_job_and_its_initial_state(job_a, digest_a, job_b, digest_b):
    same = (job_a, digest_a) == (job_b, digest_b)
    assert (lineage_root(job_a, digest_a) == lineage_root(job_b, digest_b)) is same


CONFIG = job()
CATCHERS = (Catcher(life(2), target(CONFIG, 3), lives(0), life(0)), Catcher(life(1), None, (), life(0)))


@pytest.mark.parametrize(("zeros", "ring"), [(False, (0,)), (True, (0, 2, 1))])
def test_catchers_that_send_zeros_come_after_the_contributors(zeros, ring):
    plan = train_plan(CONFIG, 3, lives(0), CATCHERS, zeros=zeros)
    assert plan.ring() == lives(*ring)


def test_a_plan_is_asked_by_member():
    plan = train_plan(CONFIG, 3, lives(0, 1), CATCHERS[:1])
    assert plan.catcher(life(2)) == CATCHERS[0] and plan.catcher(life(0)) is None
    assert plan.catcher(life(2, 2)) is None
    assert plan.ranges_of(life(1)) == (SampleRange(1, 12, 4),)
    assert plan.ranges_by_replica() == {0: (SampleRange(0, 12, 4),), 1: (SampleRange(1, 12, 4),)}


def test_the_gist_is_what_anyone_does():
    plan = train_plan(CONFIG, 3, lives(0, 1), CATCHERS[:1])

    def other(**changes):
        return msgspec.structs.replace(plan, **changes).gist()

    same = {"round": 99, "reason": "another", "durations": Durations(1.0)}
    assert all(other(**{key: value}) == plan.gist() for key, value in same.items())
    differ = {
        "kind": Kind.CATCH_UP,
        "base": base(CONFIG, 2),
        "contributors": lives(0, 2),
        "catchers": (),
        "restore": "step-3",
    }
    assert all(other(**{key: value}) != plan.gist() for key, value in differ.items())


def test_a_plan_survives_its_encoding():
    plan = train_plan(CONFIG, 3, lives(0, 1), CATCHERS[:1])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
