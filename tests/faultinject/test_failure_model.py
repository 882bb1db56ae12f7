"""The failure model against the published figures, and as a function of its arguments alone."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from statistics import mean, pstdev

import pytest

from faultinject import (
    CAUSES,
    JobShape,
    Patterns,
    ScheduleError,
    causes_seen,
    default_mtbf,
    draw,
    draw_restart,
    dumps,
    kind_of,
    loads,
    ranks_of,
    replica_of,
)
from faultinject.causes import strike
from faultinject.components import COMPONENTS
from faultinject.restart import communicator_init_seconds
from faultinject.shape import host_of

ROOT = Path(__file__).resolve().parents[2]
SHAPE = JobShape(replicas=12, ranks_per_replica=64)
MANY = draw(SHAPE, horizon_seconds=6_000_000, mtbf_seconds=300, seed=7)  # about 20,000 interruptions
NAMED = [fault for fault in MANY.faults if fault.cause]


def test_the_table_is_whole():
    assert sum(cause.percent for cause in CAUSES) == pytest.approx(100.0)
    assert len({cause.name for cause in CAUSES}) == 11
    for cause in CAUSES:
        assert sum(outcome.percent for outcome in cause.outcomes) == 100
        assert cause.why


def test_causes_come_as_often_as_published():
    seen = causes_seen(MANY.faults)
    assert list(seen) == [cause.name for cause in CAUSES]
    for cause in CAUSES:
        share = 100 * seen[cause.name] / len(NAMED)
        assert share == pytest.approx(cause.percent, rel=0.1), cause.name


def test_a_count_has_every_cause_even_if_unseen():
    assert set(causes_seen([]).values()) == {0}


def test_what_causes_do():
    kinds = {cause.name: Counter[str]() for cause in CAUSES}
    for fault in NAMED:
        kinds[fault.cause][kind_of(fault)] += 1
    for name in ("HBM3 memory", "PCIe device", "software", "host maintenance", "kernel", "reboot"):
        assert set(kinds[name]) == {"crash"}
    assert set(kinds["NCCL time-out"]) == {"hang"}
    assert set(kinds["silent data corruption"]) == {"corrupt_gradient"}
    assert set(kinds["other"]) == {"pause", "slow"}
    assert set(kinds["network"]) == {"link_flap", "slow"}
    compute = kinds["faulty GPU compute"]
    assert compute["nan_gradient"] / compute.total() == pytest.approx(0.2, abs=0.04)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_one_fault_of_an_interruption_carries_its_cause(cause):
    rng = Random(1)
    for _ in range(50):
        faults = strike(cause, rng, (2, 9), 10.0)
        assert [fault.cause for fault in faults if fault.cause] == [cause.name]
        assert {(replica_of(fault), fault.at) for fault in faults} == {(2, 10.0)}


def test_a_reboot_delays_the_launcher_before_it_crashes_the_host():
    reboot = next(cause for cause in CAUSES if cause.name == "reboot")
    delay, crash = strike(reboot, Random(1), (2, 9), 10.0)
    assert (kind_of(delay), kind_of(crash), crash.host) == ("launcher_delay", "crash", (2, 1))


def test_arrivals_are_exponential_with_the_mean_asked_for():
    onsets = [fault.at for fault in NAMED]
    gaps = [after - before for before, after in zip([0.0, *onsets], onsets, strict=False)]
    assert min(gaps) >= 0
    assert mean(gaps) == pytest.approx(300, rel=0.03)
    assert pstdev(gaps) == pytest.approx(300, rel=0.05)  # the exponential's deviation is its mean


def test_a_weibull_shape_changes_the_spread_and_not_the_mean():
    faults = draw(
        SHAPE, horizon_seconds=3e6, mtbf_seconds=300, seed=7, patterns=Patterns(weibull_shape=2.0)
    ).faults
    onsets = [fault.at for fault in faults if fault.cause]
    gaps = [after - before for before, after in zip([0.0, *onsets], onsets, strict=False)]
    assert mean(gaps) == pytest.approx(300, rel=0.03)
    assert pstdev(gaps) == pytest.approx(0.5227 * 300, rel=0.05)


def test_every_replica_is_hit_alike():
    hits = Counter(replica_of(fault) for fault in NAMED)
    assert sorted(hits) == list(range(12))
    assert all(count == pytest.approx(len(NAMED) / 12, rel=0.1) for count in hits.values())


def test_the_default_mtbf_is_scaled_and_has_a_floor():
    assert default_mtbf(JobShape(replicas=12, ranks_per_replica=8192)) == 18 * 60
    assert default_mtbf(JobShape(replicas=12, ranks_per_replica=4096)) == 36 * 60
    assert default_mtbf(JobShape(replicas=120, ranks_per_replica=81920)) == 60
    big = JobShape(replicas=12, ranks_per_replica=8192)
    assert draw(big, horizon_seconds=1e6, seed=1) == draw(big, horizon_seconds=1e6, seed=1, mtbf_seconds=1080)


def test_a_longer_horizon_only_adds_and_a_seed_decides():
    short = draw(SHAPE, horizon_seconds=10_000, mtbf_seconds=300, seed=7).faults
    assert short and short == MANY.faults[: len(short)]
    assert draw(SHAPE, horizon_seconds=10_000, mtbf_seconds=300, seed=8).faults != short


def test_what_is_drawn_is_a_valid_schedule():
    drawn = draw(JobShape(replicas=2, ranks_per_replica=3), horizon_seconds=1e6, mtbf_seconds=500, seed=3)
    assert len(drawn.faults) > 1000
    assert loads(dumps(drawn)) == drawn


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"horizon_seconds": 0}, "horizon_seconds: 0 does not fit; give a number more than 0"),
        ({"mtbf_seconds": -1}, "mtbf_seconds: -1 does not fit; give a number more than 0"),
        ({"mtbf_seconds": float("nan")}, "mtbf_seconds: nan does not fit; give a number more than 0"),
        ({"patterns": Patterns(weibull_shape=0)}, "weibull_shape: 0 does not fit; give a number more than 0"),
        ({"patterns": Patterns(bursts=1.5)}, "bursts: 1.5 does not fit; give a share, 0 to 1"),
        ({"patterns": Patterns(offenders=97)}, "offenders: 97 does not fit; the job has 96 hosts"),
        ({"causes": ()}, "causes: none given; give at least one"),
        (
            {"mtbf_seconds": 0.01, "horizon_seconds": 1e5},
            "horizon_seconds: 100000 with mtbf_seconds 0.01 gives more than 100000 faults; "
            "choose a shorter horizon or a longer mtbf",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, line):
    with pytest.raises(ScheduleError) as caught:
        draw(SHAPE, **{"horizon_seconds": 1000, "seed": 0, **arguments})
    assert str(caught.value) == line


def test_the_seed_alone_decides_whatever_the_hash_seed():
    code = (
        "from faultinject import *; s = JobShape(replicas=12, ranks_per_replica=64);"
        "print(dumps(draw(s, horizon_seconds=50000, mtbf_seconds=300, seed=5)));"
        "print([draw_restart(64, seed=5, replica=r, life=1) for r in range(12)])"
    )
    outputs = set()
    for hash_seed in ("0", "1", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs.pop().startswith(dumps(draw(SHAPE, horizon_seconds=50_000, mtbf_seconds=300, seed=5)))


@pytest.mark.parametrize(
    ("ranks", "seconds"),
    [
        (1, 1.0),
        (8192, 8.5),
        (16_384, 17.0),
        (22_528, 30.0),
        (44_032, 65.0),
        (65_536, 100.0),
        (98_304, 200.0),
        (131_072, 300.0),
    ],
)
def test_communicator_init_goes_through_the_published_sizes(ranks, seconds):
    assert communicator_init_seconds(ranks) == pytest.approx(seconds)


def test_restart_times_stay_in_the_published_ranges():
    times = [draw_restart(8192, seed=1, replica=r, life=n) for r in range(12) for n in range(50)]
    assert all(20 <= time.allocation.seconds <= 40 for time in times)
    assert all(120 <= time.first_step.seconds <= 240 for time in times)
    assert {time.communicator_init.seconds for time in times} == {8.5}
    assert mean(time.seconds for time in times) == pytest.approx(30 + 8.5 + 180, rel=0.03)
    assert len({(time.allocation.seconds, time.first_step.seconds) for time in times}) == len(times)
    assert all("2602.00277" in part.source for part in (times[0].allocation, times[0].first_step))


def test_a_replica_without_ranks_has_no_restart():
    with pytest.raises(ScheduleError, match="ranks: 0 does not fit; give an integer, 1 or more"):
        draw_restart(0, seed=1, replica=0, life=1)


def _gaps(faults):
    onsets = [fault.at for fault in faults if fault.cause]
    return [after - before for before, after in zip([0.0, *onsets], onsets, strict=False)]


def _share_below(gaps, seconds):
    return sum(gap < seconds for gap in gaps) / len(gaps)


@pytest.mark.parametrize("weibull_shape", [0.5, 1.0, 3.0])
def test_gaps_are_distributed_as_they_should_be(weibull_shape):
    """At five quantiles: seeded, so these bounds (some five standard errors) hold for ever or never."""
    patterns = Patterns(weibull_shape=weibull_shape)
    gaps = _gaps(draw(SHAPE, horizon_seconds=3e6, mtbf_seconds=300, seed=11, patterns=patterns).faults)
    scale = 300 / math.gamma(1 + 1 / weibull_shape)
    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
        at = scale * (-math.log(1 - quantile)) ** (1 / weibull_shape)
        assert _share_below(gaps, at) == pytest.approx(quantile, abs=0.025)


def test_components_fail_by_themselves_at_the_published_shares():
    """Units that are renewed begin new together, so shapes below 1 give more failures at first."""
    plain = Patterns(per_component=True, weibull_shape=1.0)
    faults = draw(SHAPE, horizon_seconds=6e6, mtbf_seconds=300, seed=7, patterns=plain).faults
    named = [fault for fault in faults if fault.cause]
    assert len(named) == pytest.approx(20_000, rel=0.03)
    assert _share_below(_gaps(faults), 300 * math.log(2)) == pytest.approx(0.5, abs=0.02)
    seen = causes_seen(faults)
    for cause in CAUSES:
        assert 100 * seen[cause.name] / len(named) == pytest.approx(cause.percent, rel=0.12), cause.name
    assert sum(component.percent for component in COMPONENTS) == pytest.approx(100.0)
    young = Patterns(per_component=True)
    first = draw(SHAPE, horizon_seconds=1e5, mtbf_seconds=300, seed=7, patterns=young).faults
    assert len(_gaps(first)) > 1.3 * 1e5 / 300


def test_a_unit_that_wears_out_fails_at_even_intervals():
    """Of one and the same GPU, when there are few of them."""
    few = JobShape(replicas=1, ranks_per_replica=2)
    worn = Patterns(per_component=True, weibull_shape=5.0)
    faults = draw(few, horizon_seconds=3e6, mtbf_seconds=300, seed=7, patterns=worn).faults
    gaps = _gaps([fault for fault in faults if fault.cause == "HBM3 memory" and fault.rank == (0, 1)])
    memoryless = Patterns(per_component=True, weibull_shape=1.0)
    faults = draw(few, horizon_seconds=3e6, mtbf_seconds=300, seed=7, patterns=memoryless).faults
    others = _gaps([fault for fault in faults if fault.cause == "HBM3 memory" and fault.rank == (0, 1)])
    assert pstdev(gaps) / mean(gaps) < 0.85 * pstdev(others) / mean(others)


def test_a_share_of_bursts_takes_racks_and_buildings():
    shape = JobShape(replicas=12, ranks_per_replica=64, buildings=4)
    faults = draw(shape, horizon_seconds=3e6, mtbf_seconds=300, seed=7, patterns=Patterns(bursts=0.2)).faults
    racks = [fault for fault in faults if fault.cause == "rack power"]
    buildings = [fault for fault in faults if fault.cause == "building power"]
    interruptions = sum(bool(fault.cause) for fault in faults)
    assert (len(racks) + len(buildings)) / interruptions == pytest.approx(0.2, abs=0.02)
    assert len(buildings) / (len(racks) + len(buildings)) == pytest.approx(0.1, abs=0.035)
    assert {fault.rack[1] for fault in racks} == {0, 1, 2, 3}
    assert {fault.building for fault in buildings} == {0, 1, 2, 3}
    assert len(ranks_of(buildings[0], shape)) == 3 * 64 and len(ranks_of(racks[0], shape)) == 16


def test_repeat_offenders_are_a_few_hosts_that_have_their_share():
    patterns = Patterns(offenders=3, offender_share=0.5)
    faults = draw(SHAPE, horizon_seconds=3e6, mtbf_seconds=300, seed=7, patterns=patterns).faults
    hosts = Counter(host_of(rank) for f in faults if f.cause for rank in ranks_of(f, SHAPE)[:1])
    worst, others = hosts.most_common(3), hosts.most_common()[3:]
    assert sum(count for _, count in worst) / hosts.total() == pytest.approx(0.5 + 0.5 * 3 / 96, abs=0.03)
    assert max(count for _, count in others) < min(count for _, count in worst) / 5
