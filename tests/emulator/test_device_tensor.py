"""Tensor fidelity: the same device, with real numbers, alone and in a team."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from emulator.device import TensorConfig  # noqa: E402
from emulator.device_pooled import PooledDevice  # noqa: E402
from emulator.device_tensor import TensorDevice  # noqa: E402
from emulator.tensor_pool import Pool  # noqa: E402
from ftruntime.protocol.geometry import geometry  # noqa: E402

from .devices import BUCKETS, RANGES, corpus, shared  # noqa: E402
from .rings import run_ring, run_tap  # noqa: E402

ROOT = "0" * 32
CONFIGS = [TensorConfig(dtype=d, optimizer=o) for d in ("float64", "float32") for o in ("adamw", "sgd")]


@pytest.fixture(params=["alone", "pooled"])
def make(request):
    """Makes a device; in a pool it is position 3 of a life's four."""

    def device(replica=0, config=None, seed=7):
        parts = shared(tensor=config or TensorConfig(), seed=seed)
        if request.param == "alone":
            return TensorDevice(replica, 3, parts, ROOT)
        team = Pool(parts, 4).team(replica, fresh=True)
        return [PooledDevice(team, replica, position, parts, ROOT) for position in range(4)][3]

    return device


def _params(device):
    state = device.snapshot()
    return getattr(state, "tensor", state)[1:].chunk(3)[0].clone()


def _step(devices, round=1, learner=None, tokens=None):
    """One committed round of ``devices`` and, by tap, of ``learner``; returns the reduced buckets."""
    shape = geometry(BUCKETS, len(devices), 16, 2)
    for number, device in enumerate(devices):
        device.launch(RANGES, corpus(tokens or b"abc" * (number + 1)), False, 0.0)
        device.computed()
    run_ring([d.exchange(round, shape, i, True) for i, d in enumerate(devices)], shape)
    if learner is not None:
        run_tap(devices[-1].buffer(round), learner.hold(round, shape, len(devices) - 1), shape)
    everyone = [*devices, learner] if learner else devices
    reduced = [d.reduced_for_log(round) for d in everyone]
    grads = [d.grads_for_log() for d in devices]
    scalars = devices[0].measure(round)
    for device in everyone:
        device.apply(round, f"after {round}", len(devices), 1.0, scalars, 0.0)
    return grads, reduced


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("members", [1, 2, 3])
def test_all_members_and_learners_get_the_same_bits(make, config, members):
    devices, learner = [make(r, config) for r in range(members)], make(9, config)
    before = learner.digest()
    for round in (1, 2, 3):
        grads, reduced = _step(devices, round, learner)
        assert all(r == reduced[0] for r in reduced)
        for bucket in range(len(BUCKETS)):
            columns = zip(*(g[bucket] for g in grads), strict=True)
            assert reduced[0][bucket] == pytest.approx([math.fsum(c) for c in columns], rel=1e-5)
        assert len({d.digest() for d in (*devices, learner)}) == 1
    assert before != learner.digest()


def test_adamw_is_that_of_torch(make):
    device = make()
    params = _params(device)
    mine = torch.optim.AdamW([params], lr=0.01, weight_decay=0.01)
    for round in (1, 2, 3):
        _, reduced = _step([device], round)
        params.grad = torch.cat([torch.tensor(b, dtype=torch.float64) for b in reduced[0]])
        mine.step()
    assert torch.equal(_params(device), params)


def test_it_learns(make):
    device = make(config=TensorConfig(lr=0.05, weight_decay=0.0))

    def loss():
        device.launch(RANGES, corpus(b"aab"), False, 0.0)
        device.computed()
        return sum(x * x for bucket in device.grads_for_log() for x in bucket)

    start = loss()
    for round in range(1, 60):
        _step([device], round, tokens=b"aab")
    assert loss() < start / 100


def test_clipping_bounds_the_gradient(make):
    free, tight = (
        make(config=TensorConfig(optimizer="sgd", weight_decay=0.0)),
        make(config=TensorConfig(optimizer="sgd", weight_decay=0.0, max_norm=1e-3)),
    )
    start = _params(free)
    for device in (free, tight):
        _step([device])
    moved = [float((_params(d) - start).norm()) for d in (free, tight)]
    assert moved[1] == pytest.approx(0.01 * 1e-3) and moved[0] > 10 * moved[1]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_state_travels_in_ranges(make, config):
    donor, catcher = make(0, config), make(1, config, seed=8)
    old = donor.digest()
    donor.freeze(ROOT, 0.0)
    _step([donor])
    for index in range(3):
        data = donor.range_data(ROOT, index)
        assert catcher.intact(index, data)
        assert not catcher.intact(index, (data[0] + 1.0, data[1]))
        catcher.stage(ROOT, index, data)
    catcher.install(0, ROOT, 0.0)
    assert catcher.digest() == old != donor.digest()


def test_a_missing_chunk_is_not_a_number_and_skips_the_update(make):
    device, shape = make(), geometry(BUCKETS, 2, 16, 2)
    other = make(1)
    for each in (device, other):
        each.launch(RANGES, corpus(), False, 0.0)
    rings = [each.exchange(0, shape, index) for index, each in enumerate((device, other))]
    run_ring(rings, shape)
    held = device.hold(1, shape, 0)
    for index in range(1, shape.finished_total):
        held.store(index, rings[0].finished(index))
    scalars = device.measure(1)
    before = device.digest()
    assert math.isnan(scalars[0])
    device.apply(1, "one", 2, 1.0, scalars, 0.0)
    assert device.digest() == before


def test_faults_of_gradients_are_in_the_numbers(make):
    device = make()
    device.launch(RANGES, corpus(), False, 0.0)
    good = device.grads_for_log()
    device.flip_bit(62)
    device.launch(RANGES, corpus(), False, 0.0)
    spoilt = device.grads_for_log()
    assert spoilt[0][0] != good[0][0] and spoilt[0][1:] == good[0][1:] and spoilt[1] == good[1]
    device.poison()
    assert not device.launch(RANGES, corpus(), False, 0.0).finite
    assert math.isnan(device.grads_for_log()[0][0])
