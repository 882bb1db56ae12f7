"""The ranks of a replica in one call, and each by itself: one trace, and one torch call where it can be."""

from __future__ import annotations

import gc
import math

import pytest

torch = pytest.importorskip("torch")

from emulator.device import TensorConfig  # noqa: E402
from emulator.device_pooled import PooledDevice  # noqa: E402
from emulator.device_tensor import TensorDevice  # noqa: E402
from emulator.emulation import Emulation  # noqa: E402
from emulator.tensor_optimizer import update  # noqa: E402
from emulator.tensor_pool import Block, Pool  # noqa: E402
from faultinject import Phase, Schedule  # noqa: E402
from faultinject import vocabulary as v  # noqa: E402
from ftruntime.log.eventlog import EventLog  # noqa: E402
from ftruntime.protocol.geometry import geometry  # noqa: E402

from .devices import BUCKETS, RANGES, corpus, shared  # noqa: E402
from .rings import run_ring  # noqa: E402
from .whole_job import settings_of  # noqa: E402

ROOT = "0" * 32


# -- whole jobs ------------------------------------------------------------------------------------


def pooled(job):
    """As it comes."""


def alone(job):
    """Each rank computes by itself, and every position's ring runs chunk by chunk."""
    job.pooled = False
    job.kernel.runner = job.kernel.run_each


def run(way, faults=(), **changes):
    """``faults``: a list of them, or "table"."""
    named = {"faults": "table", "mtbf_minutes": 1.0} if faults == "table" else {}
    settings = settings_of(fidelity="tensor", **{"bucket_mib": 1, **changes, **named})
    chosen = settings.load_faults() if named else Schedule(job=settings.shape(), faults=tuple(faults))
    log = EventLog(None, keep=100_000)
    job = Emulation(settings, chosen, log)
    way(job)
    job.run()
    log.close()
    return job, log


def compare(faults=(), **changes):
    """The job with its ranks pooled, and its log, once it gave the trace that it gives otherwise."""
    job, log = run(pooled, faults, **changes)
    assert run(alone, faults, **changes)[1].sums() == log.sums(), "a trace of each replica"
    return job, list(log.kept)


def kinds(log):
    return {entry[0] for entry in log}


CRASH = v.Crash(rank=(2, 1), at=50.0)
RETRY = v.Crash(rank=(1, 0), step=3, phase=Phase.FTAR)


@pytest.mark.parametrize(("mode", "seed"), [("tap", 1), ("zeros", 2)])
def test_one_that_comes_back(mode, seed):
    wide = {"ranks_per_replica": 5, "buckets": 2, "jitter": 0.1}
    _, log = compare([CRASH], catch_up=mode, steps=30, seed=seed, **wide)
    assert "installed" in kinds(log)
    assert [e for e in log if e[0] == "applied" and not e[6]], "it applied what others reduced"


@pytest.mark.parametrize("retention", ["device", "host", "none"])
def test_a_round_that_is_tried_again(retention):
    _, log = compare([RETRY], gradient_retention=retention, ranks_per_replica=4)
    assert ("reused" in kinds(log)) == (retention != "none")


def test_a_job_that_goes_back_to_a_checkpoint():
    crashes = [v.Crash(host=(replica, 0), at=170.0) for replica in range(3)]
    _, log = compare(crashes, checkpoint_every=3, steps=15)
    assert [e for e in log if e[0] == "installed" and e[8] == "checkpoint"]


def test_a_gradient_that_is_not_a_number():
    _, log = compare([v.NanGradient(rank=(1, 2), at=30.0)], ranks_per_replica=4, steps=8)
    assert [e for e in log if e[0] == "crash" and "not a number" in e[5]]


def test_a_gradient_with_one_wrong_bit():
    fault = v.CorruptGradient(rank=(1, 2), at=30.0)
    _, log = compare([fault], ranks_per_replica=4, steps=8)
    _, clean = run(pooled, ranks_per_replica=4, steps=8)
    spoilt = {str(e[9:]) for e in log if e[0] == "computed"} - {
        str(e[9:]) for e in clean.kept if e[0] == "computed"
    }
    assert spoilt, "the sums of that position are others from then on"


def test_a_zombie():
    compare([v.Zombie(replica=0, delay=70.0, step=2, phase=Phase.VOTE)], steps=30)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"seed": 2, "catch_up": "zeros", "buckets": 3},
        {"seed": 3, "checkpoint_every": 4, "gradient_retention": "host", "jitter": 0.2},
        {"seed": 4, "gradient_retention": "none", "divisor": "replicas", "slots": 1},
    ],
)
def test_faults_out_of_the_table(changes):
    job, _ = compare("table", replicas=4, ranks_per_replica=5, steps=25, **changes)
    assert job.faults_injected, "a run without a fault shows nothing here"


def test_all_ranks_of_a_replica_are_computed_by_one_call():
    job, _ = run(pooled, ranks_per_replica=8, steps=6)
    for replica in range(3):
        team = job.processes[replica, 3].device.team
        assert 2 * 5 <= team.calls <= 2 * 7, "one for gradients and one for the optimizer, each step"


def test_an_ended_life_leaves_no_states():
    made = []

    def watched(job):
        make = job.make_device
        job.make_device = lambda *which: made.append(make(*which)) or made[-1]

    before = _blocks()
    job, _ = run(watched, [CRASH], steps=30, checkpoint_every=4)
    alive = [process.device for process in job.processes.values()]
    assert len(made) == 8 and len(alive) == 6, "one replica of two ranks was started again"
    for device in made:
        gone = device not in alive
        assert (device.state is None, device in device.team) == (gone, not gone)
    # Beside what trains: the initial states, an update not asked for of each life, and what storage keeps.
    stored = sum(len(shards) for shards in job.storage.values())
    assert len({device.state.block for device in alive}) == 3
    assert _blocks() - before <= 1 + 2 * 3 + stored


