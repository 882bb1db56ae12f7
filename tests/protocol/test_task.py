"""What a plan asks of each replica."""

from __future__ import annotations

import pytest

from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.task import Part, Task, task_of

from .builders import catch_up_plan, job, life, lives, target, train_plan

CONFIG = job(replicas=6)
STEP = 3
FETCH, OTHER = target(CONFIG, 3), target(CONFIG, 2)
CATCHERS = (
    Catcher(life(3), FETCH, lives(0, 1), life(0)),
    Catcher(life(4), OTHER, lives(1), life(1)),
    Catcher(life(5), None, (), life(0)),
)


def plan(zeros=False, contributors=(0, 1, 2)):
    return train_plan(CONFIG, STEP, lives(*contributors), CATCHERS, zeros=zeros)


def own(replica):
    return (SampleRange(replica, STEP * 4, 4),)


def test_contributors_stand_in_a_ring_and_serve_learners_and_donors():
    assert task_of(plan(), life(0)) == Task(
        Part.CONTRIBUTE,
        3,
        0,
        life(2),
        life(1),
        own(0),
        None,
        lives(3, 5),
        ((FETCH.lineage, lives(3)),),
    )
    assert task_of(plan(), life(1)) == Task(
        Part.CONTRIBUTE,
        3,
        1,
        life(0),
        life(2),
        own(1),
        None,
        lives(4),
        ((OTHER.lineage, lives(4)), (FETCH.lineage, lives(3))),
    )
    assert task_of(plan(), life(2)) == Task(Part.CONTRIBUTE, 3, 2, life(1), life(0), own(2))


@pytest.mark.parametrize(("replica", "tap"), [(3, 0), (4, 1), (5, 0)])
def test_catchers_learn_beside_the_ring(replica, tap):
    assert task_of(plan(), life(replica)) == Task(Part.LEARN, 3, tap=life(tap))


def test_catchers_that_send_zeros_stand_in_the_ring_and_train_nothing():
    tasks = [task_of(plan(zeros=True), life(r)) for r in range(6)]
    assert [t.part for t in tasks] == [Part.CONTRIBUTE] * 3 + [Part.ZEROS] * 3
    assert [t.index for t in tasks] == list(range(6)) and {t.members for t in tasks} == {6}
    assert [(t.left, t.right) for t in tasks] == [(life((r - 1) % 6), life((r + 1) % 6)) for r in range(6)]
    assert [t.ranges for t in tasks] == [own(0), own(1), own(2), (), (), ()]
    assert all(t.learners == () and t.tap is None for t in tasks)
    assert tasks[0].wanted == ((FETCH.lineage, lives(3)),)


def test_a_ring_of_one_is_its_own_neighbour():
    task = task_of(plan(contributors=(2,)), life(2))
    assert (task.members, task.index, task.left, task.right) == (1, 0, life(2), life(2))


@pytest.mark.parametrize("member", [life(3, 2), life(0, 9)])
def test_another_life_has_no_part(member):
    assert task_of(plan(), member) == Task(Part.BYSTANDER, 3)


def test_without_training_there_are_donors_and_bystanders():
    waiting = catch_up_plan(CONFIG, STEP, (Catcher(life(3), FETCH, lives(0, 1)),))
    assert task_of(waiting, life(3)) == Task(Part.BYSTANDER, 0)
    assert task_of(waiting, life(2)) == Task(Part.BYSTANDER, 0)
    assert task_of(waiting, life(0)) == Task(Part.BYSTANDER, 0, wanted=((FETCH.lineage, lives(3)),))


def test_two_catchers_of_one_state_share_its_frozen_copy():
    both = train_plan(
        CONFIG, STEP, lives(0), (Catcher(life(3), FETCH, lives(0)), Catcher(life(4), FETCH, lives(0)))
    )
    assert task_of(both, life(0)).wanted == ((FETCH.lineage, lives(3, 4)),)


def test_every_task_of_a_plan_fits_the_others():
    """Left of right is oneself, and whoever taps is somebody's learner."""
    tasks = {r: task_of(plan(), life(r)) for r in range(6)}
    for r in range(3):
        assert tasks[tasks[r].right.replica].left == life(r)
    for r in range(3, 6):
        assert life(r) in tasks[tasks[r].tap.replica].learners
