"""Exhaustive exploration of small jobs, and whether it finds what was planted."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from emulator.cli import main
from faultinject.explore import Bounds, explore
from faultinject.explore.job import Job
from faultinject.explore.keys import key
from faultinject.explore.search import Search
from faultinject.explore.starts import start_world
from faultinject.explore.world import Action
from ftruntime.protocol import messages as m
from ftruntime.protocol import store as s
from ftruntime.protocol.advance import Next, advance
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.head import Fate, Status
from ftruntime.protocol.leader import Leader
from ftruntime.protocol.session import Session
from ftruntime.protocol.share import Share

NO_FAULTS = Bounds(crashes=0, lost_answers=0, timers=0)
CRASH = Bounds(crashes=1, lost_answers=0, timers=0, rounds=0)


def test_a_fault_free_round_in_every_order_is_clean():
    report = explore(NO_FAULTS)
    assert report.violation is None, report.text()
    assert report.complete and report.states > 1000 and report.beyond > 0


def test_one_crash_at_any_moment_is_clean():
    report = explore(CRASH)
    assert report.violation is None, report.text()
    assert report.complete and report.at_rest > 0 and report.continued >= report.at_rest


def test_a_lost_answer_at_any_moment_is_clean():
    report = explore(Bounds(crashes=0, lost_answers=1, timers=0, rounds=0))
    assert report.violation is None, report.text()
    assert report.complete


def test_a_returning_replica_is_clean_as_far_as_looked():
    report = explore(Bounds(start="returning", crashes=0, lost_answers=0, timers=0, max_states=10_000))
    assert report.violation is None, report.text()
    assert report.states >= 10_000


@pytest.mark.parametrize(
    "shape", [{"replicas": 3}, {"ranks": 2}, {"mode": "zeros", "start": "returning"}], ids=str
)
def test_other_shapes_are_clean_as_far_as_looked(shape):
    report = explore(Bounds(**shape, crashes=1, lost_answers=0, timers=1, max_states=5000))
    assert report.violation is None, report.text()
    assert report.states >= 5000


def test_the_same_bounds_give_the_same_report():
    first, second = (explore(Bounds(crashes=1, timers=1, max_states=3000)) for _ in range(2))
    assert (first.states, first.transitions, first.nodes) == (second.states, second.transitions, second.nodes)
    assert not first.complete


# -- the compact job is the world --------------------------------------------------------------------


def _world_moves(world):
    """Actions of the world that a row of a job knows as well, each with its move."""
    for a in world.actions():
        if a.kind == "message":
            yield a, ("message", a.at[0], a.to[0])
        elif a.kind in ("request", "answer", "watch"):
            yield a, (a.kind, a.at[0])
        elif a.kind == "device":
            yield a, ("device", a.at[0])
        elif a.name in ("close", "round", "late", "grace", "rest"):
            yield a, ("timer", a.at[0], a.name, a.tag)


def _quiet_answer(world, job):
    """Put and Renew are answered in the world alone: the job does not wait for those answers."""
    for r, queue in world.answers.items():
        if queue and isinstance(queue[0][1], s.PutDone | s.Renewed):
            return Action("answer", (r, 0))
    return None


@pytest.mark.parametrize("seed", range(8))
def test_rows_go_where_worlds_go(seed):
    rng, bounds = random.Random(seed), Bounds(timers=1000)
    job, world = Job(bounds), start_world(bounds)
    row = job.row(world)
    for _ in range(400):
        while (quiet := _quiet_answer(world, job)) is not None:
            world.do(quiet)
        moves = list(_world_moves(world))
        action, move = rng.choice([m for m in moves if m[1][0] != "timer" or rng.random() < 0.1] or moves)
        assert move in job.moves(row)[0]
        world.do(action)
        row, wrong = job.do(row, move)
        assert not wrong
        register = job.registers.table[row[job.register]]
        assert (register.head, register.records) == (world.head, world.register.records)
        for at, device in world.devices.items():
            assert key(job.nodes.table[row[job.index[at]]].device) == key(device)
        under_way = sum(len(job.queues.items[row[job.links + slot]]) for slot in range(job.size**2))
        assert under_way == sum(len(queue) for queue in world.links.values())


def test_what_is_remembered_is_never_modified():
    search = Search(Bounds(crashes=1, timers=1, max_states=3000))
    search.run(None)
    nodes = search.job.nodes
    for number in range(1, len(nodes.table) + 1):
        assert nodes.number(nodes.table[number]) == number, "a step changed the state that it began from"


# -- keys --------------------------------------------------------------------------------------------


def test_reasons_are_for_people_alone():
    votes = [m.Vote(2, False, (), ErrorReport(ErrorClass.PEER_LOST, text, (1,))) for text in ("lost", "late")]
    assert key(votes[0]) == key(votes[1])
    assert key(votes[0]) != key(m.Vote(2, False, (), ErrorReport(ErrorClass.PEER_LOST, "lost", (0,))))
    assert key(votes[0]) != key(m.Vote(2, False, (), None))


def test_keys_tell_kinds_of_things_apart():
    assert key(m.Ack(2, 1, 1)) != key(m.Join(2, 1, 1))
    assert key(s.PutDone(True)) != key(s.Renewed(True))


def test_a_clone_has_the_key_of_its_original():
    world = start_world(NO_FAULTS)
    for at, rank in world.ranks.items():
        assert key(rank) == key(rank.clone()) and key(world.devices[at]) == key(world.devices[at].clone())
    assert key(world.ranks[0, 0]) != key(world.ranks[1, 0])


# -- planted faults ----------------------------------------------------------------------------------


def _as_of_by_reading(monkeypatch):
    """Schedule 14's rule is broken: reading a head moves as_of."""
    monkeypatch.setattr(Leader, "_as_of", lambda self, head: head.round)
    return Bounds(crashes=0, lost_answers=0, timers=1, rounds=1), "as_of"


