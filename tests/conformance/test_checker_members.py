"""Planted faults of fencing, durability and resources: each is seen, by its invariant."""

from __future__ import annotations

import pytest

from conformance.checker import check

from .log_builder import Job, good_log
from .planting import broken, first_failures, heads, of, pick, rollback_head, where


@pytest.fixture
def log():
    return good_log()


# -- fencing ---------------------------------------------------------------------------------


def test_a_stale_life_changes_the_head(log):
    heads(log)[-3][6] = [1, 2]
    assert broken(log) == {"fencing"}


def test_a_life_that_is_not_registered_yet_changes_the_head(log):
    heads(log)[0][6] = [0, 2]
    assert broken(log) == {"fencing"}


def test_a_commit_by_a_life_that_is_no_contributor(log):
    start = where(log, "start", of(1, 2))[0]
    head = next(e for e in log[start:] if e[0] == "head" and e[7]["outcome"] == "committed")
    head[6] = [1, 2]
    assert broken(log) == {"fencing"}


def test_a_commit_by_nobody(log):
    heads(log)[4][6] = None
    assert broken(log) == {"fencing"}


def test_a_plan_counts_on_a_stale_life(log):
    plan = heads(log)[-2][8]
    plan["contributors"][1] = [1, 2]
    assert "fencing" in broken(log)


def test_a_plan_has_a_stale_catcher(log):
    heads(log)[-2][8]["catchers"] = [[1, 2, -1, []]]
    assert "fencing" in broken(log)


def test_an_incarnation_is_given_twice(log):
    i = where(log, "register", of(1, 3))[0]
    log.insert(i + 1, list(log[i]))
    assert broken(log) == {"fencing"}


def test_an_incarnation_goes_back(log):
    i = where(log, "register", of(1, 3))[0]
    log.insert(i + 1, ["register", log[i][1], 1, 1])
    assert broken(log) == {"fencing"}


def test_a_current_life_is_refused(log):
    log.insert(-2, ["fenced", log[-3][1], 2, 1])
    assert "fencing" in broken(log)


def test_a_life_acts_after_its_end(log):
    i = where(log, "exit", of(1, 1))[0]
    log.insert(i + 1, ["dropped", log[i][1], 1, 1, 0, 9])
    assert broken(log) == {"fencing"}


def _zombie(log, leaves, restart):
    """2.1 is succeeded and refused at the very end of the run."""
    end = log.pop()
    t = log[-2][1]
    log += [["start", t, 2, 2, "zombie"], ["register", t, 2, 2], ["fenced", t + 0.1, 2, 1]]
    if leaves:
        log.append(["exit", t + 0.2, 2, 1, "fenced", restart])
    end[2] = [state for state in end[2] if state[0] != 2]
    end[1] = t + 11.0
    log.append(end)
    return log


def test_a_fenced_life_that_leaves_is_well_behaved(log):
    assert broken(_zombie(log, leaves=True, restart=False)) - {"progress"} == set()


def test_a_fenced_life_that_is_started_again(log):
    assert "fencing" in broken(_zombie(log, leaves=True, restart=True))


def test_a_fenced_life_that_stays(log):
    assert "fencing" in broken(_zombie(log, leaves=False, restart=False))


# -- durability ------------------------------------------------------------------------------


def test_a_rollback_past_a_live_replica_that_had_every_bucket(log):
    """1.2, the right neighbour of the committer, does not die: what it has acknowledged is not lost."""
    for kind in ("exit", "crash"):
        del log[where(log, kind, of(1, 2))[0]]
    del log[where(log, "fault", lambda e: e[2]["target"] == [1, 0])[1]]
    assert broken(log) == {"durability"}


def test_a_rollback_past_a_live_replica_that_has_applied_it(log):
    lost = rollback_head(log)[9]
    commit = next(e for e in heads(log) if e[7] and e[7].get("step_after") == lost["from_step"])
    model = pick(log, "applied", of(2, 1), -1)
    for i in where(log, "dropped", of(2, 1))[-2:]:
        state = [lost["from_step"], commit[7]["lineage_after"], 77]
        log[i] = ["applied", *log[i][1:6], *model[6:13], *state]
    assert "durability" in broken(log)


def test_a_partitioned_holder_is_rightly_taken_for_lost(log):
    i = where(log, "crash", of(1, 2))[0]
    j = where(log, "exit", of(1, 2))[0]
    log[j][1] = log[-1][1] - 1.0
    log.insert(-2, log.pop(j))
    log[i - 1][2] = {"kind": "partition", "groups": [[1], [0, 2, "store"]], "duration": 100.0}
    del log[i]
    assert "durability" not in broken(log)


def test_a_rollback_without_the_first_of_its_two_steps(log):
    i = next(n for n in where(log, "head") if log[n][5] == "recovering")
    del log[i]
    assert broken(log) == {"durability"}


