"""Settings: defaults, precedence, files, and one clear line for everything that cannot work."""

from __future__ import annotations

import pytest

from emulator import settings as settings_module
from emulator.settings import RunSettings
from emulator.settings_file import make_settings, to_json
from faultinject import Schedule, ScheduleError
from ftruntime.protocol.config import JobConfig, check
from ftruntime.protocol.errors import ConfigError


def _file(tmp_path, text, name="job.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_defaults_are_the_main_job_and_can_work():
    settings = make_settings({})
    assert (settings.replicas, settings.ranks_per_replica, settings.steps, settings.seed) == (12, 64, 200, 0)
    assert (settings.faults, settings.fidelity, settings.catch_up) == ("none", "fingerprint", "tap")
    assert settings.min_replicas == 6
    job = settings.job_config()
    assert check(job) is job and job.ftar.buckets == (96 << 20,)


def test_every_field_of_the_job_is_reached():
    reached = {name for name in JobConfig.__struct_fields__ if name in RunSettings.__struct_fields__}
    assert {"replicas", "min_replicas", "streams", "divisor", "lr_scaling", "fan_out"} <= reached
    values = {"max_stream_lag": 7, "scalars": 2, "job": "x", "chain_limit": 999, "checkpoints_kept": 2}
    job = make_settings({"overrides": values}).job_config()
    assert {name: getattr(job, name) for name in values} == values


@pytest.mark.parametrize(("replicas", "half"), [(1, 1), (2, 1), (5, 2), (12, 6)])
def test_min_replicas_is_half_of_the_replicas(replicas, half):
    assert make_settings({"replicas": replicas}).shape().min_replicas == half


def test_a_file_wins_over_defaults_and_the_command_line_over_both(tmp_path):
    path = _file(
        tmp_path, "replicas = 4\nsteps = 9\n[timeouts]\nround = 40\n[ftar]\nslots = 3\nretries = 1\n"
    )
    settings = make_settings({"steps": 7, "slots": 5}, path)
    job = settings.job_config()
    assert (settings.replicas, settings.steps, settings.min_replicas) == (4, 7, 2)
    assert (job.ftar.slots, job.ftar.retries, job.timeouts.round, job.timeouts.chunk) == (5, 1, 40.0, 15.0)


def test_catch_up_may_be_a_word_or_a_table(tmp_path):
    word = _file(tmp_path, 'catch_up = "zeros"\n', "a.toml")
    table = _file(tmp_path, '[catch_up]\nmode = "zeros"\nwindow = 9\n', "b.toml")
    assert make_settings({}, word).job_config().catch_up.mode == "zeros"
    job = make_settings({}, table).job_config()
    assert (job.catch_up.mode, job.catch_up.window) == ("zeros", 9)
    assert make_settings({"catch_up": "tap"}, table).job_config().catch_up.mode == "tap"


def test_what_is_written_is_read_back_equal(tmp_path):
    given = {
        "replicas": 3,
        "faults": "table",
        "mtbf_minutes": 5.5,
        "overrides": {"timeouts": {"round": 50.0}},
    }
    settings = make_settings(given)
    path = tmp_path / "settings.json"
    path.write_bytes(to_json(settings))
    assert make_settings({}, path) == settings


def test_json_and_dashes_are_fine(tmp_path):
    path = _file(tmp_path, '{"ranks-per-replica": 3, "timeouts": {"round": 33}}', "job.json")
    settings = make_settings({}, path)
    assert (settings.ranks_per_replica, settings.job_config().timeouts.round) == (3, 33.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"replicas": 0}, "replicas is 0: it must be at least 1"),
        ({"ranks_per_replica": 0}, "ranks_per_replica is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"min_replicas": 0}, "min_replicas is 0"),
        ({"min_replicas": 13}, "min_replicas 13 is more than replicas 12: lower it"),
        ({"buckets": 0}, "buckets is 0"),
        ({"buckets": 10**9}, "buckets is 1000000000: it must be at most"),
        ({"bucket_mib": 0}, "bucket_mib is 0"),
        ({"chunk_mib": -1}, "chunk_mib is -1"),
        ({"slots": 0}, "slots is 0"),
        ({"samples_per_step": 0}, "samples_per_step is 0"),
        ({"fan_out": 1}, "fan_out is 1"),
        ({"streams": 5}, "streams 5 is less than replicas 12"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"step_seconds": 0.0}, "step_seconds is 0"),
        ({"clock": "wall", "workers": 13}, "workers is 13: with clock wall it must be 1 to replicas, 12"),
        ({"clock": "wall", "speed": 51.0}, "speed is 51: it must be above 0 and at most 50"),
        ({"clock": "wall", "fidelity": "tensor"}, "fidelity is tensor: with clock wall only fingerprint"),
        (
            {"clock": "wall", "checkpoint_every": 5},
            "checkpoint_every is 5: with clock wall there is no storage",
        ),
        ({"clock": "wall", "fold": True}, "fold is for clock virtual"),
        ({"speed": 2.0}, "speed 2 does nothing without clock wall"),
        ({"step_seconds": float("inf")}, "step_seconds is inf"),
        ({"step_seconds": 70.0}, "step_seconds 70 with jitter 0 is too long for timeouts.round 60 s"),
        ({"step_seconds": 50.0, "jitter": 0.5}, "step_seconds 50 with jitter 0.5"),
        ({"jitter": 1.0}, "jitter is 1"),
        (
            {"faults": "table", "mtbf_minutes": 1e-4},
            "mtbf_minutes 0.0001 gives more than 50000 faults in 200",
        ),
        ({"jitter": float("nan")}, "jitter is nan"),
        ({"hbm_gib": 0.0}, "hbm_gib is 0"),
        ({"mtbf_minutes": 0.0}, "mtbf_minutes is 0"),
        ({"max_virtual_hours": -2.0}, "max_virtual_hours is -2"),
        ({"locales": ("tlh_QO",)}, "faker has no locale 'tlh_QO'"),
        ({"corpus": ("no-such.txt",)}, "corpus file no-such.txt is missing"),
        ({"corpus": (".",)}, "corpus file . is a directory"),
        ({"replicas": 10**9}, "64000000000 ranks (1000000000 replicas x 64) need about"),
        (
            {"overrides": {"timeouts": {"round": 95.0}}},
            "timeouts.round 95 s is too long for timeouts.lease 90 s",
        ),
    ],
)
def test_what_cannot_work_is_told_in_one_line_with_the_value(given, words):
    with pytest.raises(ConfigError) as caught:
        make_settings(given)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicaz = 3", "replicaz is no setting; did you mean replicas?"),
        ("qqq = 3", "qqq is no setting; known: "),
        ("[timeouts]\nrund = 3", "timeouts.rund is no setting; did you mean timeouts.round?"),
        ("[ftar]\nchunks = 3", "ftar.chunks is no setting"),
        ("[catch_up]\nwin = 3", "catch_up.win is no setting"),
        ("timeouts = 3", "timeouts: 3 is no table; write its keys under [timeouts]"),
        ('replicas = "many"', 'replicas: "many" does not fit: expected int, got str'),
        ("steps = 1.5", "steps: 1.5 does not fit: expected int, got float"),
        ("[timeouts]\nround = true", "timeouts.round: true does not fit"),
        ('[ftar]\nbuckets = [1, "a"]', 'ftar.buckets[1]: "a" does not fit'),
        ('[ftar]\ntier = "moon"', 'ftar.tier: "moon" does not fit: write rack, zone, building, region'),
        ('catch_up = "tip"', 'catch_up: "tip" does not fit: write tap, zeros'),
        ('fidelity = "full"', 'fidelity: "full" does not fit: write fingerprint, tensor'),
        ("x = = 3", "is not TOML: Invalid value (at line 1, column 5); mend the syntax"),
        ('{"replicas": ', "is not JSON: Input data was truncated; mend the syntax"),
        ("run_schema = 2", "run_schema: 2 is not known to this release; write 1"),
        ("overrides = 4", "overrides: 4 is no table"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_the_path_and_the_key(tmp_path, text, words):
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        make_settings({}, path)
    assert str(caught.value).startswith(f"{path}: {words}"), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2]", "3", '"a"', "null"])
