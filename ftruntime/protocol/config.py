"""The configuration of a job: one validated object that every member of the job must share.

``JobConfig`` is what the protocol needs to know and nothing more. ``load`` takes a mapping (from
a file or a command line) and refuses what cannot work with one line that names the values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from .errors import ConfigError


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds. Each must outlive what it waits for: ``check`` holds the order.

    chunk:           a ring neighbour makes no progress; after two of these it is accused
    round:           a replica gives its round up (in two phases, design 3.3)
    seal:            a rank of the own replica does not answer; the replica is broken then
    close:           an observer closes an unfinished round; doubled for each consecutive close
    lease:           a member that does not renew for this long is left out of plans
    store:           an unanswered store request is looked into again
    poll:            the head is read anew, in case the watch lost something
    range:           one range of a fetch
    start_grace:     how long the first plan waits for all replicas once ``min_replicas`` are there
    rollback_grace:  how long a rollback waits for all replicas (design 3.2)
    linger:          how long those who have the last state wait for those who are away (design 3.7)
    """

    chunk: float = 10.0
    round: float = 60.0
    seal: float = 10.0
    close: float = 120.0
    lease: float = 90.0
    store: float = 2.0
    poll: float = 10.0
    range: float = 10.0
    start_grace: float = 30.0
    rollback_grace: float = 120.0
    linger: float = 120.0


class CatchUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a returning replica catches up (design 3.5).

    mode:         ``tap`` (a learner outside the ring) or ``zeros`` (a member that sends zeros)
    window:       held steps after which a fetch begins again
    donors:       at most this many donors serve one catcher
    ranges:       into how many checksummed ranges a shard is cut
    outstanding:  ranges asked of one donor at a time
    tap_chunks:   finished chunks in flight to a learner
    fruitless:    catch-up rounds without any progress before unreachable holders are given up
    """

    mode: Literal["tap", "zeros"] = "tap"
    window: int = 64
    donors: int = 3
    ranges: int = 8
    outstanding: int = 2
    tap_chunks: int = 16
    fruitless: int = 3


class Ftar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ring all-reduce across replicas (design 3.4).

    buckets:      bytes of each gradient bucket of a rank
    chunk_bytes:  bytes of a chunk (S)
    slots:        chunks in flight to a neighbour at most (C)
    retries:      fresh connections tried for one transient error
    tier:         how far apart replicas are, for the congestion window of the links between them
    """

    buckets: tuple[int, ...] = (96 << 20,)
    chunk_bytes: int = 8 << 20
    slots: int = 8
    retries: int = 3
    tier: Literal["rack", "zone", "building", "region"] = "region"


class JobConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the protocol needs to know about a job. All members share it (``digest``).

    replicas, ranks_per_replica:  R replicas of W ranks
    min_replicas:                 fewer contributors than this do not train
    fan_out:                      children of a rank in the tree of its replica
    streams:                      streams of the data; 0 means 8 x replicas
    samples_per_step:             samples that one contributor trains in a step
    max_stream_lag:               samples that a stream may lag before anyone takes it
    scalars:                      numbers that ride on the vote (global norm, found-inf), summed
    checkpoint_every:             steps between recorded checkpoints; 0 means none
    chain_limit:                  commits that the head keeps at most
    trail:                        heads carry footprints of those before them (``head.Footprint``)
    """

    replicas: int = 12
    ranks_per_replica: int = 64
    min_replicas: int = 1
    job: str = "job"
    initial_digest: str = ""
    fan_out: int = 32
    streams: int = 0
    samples_per_step: int = 8
    max_stream_lag: int = 512
    scalars: int = 1
    divisor: Literal["contributors", "replicas"] = "contributors"
    lr_scaling: Literal["none", "linear", "sqrt"] = "sqrt"
    gradient_retention: Literal["device", "host", "none"] = "device"
    checkpoint_every: int = 0
    checkpoints_kept: int = 3
    chain_limit: int = 256
    trail: bool = True
    ftar: Ftar = Ftar()
    catch_up: CatchUp = CatchUp()
    timeouts: Timeouts = Timeouts()

    @property
    def stream_count(self) -> int:
        return self.streams or 8 * self.replicas

    def digest(self) -> str:
        """Names the configuration: members whose digests differ must not train together."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()


