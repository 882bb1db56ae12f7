"""Lost time, from logs made by hand with a step of 10 s."""

from __future__ import annotations

import pytest

from emulator.stalls import PHASES, attribute
from tests.conformance.log_builder import good_log

A, B, C = (0, 1), (1, 1), (2, 1)


class Log:
    """Rounds of three replicas. ``work`` begins a round's computation, half a second after its head."""

    def __init__(self, replicas=3):
        self.t = 100.0
        self.round = 0
        self.step = 0
        self.plan = []
        self.entries = [["meta", 0.0, {"replicas": replicas}]]

    def put(self, kind, *fields):
        self.entries.append([kind, self.t, *fields])

    def head(self, contributors, outcome=None, catchers=(), rollback=None, status="running"):
        closed = None
        if outcome:
            closed = {"round": self.round, "outcome": outcome, "step_after": None, "lineage_after": None}
            if outcome == "committed":
                self.step += 1
                closed["step_after"], closed["lineage_after"] = self.step, f"lineage{self.step}"
        self.round += 1
        self.plan = list(contributors)
        plan = {"contributors": [list(m) for m in contributors], "catchers": list(catchers)}
        plan = plan if status == "running" else None
        self.put("head", self.round, 0, self.round, status, [0, 1], closed, plan, rollback)

    def work(self, delay=0.5, kind="computed"):
        self.t += delay
        for replica, incarnation in self.plan:
            rest = ["lineage", 0, [], 0, [0]] if kind == "computed" else [[], [0]]
            self.put(kind, replica, incarnation, 0, self.round, *rest)

    def commit(self, then=None, after=9.5, **kw):
        self.t += after
        self.head(self.plan if then is None else then, "committed", **kw)

    def steps(self, number, contributors=None):
        for _ in range(number):
            self.work()
            self.commit(contributors)

    def stalls(self, **kw):
        found = attribute(self.entries, **kw)
        assert tuple(found.lost) == PHASES
        return found


def clean(number=5, who=(A, B, C)):
    log = Log()
    log.head(who)
    log.steps(number)
    return log


def lost(log, **kw):
    return {phase: seconds for phase, seconds in log.stalls(**kw).lost.items() if seconds > 1e-9}


def test_an_empty_log_and_one_without_commits():
    assert attribute([]).expected == 0.0
    log = Log()
    log.head([A])
    log.t += 50
    log.put("end", [], "stopped")
    found = log.stalls()
    assert (found.expected, found.effective, found.commits, found.rounds) == (0.0, 0.0, 0, 1)
    assert found.lost["other"] == pytest.approx(50.0)


def test_a_clean_run_loses_nothing_and_its_start_is_no_stall():
    log = clean()
    assert lost(log) == {}
    found = log.stalls()
    assert (found.expected, found.commits, found.rounds) == (pytest.approx(10.0), 5, 6)
    assert found.effective == pytest.approx(50.0 / 150.0)


def test_a_little_jitter_is_no_loss():
    log = clean()
    for extra in (0.3, -0.3, 0.9):
        log.work()
        log.commit(after=9.5 + extra)
    assert lost(log) == {}


def test_a_crash_is_detected_then_planned_around_then_trained_again():
    log = clean()
    log.work()
    log.t += 3.5  # 4 s into the step
    log.put("fault", {"kind": "crash", "rank": [1, 0]})
    log.put("crash", 1, 1, 0, "hbm")
    log.put("exit", 1, 1, "rank lost", True)
    log.t += 36.0  # at 40 s: 30 s later than the step was due
    log.head([A, C], "closed")
    log.work(delay=2.0)
    log.t += 5.0
    log.put("start", 1, 2, "restart")  # disturbs, and is no stall
    log.commit(after=4.0)
    log.steps(3)
    assert lost(log) == pytest.approx({"detect": 30.0, "reconfigure": 2.0, "retry": 9.0})


def test_retained_gradients_make_the_retry_short():
    log = clean()
    log.work()
    log.put("crash", 1, 1, 0, "hbm")
    log.t += 30.0
    log.head([A, C], "closed")
    log.work(delay=1.0, kind="reused")
    log.commit(after=1.5)
    assert lost(log) == pytest.approx({"detect": 20.5, "reconfigure": 1.0, "retry": 1.5})


def test_a_no_ends_detection_before_the_head_does():
    log = clean()
    log.work()
    log.put("crash", 1, 1, 0, "hbm")
    log.t += 15.5
    log.put("dropped", 0, 1, 0, log.round)
    log.t += 4.0
    log.put("dropped", 2, 1, 0, log.round)
    log.head([A, C], "closed")
    log.work(delay=1.0)
    log.commit(after=9.0)
    assert lost(log) == pytest.approx({"detect": 6.0, "reconfigure": 5.0, "retry": 9.0})


def test_what_a_catcher_drops_is_no_close():
    log = clean()
    log.work()
    log.put("crash", 1, 1, 0, "hbm")
    log.t += 5.0
    log.put("dropped", 7, 1, 0, log.round)
    log.put("dropped", 0, 1, 0, log.round - 1)
    log.t += 15.0
    log.head([A, C], "closed")
    log.work()
    log.commit()
    assert lost(log)["detect"] == pytest.approx(10.5)