def _blocks():
    gc.collect()
    return sum(1 for each in gc.get_objects() if type(each) is Block)


# -- optimizers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize(("ranks", "elements"), [(1, 1), (3, 7), (64, 64), (5, 65), (9, 4099)])
def test_each_row_goes_as_in_torch_optim(name, dtype, ranks, elements):
    """Bit by bit, in whatever place of a vector register an element comes to lie."""
    config = TensorConfig(optimizer=name, weight_decay=0.02)
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    draw = torch.Generator().manual_seed(3)
    params = torch.randn(ranks, elements, generator=draw).to(dtype)
    moments = torch.zeros(ranks, 2 * elements)
    states = torch.cat([torch.zeros(ranks, 1), params, moments], dim=1).to(dtype)
    rows = [row.clone() for row in params]
    theirs = [kind([row], lr=0.01 * 0.5, weight_decay=0.02) for row in rows]
    for _ in range(5):
        grads = torch.randn(ranks, elements, generator=draw).to(dtype) * 100
        for row, optimizer, grad in zip(rows, theirs, grads, strict=True):
            row.grad = grad.clone()
            optimizer.step()
        states = update(config, 0.5, states, grads)
    assert torch.equal(states[:, 1 : 1 + elements], torch.stack(rows))


# -- teams -----------------------------------------------------------------------------------------


def _life(kind, ranks=3, tensor=None):
    parts = shared(tensor=tensor)
    if kind is TensorDevice:
        return [TensorDevice(0, position, parts, ROOT) for position in range(ranks)]
    team = Pool(parts, ranks).team(0, fresh=True)
    return [PooledDevice(team, 0, position, parts, ROOT) for position in range(ranks)]


def _apply(device, round, lineage, text):
    shape = geometry(BUCKETS, 1, 16, 2)
    device.launch(RANGES, corpus(text, digest=len(text)), False, 0.0)
    device.computed()
    device.exchange(round, shape, 0)
    device.apply(round, lineage, 1, 1.0, device.measure(round), 0.0)
    return device.digest()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_ranks_that_part_and_meet_again(dtype):
    """One reads other samples, one is a step behind, one steps alone: each has its own numbers."""

    def digests(kind):
        a, b, c = _life(kind, tensor=TensorConfig(dtype=dtype, max_norm=5.0))
        found = [_apply(a, 1, "x", b"abc"), _apply(b, 1, "x", b"abcd")]
        found += [_apply(a, 2, "y", b"e"), _apply(c, 1, "x", b"abc"), _apply(c, 2, "y", b"e")]
        found += [_apply(b, 2, "y", b"e")]
        found += [_apply(device, 3, "z", b"fg") for device in (c, a, b)]
        return found

    assert digests(PooledDevice) == digests(TensorDevice)


def test_rows_with_unequal_steps_of_the_optimizer_are_not_mixed():
    """A rank whose update was skipped is of the same lineage, and its bias is corrected for less."""

    def digests(kind):
        a, b = _life(kind, 2)
        shape = geometry(BUCKETS, 1, 16, 2)
        for device, scalars in ((a, (1.0,)), (b, (math.inf,))):
            device.launch(RANGES, corpus(), False, 0.0)
            device.exchange(1, shape, 0)
            device.apply(1, "x", 1, 1.0, scalars, 0.0)
        for device in (a, b):
            device.launch(RANGES, corpus(), False, 0.0)
            device.exchange(2, shape, 0)
        for device in (a, b):
            device.apply(2, "y", 1, 1.0, (1.0,), 0.0)
        return [a.digest(), b.digest()]

    assert digests(PooledDevice) == digests(TensorDevice)


def test_a_fault_of_one_rank_spoils_no_other():
    def gradients(kind):
        a, b, c = _life(kind)
        a.flip_bit(50)
        c.poison()
        for device in (a, b, c):
            device.launch(RANGES, corpus(), False, 0.0)
        return [str(device.grads_for_log()) for device in (a, b, c)]

    assert gradients(PooledDevice) == gradients(TensorDevice)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_what_is_worked_out_is_as_if_chunk_by_chunk(members):
    """Floating point: the order of the ring matters to the last bit, and is kept."""
    shape = geometry(BUCKETS, members, 16, 2)
    grads = [torch.randn(64 * len(BUCKETS), dtype=torch.float64) for _ in range(members)]

    def exchanges():
        devices = [TensorDevice(r, 0, shared(), ROOT) for r in range(members)]
        return [d._exchange(shape, i, grads[i], True) for i, d in enumerate(devices)]

    one_by_one, worked_out, in_parts = exchanges(), exchanges(), exchanges()
    sent = run_ring(one_by_one, shape)
    shares = worked_out[0].shares(shape)
    for i, grad in enumerate(grads):
        shares.put(i, grad)
    for (i, number), data in sent.items():
        assert torch.equal(shares.passed(i, number), data)
    for a, b, c in zip(one_by_one, worked_out, in_parts, strict=True):
        b.finish(shape.finished_total, shares.totals())
        for count in range(1, shape.finished_total + 1):
            c.finish(count, shares.totals())
            assert c.done == count
        for other in (b, c):
            assert other.complete and torch.equal(a.reduced(), other.reduced())
            assert all(torch.equal(a.finished(i), other.finished(i)) for i in range(shape.finished_total))
