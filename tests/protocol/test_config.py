"""The configuration: every complaint, word for word."""

from __future__ import annotations

import msgspec
import pytest

from ftruntime.protocol.config import Ftar, JobConfig, Timeouts, check, load
from ftruntime.protocol.errors import ConfigError


def complaint(values):
    with pytest.raises(ConfigError) as caught:
        load(values)
    return str(caught.value)


def test_the_defaults_work_and_are_what_an_empty_mapping_loads():
    assert load({}) == check(JobConfig()) == JobConfig()


SIZES = [
    ({"replicas": 0}, "replicas is 0: it must be at least 1"),
    ({"replicas": -3}, "replicas is -3: it must be at least 1"),
    ({"ranks_per_replica": 0}, "ranks_per_replica is 0: it must be at least 1"),
    ({"min_replicas": 0}, "min_replicas is 0: it must be at least 1"),
    ({"fan_out": 0}, "fan_out is 0: it must be at least 1"),
    ({"fan_out": 1, "ranks_per_replica": 3}, "fan_out is 1: a tree over 3 ranks needs at least 2"),
    ({"samples_per_step": 0}, "samples_per_step is 0: it must be at least 1"),
    ({"max_stream_lag": 0}, "max_stream_lag is 0: it must be at least 1"),
    ({"checkpoints_kept": 0}, "checkpoints_kept is 0: it must be at least 1"),
    ({"scalars": -1}, "scalars is -1: it must not be negative"),
    ({"checkpoint_every": -1}, "checkpoint_every is -1: it must not be negative"),
    ({"min_replicas": 13}, "min_replicas 13 is more than replicas 12: lower it"),
    ({"streams": 11}, "streams 11 is less than replicas 12: each replica needs one"),
    ({"streams": -1}, "streams -1 is less than replicas 12: each replica needs one"),
    (
        {"chain_limit": 127},
        "chain_limit 127 is less than twice catch_up.window 64: a catcher could fall off the chain; "
        "raise chain_limit",
    ),
    ({"ftar": {"buckets": []}}, "ftar.buckets is empty: a model has at least one gradient bucket"),
    ({"ftar": {"buckets": [8, 0]}}, "ftar.buckets[1] is 0 bytes: it must be at least 1"),
    ({"ftar": {"chunk_bytes": 0}}, "ftar.chunk_bytes is 0: it must be at least 1"),
    ({"ftar": {"slots": 0}}, "ftar.slots is 0: it must be at least 1"),
    ({"ftar": {"retries": -1}}, "ftar.retries is -1: it must not be negative"),
    ({"catch_up": {"window": 0}}, "catch_up.window is 0: it must be at least 1"),
    ({"catch_up": {"donors": 0}}, "catch_up.donors is 0: it must be at least 1"),
    ({"catch_up": {"ranges": 0}}, "catch_up.ranges is 0: it must be at least 1"),
    ({"catch_up": {"outstanding": 0}}, "catch_up.outstanding is 0: it must be at least 1"),
    ({"catch_up": {"tap_chunks": 0}}, "catch_up.tap_chunks is 0: it must be at least 1"),
    ({"catch_up": {"fruitless": 0}}, "catch_up.fruitless is 0: it must be at least 1"),
]


@pytest.mark.parametrize(("values", "line"), SIZES)
def test_a_size_that_cannot_be_is_named_with_its_mend(values, line):
    assert complaint(values) == line


@pytest.mark.parametrize(
    "values",
    [
        {"fan_out": 1, "ranks_per_replica": 2},
        {"min_replicas": 12},
        {"streams": 12},
        {"streams": 0},
        {"chain_limit": 128},
        {"scalars": 0},
        {"checkpoint_every": 0},
        {"replicas": 1, "ranks_per_replica": 1},
        {"ftar": {"buckets": [1], "chunk_bytes": 1, "slots": 1, "retries": 0}},
    ],
)
def test_the_smallest_that_works_is_taken(values):
    assert load(values)


@pytest.mark.parametrize("name", Timeouts.__struct_fields__)
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_a_time_out_is_a_positive_number_of_seconds(name, value):
    line = f"timeouts.{name} is {value} s: it must be above 0 and below 1e9"
    assert complaint({"timeouts": {name: value}}) == line