def _drop_without_seal(monkeypatch):
    """Schedule 17's rule is broken: a leader that gives up drops at once."""
    sealing = Leader._seal

    def seal(self, run, report, out):
        sealing(self, run, report, out)
        self.down.pop()
        self._after_seal(run, m.Sealed(run.round, False), out)

    monkeypatch.setattr(Leader, "_seal", seal)
    return Bounds(crashes=0, lost_answers=0, timers=1, rounds=1), "has all of it"


def _commit_retried_with_the_new_round(monkeypatch):
    """Schedule 16's rule is broken: a failed compare-and-set is tried again with the open round."""
    answered = Session.answered

    def retry(self, number, answer, out):
        call = self.client._calls.get(number)
        answered(self, number, answer, out)
        if isinstance(answer, s.CasDone) and not answer.taken and call is not None:
            head, members = self.client.head, self.client.members
            if self.me in head.plan.contributors:
                again = advance(self._config, head, head.round, Fate.COMMITTED, self.me, members)
                assert isinstance(again, Next)
                self._cas(again.head, out)

    monkeypatch.setattr(Session, "answered", retry)
    return Bounds(crashes=0, lost_answers=0, timers=0, rounds=1), "nobody alive has all of it"


def _yes_before_acknowledged(monkeypatch):
    """Schedule 6's rule is broken: a yes does not wait until the right neighbour has every chunk."""
    monkeypatch.setattr(Share, "acknowledged", property(lambda self: True))
    return Bounds(crashes=0, lost_answers=0, timers=0, rounds=1), "has all of it"


def _record_of_what_is_expected(monkeypatch):
    """A record says what is expected, not what is held (schedule 3's rule)."""
    honest = Leader._report

    def report(self, head, out):
        held = self.held
        if self._order is not None and self._order.leads_to is not None:
            self.held = self._order.leads_to
        honest(self, head, out)
        self.held = held

    monkeypatch.setattr(Leader, "_report", report)
    return Bounds(crashes=0, lost_answers=0, timers=1, rounds=1), "but the device is only on its way"


def _promise_by_reading(monkeypatch):
    """Schedule 14's rule is broken under ``recovering`` alone: reading that head is taken for a promise."""
    honest = Leader._as_of

    def as_of(self, head):
        return head.round if head.status is Status.RECOVERING else honest(self, head)

    monkeypatch.setattr(Leader, "_as_of", as_of)
    return Bounds(start="returning", crashes=1, lost_answers=0, timers=0, rounds=1), "says as_of"


PLANTED = [
    _as_of_by_reading,
    _drop_without_seal,
    _commit_retried_with_the_new_round,
    _yes_before_acknowledged,
    _record_of_what_is_expected,
    _promise_by_reading,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_fault_is_found(plant, monkeypatch):
    bounds, told = plant(monkeypatch)
    report = explore(bounds)
    assert report.violation is not None, report.text()
    assert told in report.violation.invariant
    assert report.violation.path and all(report.violation.path)
    print(report.violation.text())


# -- the command line --------------------------------------------------------------------------------


def _command(*arguments):
    return CliRunner().invoke(main, ["explore", *arguments])


def test_the_command_prints_json():
    done = _command("--crashes", "0", "--lost-answers", "0", "--timers", "0", "--rounds", "0", "--json", "-q")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["complete"] and report["violation"] is None and report["states"] > 10


def test_the_command_says_when_it_gave_up():
    done = _command("--max-states", "100", "--quiet")
    assert done.exit_code == 2 and "NOT complete" in done.stdout


def test_the_command_has_help():
    done = _command("--help")
    assert done.exit_code == 0 and "--lost-answers" in done.stdout and "Examples:" in done.stdout


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--crashes", "-1"], "--crashes -1 does not fit; write 0 or more"),
        (["--replicas", "1"], "--replicas 1 does not fit; write 2 or more"),
        (["--min-replicas", "3"], "--min-replicas 3 does not fit; write 1 to 2"),
    ],
)
def test_bad_bounds_are_one_line(arguments, told):
    done = _command(*arguments)
    assert done.exit_code == 2 and told in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_leaves_what_was_seen(monkeypatch):
    def stop(depth, states, layer):
        if states > 20:
            raise KeyboardInterrupt

    monkeypatch.setattr("emulator.explore_command._progress", stop)
    done = _command("--timers", "0", "--json")
    assert done.exit_code == 130 and "interrupted after" in done.stderr
    report = json.loads(done.stdout)
    assert report["states"] > 20 and not report["complete"]