def test_json_that_is_no_table_is_refused(tmp_path, text):
    path = _file(tmp_path, text, "job.json")
    with pytest.raises(ConfigError, match="no table of settings"):
        make_settings({}, path)


def test_a_file_that_is_missing_a_directory_or_endless(tmp_path):
    with pytest.raises(ConfigError, match="no such file; check the path"):
        make_settings({}, tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="is a directory; name a TOML or JSON file"):
        make_settings({}, tmp_path)
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="longer than 1048576 bytes"):
        make_settings({}, big)


def test_memory_is_what_is_left_of_the_container_too(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(settings_module, "CGROUP_LIMIT", limit)
    limit.write_text("max\n")
    free = settings_module.memory_available()
    limit.write_text("1000000\n")
    assert settings_module.memory_available() == 1_000_000 < free
    with pytest.raises(ConfigError, match=r"768 ranks \(12 replicas x 64\) need about"):
        make_settings({})


def test_tensors_need_more_memory_than_fingerprints(monkeypatch):
    monkeypatch.setattr(settings_module, "memory_available", lambda: 768 * 6_000 * 4)
    make_settings({})
    with pytest.raises(ConfigError, match="in tensor fidelity"):
        make_settings({"fidelity": "tensor"})


def test_faults_come_from_nowhere_the_table_or_a_file(tmp_path):
    assert make_settings({}).load_faults() == Schedule(job=make_settings({}).shape())
    drawn = make_settings({"faults": "table", "mtbf_minutes": 5.0}).load_faults()
    first, second = next(drawn), next(drawn)
    assert 0 < first[0].at < second[0].at
    path = _file(
        tmp_path, '{"schema": 1, "faults": [{"kind": "crash", "at": 3, "rank": [11, 63]}]}', "s.json"
    )
    assert make_settings({"faults": str(path)}).load_faults().faults[0].rank == (11, 63)


def test_the_mtbf_is_as_given_or_scaled():
    assert make_settings({"faults": "table", "mtbf_minutes": 5.0}).mtbf_seconds() == 300.0
    assert make_settings({"ranks_per_replica": 8192}).mtbf_seconds() == 18 * 60.0


def test_a_schedule_that_does_not_fit_the_job_is_refused(tmp_path):
    path = _file(tmp_path, '{"schema": 1, "faults": [{"kind": "crash", "at": 3, "rank": [12, 0]}]}', "s.json")
    with pytest.raises(ScheduleError, match="names replica 12"):
        make_settings({"faults": str(path)}).load_faults()
    with pytest.raises(ScheduleError, match="faults 'tabel': no such file; write none, table"):
        make_settings({"faults": "tabel"}).load_faults()


def test_the_safety_stop_grows_with_the_run():
    assert make_settings({"max_virtual_hours": 2.0}).stop_seconds == 7200.0
    assert make_settings({"steps": 2000}).stop_seconds > 10 * 2000 * 20.0


def test_against_real_time_answers_may_take_as_long_as_a_busy_machine_needs():
    fast = make_settings({"clock": "wall", "speed": 40.0}).job_config().timeouts
    assert (fast.seal, fast.store, fast.range, fast.chunk) == (20.0, 20.0, 20.0, 20.0)
    assert make_settings({"clock": "wall"}).job_config() == make_settings({}).job_config()