def test_a_crash_at_the_end_of_a_step_is_felt_in_the_next():
    log = clean()
    log.work()
    log.t += 9.4
    log.put("crash", 1, 1, 0, "hbm")
    log.commit(after=0.1)  # the step had all it needed
    log.work()
    log.t += 59.5
    log.head([A, C], "closed")
    log.work()
    log.commit()
    assert lost(log) == pytest.approx({"detect": 50.0, "reconfigure": 0.5, "retry": 9.5})


def test_two_faults_in_one_step_are_two_detections():
    log = clean()
    log.work()
    log.put("crash", 1, 1, 0, "hbm")
    log.t += 20.0
    log.head([A, C], "closed")
    log.work()
    log.t += 4.0
    log.put("crash", 2, 1, 0, "hbm")
    log.t += 20.0
    log.head([A], "closed")
    log.work()
    log.commit()
    found = lost(log)
    assert found == pytest.approx({"detect": 10.5 + 20.0, "reconfigure": 1.0, "retry": 4.0 + 9.5})


def test_a_slow_step_without_a_close_is_neither_detection_nor_retry():
    log = clean()
    log.work()
    log.put("fault", {"kind": "store_away", "duration": 40})
    log.commit(after=45.0)
    assert lost(log) == pytest.approx({"other": 35.5})


def test_a_round_that_waits_for_a_newcomer_is_joining():
    log = clean(who=(A, B))
    log.work()
    log.commit([A, B, (2, 2)])
    log.work()
    log.commit(after=29.5)
    log.steps(2)
    assert lost(log) == pytest.approx({"join": 20.0})


def test_a_round_refused_for_a_newcomer_is_joining_and_counts_once_more_when_it_comes():
    log = clean(who=(A, B))
    log.work()
    log.commit([A, B, (2, 2)])
    log.work()
    log.t += 14.5
    log.head([A, B], "closed")  # it was presumed level, and was not
    log.work()
    log.commit([A, B, (2, 2)])
    log.work()
    log.commit(after=14.5)
    assert lost(log) == pytest.approx({"join": 15.0 + 5.0})


def test_a_fault_while_a_newcomer_joins_is_a_fault():
    log = clean(who=(A, B))
    log.work()
    log.commit([A, B, (2, 2)])
    log.work()
    log.put("crash", 1, 1, 0, "hbm")
    log.t += 29.5
    log.head([A, (2, 2)], "closed")
    log.work()
    log.commit()
    assert lost(log) == pytest.approx({"detect": 20.0, "reconfigure": 0.5, "retry": 9.5})


def test_steps_that_were_rolled_back_are_trained_again_and_were_not_effective():
    log = clean(8)
    log.work()
    log.put("crash", 1, 1, 0, "hbm")
    log.t += 19.5
    log.head([], "closed", status="recovering")
    log.t += 5.0
    rollback = {
        "to_step": 6,
        "to_lineage": "lineage6",
        "lost_steps": 2,
        "from_step": 8,
        "live": [],
        "source": "live",
    }
    log.step = 6
    log.head([A], "closed", rollback=rollback)
    log.steps(4)
    found = log.stalls()
    assert found.rolled_back == 2
    again = 2 * 10.0
    assert found.lost == pytest.approx(
        {"detect": 10.0, "reconfigure": 5.5, "retry": 9.5 + again, "join": 0.0, "other": 0.0}
    )
    assert found.effective == pytest.approx((6 * 10.0 + 4 * 10.0 / 3) / log.t)


def test_effective_time_counts_contributors():
    log = clean(4, who=(A, B))
    assert log.stalls().effective == pytest.approx(4 * 10.0 * 2 / 3 / log.t)


def test_time_without_a_commit_at_the_end_is_lost_unless_the_run_was_done():
    log = clean()
    log.t += 40.0
    log.put("last_fault")
    assert lost(log) == pytest.approx({"other": 30.0})
    assert lost(log, steps=5) == {}
    assert lost(log, steps=6) == pytest.approx({"other": 30.0})


def test_the_time_of_the_last_fault_turns_no_clock_back():
    log = clean()
    whole = log.stalls().effective
    log.entries.append(["last_fault", 3.0])
    assert log.stalls().effective == whole


def test_the_parts_add_up_to_the_time_that_is_lost():
    log = good_log()
    found = attribute(log)
    begin = next(e[1] for e in log if e[0] == "head")
    end = max(e[1] for e in log)
    assert found.rolled_back == 1
    again = found.expected * found.rolled_back
    useful = found.expected * found.commits - again
    tail = found.expected  # the last gap has no commit, and its first second is a step that was due
    assert sum(found.lost.values()) == pytest.approx(end - begin - useful - tail)


def test_the_expected_step_is_of_steps_that_nothing_disturbed():
    log = clean(3)
    for _ in range(6):  # more disturbed ones than clean ones
        log.work()
        log.put("fault", {"kind": "slow"})
        log.commit(after=19.5)
    assert log.stalls().expected == pytest.approx(10.0)
    assert lost(log) == pytest.approx({"other": 60.0})