def test_a_rollback_further_than_a_live_record(log):
    head = rollback_head(log)
    older = next(e for e in heads(log) if e[8] and e[8]["base_step"] == head[9]["to_step"] - 1)
    head[9].update(to_step=older[8]["base_step"], to_lineage=older[8]["base_lineage"])
    assert "durability" in broken(log)


@pytest.mark.parametrize("said", [[], [1], 0, 2])
def test_a_rollback_that_hides_what_it_loses(log, said):
    rollback_head(log)[9]["lost_steps"] = said
    assert broken(log) == {"durability"}


def test_a_rollback_that_does_not_ask_a_live_member(log):
    rollback_head(log)[9]["live"] = []
    assert broken(log) == {"durability"}


def test_a_record_of_somebody_who_never_lived(log):
    rollback_head(log)[9]["live"][0][1] = 5
    assert broken(log) == {"durability"}


def test_the_number_of_lost_steps_will_do(log):
    rollback_head(log)[9]["lost_steps"] = 1
    assert broken(log) == set()


def test_a_record_that_is_not_true(log):
    rollback_head(log)[9]["live"][0][2] -= 1
    assert broken(log) == {"durability"}


def _from_checkpoint():
    """All replicas are lost; their successors start from a checkpoint two steps back."""
    job = Job()
    lives, later = [(0, 1), (1, 1), (2, 1)], [(0, 2), (1, 2), (2, 2)]
    job.start(*lives)
    job.head(lives[0], lives)
    for _ in range(5):
        job.step()
    saved = job.held[lives[0]]
    job.save(lives[0], "five")
    job.step()
    job.step()
    for member in lives:
        job.crash(member)
        job.exit(member)
    job.t += 5.0
    job.start(*later)
    job.close()
    job.recovering(later[0])
    del job.chain[-2:]
    live = [[*member, 0, job.config["lineage_root"]] for member in later]
    said = {"to_step": 5, "to_lineage": saved[1], "lost_steps": [6, 7], "from_step": 7, "live": live}
    catchers = [[*member, 5, []] for member in later]
    job.head(later[0], [], catchers, rollback={**said, "source": "checkpoint"})
    for member in later:
        job.restore(member, saved, "checkpoint")
    job.close()
    job.head(later[0], later)
    for _ in range(3):
        job.step()
    job.put("end", [[*m, *held[:2], True] for m, held in job.held.items()], "steps done")
    return job.log


def test_a_start_from_a_checkpoint_holds():
    result = check(_from_checkpoint())
    assert result.ok, first_failures(result)
    assert result.lost_steps == 2 and "durability" in result.expected


def test_a_start_from_a_checkpoint_with_the_ledger_of_the_end():
    log = _from_checkpoint()
    i = log.index(rollback_head(log))
    log[i][8]["base_ledger"] = heads(log[:i])[-2][8]["base_ledger"]
    assert broken(log) == {"exactly_once"}


def test_a_start_from_a_checkpoint_that_was_never_recorded():
    log = _from_checkpoint()
    del log[where(log, "checkpoint")[0]]
    saved = pick(log, "installed")
    for i in where(log, "head", lambda e: e[9]):
        log[i][9]["to_lineage"] = saved[6][::-1]
    assert "single_lineage" in broken(log)


# -- resources -------------------------------------------------------------------------------


def test_a_counter_that_does_not_come_back(log):
    t = pick(log, "crash", of(1, 1))[1]
    for i in where(log, "resources", lambda e: e[1] > t and e[2] == 0):
        log[i][7]["held"] = 1
    assert broken(log) == {"resources"}


def test_a_counter_that_was_never_there_before(log):
    t = pick(log, "crash", of(1, 1))[1]
    for i in where(log, "resources", lambda e: e[1] > t):
        log[i][7]["leaked"] = 1
    assert broken(log) == {"resources"}


def test_a_counter_that_is_high_for_a_moment_only(log):
    log[where(log, "resources")[-1]][7]["held"] = 3
    assert broken(log) == set()


def test_a_slow_leak_below_what_was_once_in_use():
    job = Job()
    a, b, c = (0, 1), (1, 1), (2, 1)
    job.start(a, b, c)
    job.head(a, [a, b, c])
    held = {"held": 50}

    def resources(*members):
        for m in members:
            for p in range(job.width):
                job.put("resources", *m, p, job.held[m][0], 1, held if p == 0 else {})

    job.resources = resources
    for leaked in range(7):
        for n in range(8):
            held["held"] = leaked if leaked or n > 5 else 50
            job.step()
        job.put("fault", {"kind": "store_lost_answer", "count": 1})
    job.put("end", [[*m, *held[:2], True] for m, held in job.held.items()], "steps done")
    assert broken(job.log) == {"resources"}


def test_resources_that_nobody_reported_are_a_failure(log):
    without = [e for e in log if e[0] != "resources"]
    result = check(without)
    assert [line.split(":")[0] for line in result.failures] == ["resources"]
    assert "never checked" in result.failures[0]
