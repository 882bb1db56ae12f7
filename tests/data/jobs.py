"""A small job for the tests of this folder: a source that tells what was read, and its plans."""

from __future__ import annotations

from ftruntime.data import LedgerSampler, StatefulLoader
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.ledger import assign
from ftruntime.protocol.plan import Base, Durations, Kind, Plan

REPLICAS, STREAMS, SAMPLES, LAG = 3, 9, 2, 6


class ToldSource:
    """Tokens that name their sample; remembers every read, and fails for those in ``broken``."""

    def __init__(self):
        self.reads = []
        self.broken = set()

    def tokens(self, stream, index):
        self.reads.append((stream, index))
        if (stream, index) in self.broken:
            raise OSError(f"sample {stream}/{index} cannot be read")
        return f"{stream}/{index}".encode()


def sample_of(tokens):
    stream, index = tokens.decode().split("/")
    return int(stream), int(index)


def make_loader(replica, source, ledger=(0,) * STREAMS, **options):
    sampler = LedgerSampler(
        ledger, replica=replica, replicas=REPLICAS, samples_per_step=SAMPLES, max_stream_lag=LAG
    )
    return StatefulLoader(source, sampler, **options)


def make_plan(round, step, ledger, contributors):
    """A plan of kind train on ``ledger``; lineage is left out, loaders do not read it."""
    ranges = assign(ledger, contributors, REPLICAS, SAMPLES, LAG)
    return Plan(
        round=round,
        kind=Kind.TRAIN,
        base=Base(step, "", ledger),
        contributors=tuple(MemberId(replica, 1) for replica in ranges),
        ranges=tuple(ranges.values()),
        catchers=(),
        divisor=len(ranges),
        lr_factor=1.0,
        durations=Durations(close_after=1.0),
    )