def load(values: Mapping[str, Any]) -> JobConfig:
    """Convert and check ``values``. Raises ConfigError with one line that names value and mend."""
    try:
        config = msgspec.convert(dict(values), JobConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"configuration: {error}") from None
    return check(config)


def check(config: JobConfig) -> JobConfig:
    """Return ``config`` if it can work, else raise ConfigError naming the values and the mend."""
    for complaint in _complaints(config):
        raise ConfigError(complaint)
    return config


_AT_LEAST_ONE = (
    "replicas",
    "ranks_per_replica",
    "min_replicas",
    "fan_out",
    "samples_per_step",
    "max_stream_lag",
    "checkpoints_kept",
)


def _complaints(c: JobConfig) -> Iterator[str]:
    for name in _AT_LEAST_ONE:
        if getattr(c, name) < 1:
            yield f"{name} is {getattr(c, name)}: it must be at least 1"
    if c.fan_out < 2 and c.ranks_per_replica > 2:
        yield f"fan_out is {c.fan_out}: a tree over {c.ranks_per_replica} ranks needs at least 2"
    if c.min_replicas > c.replicas:
        yield f"min_replicas {c.min_replicas} is more than replicas {c.replicas}: lower it"
    if c.streams < 0 or 0 < c.streams < c.replicas:
        yield f"streams {c.streams} is less than replicas {c.replicas}: each replica needs one"
    for name in ("scalars", "checkpoint_every"):
        if getattr(c, name) < 0:
            yield f"{name} is {getattr(c, name)}: it must not be negative"
    if c.chain_limit < 2 * c.catch_up.window:
        yield (
            f"chain_limit {c.chain_limit} is less than twice catch_up.window {c.catch_up.window}: "
            "a catcher could fall off the chain; raise chain_limit"
        )
    yield from _ftar_complaints(c.ftar)
    yield from _catch_up_complaints(c.catch_up)
    yield from _timeout_complaints(c.timeouts)


def _ftar_complaints(f: Ftar) -> Iterator[str]:
    if not f.buckets:
        yield "ftar.buckets is empty: a model has at least one gradient bucket"
    for i, size in enumerate(f.buckets):
        if size < 1:
            yield f"ftar.buckets[{i}] is {size} bytes: it must be at least 1"
    for name in ("chunk_bytes", "slots"):
        if getattr(f, name) < 1:
            yield f"ftar.{name} is {getattr(f, name)}: it must be at least 1"
    if f.retries < 0:
        yield f"ftar.retries is {f.retries}: it must not be negative"


def _catch_up_complaints(c: CatchUp) -> Iterator[str]:
    for name in ("window", "donors", "ranges", "outstanding", "tap_chunks", "fruitless"):
        if getattr(c, name) < 1:
            yield f"catch_up.{name} is {getattr(c, name)}: it must be at least 1"


# (shorter, factor, longer, why): shorter * factor must be less than longer.
_ORDER = (
    ("chunk", 2.0, "round", "a stalled neighbour is named after two chunk time-outs"),
    ("round", 1.0, "lease", "a replica must outlive the collective that it waits for"),
    ("round", 1.0, "close", "a replica gives up before others close its round"),
    ("seal", 1.0, "close", "a replica must learn what its ranks have before others close its round"),
    ("store", 3.0, "lease", "a lease must outlive a few lost answers of the store"),
    ("poll", 2.0, "lease", "a member must see a new head before its lease ends"),
)


def _timeout_complaints(t: Timeouts) -> Iterator[str]:
    for name in t.__struct_fields__:
        value = getattr(t, name)
        if not 0 < value < 1e9:
            yield f"timeouts.{name} is {value} s: it must be above 0 and below 1e9"
    for shorter, factor, longer, why in _ORDER:
        short, long = getattr(t, shorter), getattr(t, longer)
        if short * factor >= long:
            times = "" if factor == 1 else f"{factor:g} x "
            yield (
                f"timeouts.{shorter} {short:g} s is too long for timeouts.{longer} {long:g} s "
                f"({why}): make {times}{shorter} less than {longer}"
            )
