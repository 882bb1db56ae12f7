"""Whole jobs from start to end: each kind of trouble once, and the log says that it went as designed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys

import pytest

from faultinject import Phase
from faultinject import vocabulary as v

from .whole_job import run

STEPS = 12
LONG = 40  # steps in which a replica that restarts comes back


def test_a_clean_run_commits_every_step_at_every_rank():
    ran = run()
    assert ran.result.failures == []
    assert ran.emulation.steps_committed == STEPS and ran.emulation.rounds == STEPS + 2
    assert len(ran.of("computed")) == len(ran.of("applied")) + 3 * 2  # of the round that was open at the end
    assert {(e[2], e[4], e[13]) for e in ran.of("applied")} == {
        (replica, position, step) for replica in range(3) for position in range(2) for step in range(1, STEPS)
    }
    assert all(len(plan["contributors"]) == 3 for plan in ran.plans[1:])
    assert not ran.of("fault") and not ran.of("dropped") and not ran.of("reused")


# -- the same again --------------------------------------------------------------------------------

FAULTS = (
    v.Crash(rank=(1, 1), step=2, phase=Phase.FTAR),
    v.LinkFlap(rank=(0, 1), duration=3.0, at=75.0),
    v.StoreLostAnswer(step=4, phase=Phase.COMMIT),
)


def test_equal_seeds_give_equal_traces():
    assert run(FAULTS, jitter=0.1).trace_hash == run(FAULTS, jitter=0.1).trace_hash


def test_another_seed_gives_another_trace():
    assert run(FAULTS, jitter=0.1).trace_hash != run(FAULTS, jitter=0.1, seed=1).trace_hash


def test_the_trace_does_not_depend_on_which_position_runs_first():
    wide = {"ranks_per_replica": 6, "buckets": 2, "jitter": 0.1}
    assert run(FAULTS, careful=True, **wide).trace_hash == run(FAULTS, **wide).trace_hash


def test_the_trace_does_not_depend_on_the_process(tmp_path):
    """Nothing follows the order of a set or a hash: two processes hash strings differently."""

    def told(hash_seed):
        options = "--replicas 3 --ranks-per-replica 2 --steps 8 --faults table --mtbf-minutes 1 --json -q"
        program = "from emulator.cli import main; main()"
        command = [sys.executable, "-c", program, "emulate", *options.split()]
        command += ["--run-dir", str(tmp_path / hash_seed)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, second = told("1"), told("2")
    assert first["faults_injected"] and first["trace_hash"] == second["trace_hash"]


# -- a replica is lost -------------------------------------------------------------------------------


def test_a_step_is_tried_again_without_recomputing():
    ran = run([v.Crash(rank=(1, 0), step=3, phase=Phase.FTAR)])
    assert ran.result.failures == []
    (closed,) = [head[7]["round"] for head in ran.of("head")[1:] if head[7]["outcome"] == "closed"][1:]
    again = ran.of("reused")
    assert {(e[2], e[4], e[5]) for e in again} == {(r, p, closed + 1) for r in (0, 2) for p in range(2)}
    assert not [e for e in ran.of("computed") if e[5] == closed + 1]


def test_without_retention_it_is_recomputed():
    ran = run([v.Crash(rank=(1, 0), step=3, phase=Phase.FTAR)], gradient_retention="none")
    assert ran.result.failures == [] and not ran.of("reused")


@pytest.mark.parametrize("mode", ["tap", "zeros"])
def test_a_replica_that_comes_back_catches_up_while_the_others_train(mode):
    ran = run([v.Crash(rank=(2, 1), at=50.0)], catch_up=mode, steps=LONG)
    assert ran.result.failures == []
    assert [(e[2], e[3], e[8]) for e in ran.of("installed")] == [(2, 2, "donors")] * 2
    held = [e for e in ran.of("applied") if (e[2], e[3]) == (2, 2) and not e[6]]
    assert held, "it comes level by what the others reduced"
    assert [2, 2] in ran.plans[-1]["contributors"] and len(ran.plans[-1]["contributors"]) == 3
    commits = [head[1] for head in ran.of("head") if head[7] and head[7]["outcome"] == "committed"]
    assert max(b - a for a, b in itertools.pairwise(commits[4:])) < 30, "nobody waits for it"


def test_a_zombie_changes_nothing():
    ran = run([v.Zombie(replica=0, delay=70.0, step=2, phase=Phase.VOTE)], steps=LONG)
    assert ran.result.failures == []
    (old,) = [e for e in ran.of("exit") if e[2] == 0]
    assert old[3] == 1 and not old[5], "the old life ends by itself, and is not started again"
    registered = next(e[1] for e in ran.of("register") if (e[2], e[3]) == (0, 2))
    assert old[1] > registered
    late = [head for head in ran.of("head") if head[1] > registered]
    assert late and all(head[6] != [0, 1] for head in late)


def test_a_rank_that_hangs_is_named_and_replaced():
    hang = v.Hang(rank=(1, 1), variant="never_joins", step=2, phase=Phase.PLAN)
    ran = run([hang], steps=LONG)
    assert ran.result.failures == []
    reasons = [text for _, _, what, _, text in ran.notes if what == "sealing"]
    assert any("replica 1 never joined" in reason for reason in reasons), reasons
    assert (1, 2) in {(e[2], e[3]) for e in ran.of("start")}
    assert {e[2] for e in ran.of("exit")} == {1}, "no other replica restarts"
    assert [1, 2] in ran.plans[-1]["contributors"]


def test_all_replicas_are_lost_and_the_job_goes_on_from_a_checkpoint():
    crashes = [v.Crash(host=(replica, 0), at=170.0) for replica in range(3)]
    ran = run(crashes, checkpoint_every=3, steps=15)
    assert ran.result.failures == [] and ran.emulation.steps_committed > 15
    (rollback,) = [head[9] for head in ran.of("head") if head[9]]
    assert (rollback["source"], rollback["to_step"]) == ("checkpoint", 6)
    stored = {e[4]: e[8] for e in ran.of("shard") if e[6] == 6}
    restored = [e for e in ran.of("installed") if e[8] == "checkpoint"]
    assert {(e[2], e[4]) for e in restored} >= {
        (replica, position) for replica in range(3) for position in (0, 1)
    }
    assert all(e[7] == stored[e[4]] for e in restored), "bit for bit what was saved"


# -- the store ---------------------------------------------------------------------------------------


def test_while_the_store_is_away_commits_wait():
    ran = run([v.StoreAway(duration=200.0, at=50.0)])
    assert ran.result.failures == [] and ran.emulation.steps_committed == STEPS
    heads = [head[1] for head in ran.of("head")]
    assert not [t for t in heads if 50.1 < t < 250.0]
    waiting = next(head for head in ran.of("head") if head[1] >= 250.0)
    assert waiting[7]["outcome"] == "committed", "what was reduced meanwhile is not lost"
    assert not ran.of("exit") and not ran.of("dropped")


@pytest.mark.parametrize("lost", [v.StoreEmpty(at=90.0), v.StoreRestoredOld(at=90.0, versions=3)])
def test_a_store_that_lost_its_head_is_rebuilt(lost):
    ran = run([lost])
    assert ran.result.failures == []
    assert ran.of("head")[-1][3] == 2, "a new epoch"
    assert ran.emulation.steps_committed == STEPS and not [head for head in ran.of("head") if head[9]]
    assert not ran.of("exit"), "nobody has to start again"


# -- real tensors ---------------------------------------------------------------------------------------


def test_states_of_tensors_are_equal_bit_by_bit():
    ran = run([v.Crash(rank=(2, 0), at=30.0)], fidelity="tensor", steps=25, bucket_mib=1)
    assert ran.result.failures == []
    assert ran.result.invariants["equality"].checked > 0
    states = {}
    for e in ran.of("applied"):
        states.setdefault((e[14], e[4]), set()).add(e[15])
    assert len(states) >= 2 * 20 and all(len(found) == 1 for found in states.values())
    assert (2, 2) in {(e[2], e[3]) for e in ran.of("applied") if e[6]}, "the one that came back contributes"