# Each pair by itself, the longer one exactly as long as refused; then a hair longer, which works.
PAIRS = [
    ("chunk", "2 x ", "round", 20.0, "a stalled neighbour is named after two chunk time-outs"),
    ("round", "", "lease", 60.0, "a replica must outlive the collective that it waits for"),
    ("round", "", "close", 60.0, "a replica gives up before others close its round"),
    ("seal", "", "close", 70.0, "a replica must learn what its ranks have before others close its round"),
    ("store", "3 x ", "lease", 75.0, "a lease must outlive a few lost answers of the store"),
    ("poll", "2 x ", "lease", 80.0, "a member must see a new head before its lease ends"),
]
OTHERS = {
    ("seal", "close"): {"seal": 70.0},
    ("store", "lease"): {"store": 25.0},
    ("poll", "lease"): {"poll": 40.0},
}


@pytest.mark.parametrize(("short", "times", "long", "limit", "why"), PAIRS)
def test_time_outs_whose_order_cannot_work_are_both_named(short, times, long, limit, why):
    values = OTHERS.get((short, long), {}) | {long: limit}
    known = msgspec.structs.asdict(Timeouts(**values))
    assert complaint({"timeouts": values}) == (
        f"timeouts.{short} {known[short]:g} s is too long for timeouts.{long} {limit:g} s ({why}): "
        f"make {times}{short} less than {long}"
    )
    assert load({"timeouts": values | {long: limit + 0.5}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 3}, ["unknown field `replica`"]),
        ({"timeouts": {"chunks": 3.0}}, ["unknown field `chunks`", "$.timeouts"]),
        ({"catch_up": {"wait": 3}}, ["unknown field `wait`", "$.catch_up"]),
        ({"ftar": {"bucket": [1]}}, ["unknown field `bucket`", "$.ftar"]),
        ({"replicas": "twelve"}, ["`int`", "`str`", "$.replicas"]),
        ({"replicas": 3.5}, ["`int`", "`float`", "$.replicas"]),
        ({"replicas": True}, ["`int`", "`bool`", "$.replicas"]),
        ({"replicas": None}, ["`int`", "`null`", "$.replicas"]),
        ({"ftar": {"buckets": 64}}, ["`array`", "`int`", "$.ftar.buckets"]),
        ({"ftar": {"buckets": ["64"]}}, ["`int`", "`str`", "$.ftar.buckets[0]"]),
        ({"timeouts": {"lease": "1m"}}, ["`float`", "`str`", "$.timeouts.lease"]),
        ({"timeouts": 3}, ["`object`", "`int`", "$.timeouts"]),
        ({"divisor": "all"}, ["'all'", "$.divisor"]),
        ({"lr_scaling": "cubic"}, ["'cubic'", "$.lr_scaling"]),
        ({"gradient_retention": "disk"}, ["'disk'", "$.gradient_retention"]),
        ({"catch_up": {"mode": "ones"}}, ["'ones'", "$.catch_up.mode"]),
        ({"ftar": {"tier": "moon"}}, ["'moon'", "$.ftar.tier"]),
    ],
)
def test_what_is_not_understood_is_one_line_that_says_where(values, words):
    line = complaint(values)
    assert line.startswith("configuration: ") and "\n" not in line
    assert all(word in line for word in words), line


def test_streams_are_eight_a_replica_unless_said():
    assert load({"replicas": 3}).stream_count == 24
    assert load({"replicas": 3, "streams": 7}).stream_count == 7


def test_the_digest_depends_on_everything_and_on_nothing_else():
    assert load({}).digest() == JobConfig().digest()
    changes = [
        {"replicas": 11},
        {"initial_digest": "other"},
        {"job": "other"},
        {"divisor": "replicas"},
        {"ftar": {"slots": 7}},
        {"catch_up": {"mode": "zeros"}},
        {"timeouts": {"seal": 9.0}},
    ]
    digests = {load(values).digest() for values in [{}, *changes]}
    assert len(digests) == len(changes) + 1


def test_a_configuration_cannot_change_under_a_member():
    with pytest.raises(AttributeError):
        JobConfig().replicas = 3
    with pytest.raises(AttributeError):
        Ftar().slots = 3
