"""The mock GPU: arithmetic, memory, streams, states and faults."""

from __future__ import annotations

import struct

import msgspec
import pytest

from emulator.compute import ComputeConfig, ComputeModel, Stream
from emulator.device import FingerprintDevice
from emulator.hardware import MemoryConfig
from emulator.memory import Memory, OutOfMemory
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ledger import SampleRange
from ftruntime.seams import Device

from .devices import BUCKETS, GRADS, MEMORY, RANGES, TIMES, corpus, shared
from .rings import run_ring, run_tap

M = (1 << 64) - 1
ROOT = "0" * 32
GEOMETRY = geometry(BUCKETS, 2, 16, 2)


def _mix(x):
    """As the checker has it: written down again, from the definition."""
    x &= M
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & M
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & M
    return x ^ x >> 31


def _device(replica=0, position=5, **changes):
    return FingerprintDevice(replica, position, shared(**changes), ROOT)


def _pair(tapped=False, **changes):
    devices = [_device(replica, **changes) for replica in (0, 1)]
    for number, device in enumerate(devices):
        device.launch(RANGES, corpus(digest=number), False, 0.0)
        device.computed()
    run_ring([d.exchange(1, GEOMETRY, i, tapped) for i, d in enumerate(devices)], GEOMETRY)
    return devices


def test_it_is_a_device():
    device: Device = _device()
    assert (device.step, device.lineage) == (0, ROOT)


def test_gradients_and_states_are_those_of_the_definition():
    devices = _pair()
    state = _mix(7 * 0x9E3779B97F4A7C15 + 5 + 1)
    assert all(d.digest() == state for d in devices)
    grads = [
        [
            _mix(state ^ _mix(digest + 5 * 0x9E3779B97F4A7C15 + b * 0xD1B54A32D192ED03 + 1))
            for b in range(len(BUCKETS))
        ]
        for digest in (0, 1)
    ]
    assert [d.grads_for_log() for d in devices] == grads
    reduced = [(a + b) & M for a, b in zip(*grads, strict=True)]
    assert [d.reduced_for_log(1) for d in devices] == [reduced, reduced]
    scalars = devices[0].measure(1)
    assert scalars == (float(reduced[1] >> 40),)
    bits = [struct.unpack("<Q", struct.pack("<d", x))[0] for x in (0.5, scalars[0])]
    after = _mix(state ^ _mix(reduced[0] + 3 * reduced[1] + 2 * 0x9E3779B97F4A7C15 + sum(bits)))
    for device in devices:
        device.apply(1, "one", 2, 0.5, scalars, 10.0)
        assert (device.digest(), device.step, device.lineage) == (after, 1, "one")


def test_a_learner_applies_to_the_same_bits():
    devices = _pair(tapped=True)
    learner = _device(2)
    run_tap(devices[1].buffer(1), learner.hold(1, GEOMETRY, 1), GEOMETRY)
    for device in (*devices, learner):
        device.apply(1, "one", 2, 1.0, (3.0,), 10.0)
    assert len({d.digest() for d in (*devices, learner)}) == 1
    assert devices[0].buffer(1) is not None, "learners may still ask"
    assert learner.buffer(1) is None


@pytest.mark.parametrize(("divisor", "lr", "scalars"), [(3, 1.0, (1.0,)), (2, 0.5, (1.0,)), (2, 1.0, (2.0,))])
def test_every_number_of_the_update_matters(divisor, lr, scalars):
    one, other = _pair()
    one.apply(1, "one", 2, 1.0, (1.0,), 0.0)
    other.apply(1, "one", divisor, lr, scalars, 0.0)
    assert one.digest() != other.digest()


def test_buckets_come_spread_over_the_backward_pass():
    assert _device().launch(RANGES, corpus(), False, 10.0).ready == (12.0, 13.0)


def test_a_retry_reuses_gradients_of_equal_base_and_ranges_only():
    device = _pair()[0]
    before = device.grads_for_log()
    device.drop(1)
    again = device.launch(RANGES, corpus(digest=5), True, 20.0)
    assert (again.reused, again.ready, device.grads_for_log()) == (True, (20.0, 20.0), before)
    other = (SampleRange(0, 2, 2),)
    assert not device.can_reuse(other)
    assert not device.launch(other, corpus(digest=5), True, 20.0).reused


def test_without_retention_nothing_is_reused_and_with_host_it_is_fetched():
    device = _pair(retention="none")[0]
    device.drop(1)
    assert not device.can_reuse(RANGES) and device.hbm.used == _device().hbm.used
    device = _pair(retention="host")[0]
    device.drop(1)
    assert device.launch(RANGES, corpus(), True, 20.0).ready[0] == 20.0 + GRADS / 100.0


def test_gradients_that_were_aborted_are_not_retained():
    device = _device()
    device.launch(RANGES, corpus(), False, 0.0)
    device.abort(1.0)
    assert not device.can_reuse(RANGES)
    assert device.launch(RANGES, corpus(), True, 1.0).ready == (3.0, 4.0), "the stream is free again"


@pytest.mark.parametrize("retention", ["device", "host", "none"])
def test_what_is_taken_is_what_a_buffer_has_and_all_comes_back(retention):
    device = _device(retention=retention)
    empty, state = device.hbm.used, MEMORY.state
    retained = GRADS * (retention == "host")
    steps = [  # what is done, and how many bytes it takes on the device and on the host
        (lambda: device.launch(RANGES, corpus(), False, 0.0), GRADS + MEMORY.activations, retained),
        (lambda: device.exchange(1, geometry(BUCKETS, 1, 16, 2), 0, True), GRADS, 0),
        (device.computed, -MEMORY.activations, 0),
        (lambda: device.hold(2, GEOMETRY, 1), GRADS, 0),
        (lambda: device.freeze(ROOT, 0.0), 0, state),
        (lambda: device.freeze(ROOT, 0.0), 0, 0),
        (lambda: device.restore("x", 1, 0.0), 0, state),
        (lambda: device.apply(1, "one", 1, 1.0, (1.0,), 0.0), -GRADS, -retained),
        (lambda: device.drop(2), -GRADS, 0),
        (lambda: device.release(ROOT), 0, -state),
        (lambda: device.unstage("x"), 0, -state),
    ]
    for step, hbm, host in steps:
        before = device.hbm.used, device.host.used
        step()
        assert (device.hbm.used - before[0], device.host.used - before[1]) == (hbm, host)
    assert device.resources() == {"buffers": 0, "held": 0, "frozen": 0, "staged": 0}
    assert (device.hbm.used, device.host.used) == (empty + GRADS, 0), "what learners may ask for is left"


@pytest.mark.parametrize(
    ("where", "name", "limit", "act"),
    [
        ("hbm", "grads", 400, lambda d: d.launch(RANGES, corpus(), False, 0.0)),
        ("hbm", "activations", 900, lambda d: d.launch(RANGES, corpus(), False, 0.0)),
        ("host", "retained", 100, lambda d: d.launch(RANGES, corpus(), False, 0.0)),
        ("hbm", "held", 400, lambda d: d.hold(1, GEOMETRY, 0)),
        ("host", "frozen", 299, lambda d: d.freeze(ROOT, 0.0)),
        ("host", "staged", 299, lambda d: d.stage("x", 0, (0, 0))),
    ],
)
def test_memory_beyond_the_limit_fails_with_the_numbers_and_changes_nothing(where, name, limit, act):
    limits = msgspec.structs.replace(MEMORY, **{where: limit})
    device = _device(memory=limits, retention="host" if name == "retained" else "device")
    before = (device.hbm.used, device.host.used)
    with pytest.raises(
        OutOfMemory, match=f"{name} wants .* of {limit:,} are in use.*memory.{where}"
    ) as caught:
        act(device)
    assert (caught.value.where, caught.value.name, caught.value.limit) == (where, name, limit)
    assert (device.hbm.used, device.host.used) == before


def test_a_state_too_large_for_the_device_is_refused_at_the_start():
    with pytest.raises(OutOfMemory, match="optimizer wants 200"):
        _device(memory=msgspec.structs.replace(MEMORY, hbm=250))


def test_memory_remembers_its_peak():
    memory = Memory("hbm", 10)
    memory.take("a", 7)
    memory.give(7)
    assert (memory.used, memory.peak) == (0, 7)
    with pytest.raises(AssertionError):
        memory.give(1)


def test_a_state_travels_in_ranges():
    donor, catcher = _pair()[0], _device(2, seed=8)
    donor.freeze(ROOT, 0.0)
    donor.apply(1, "one", 2, 1.0, (1.0,), 0.0)
    for index in (2, 0, 1):
        data = donor.range_data(ROOT, index)
        assert catcher.intact(index, data)
        catcher.stage(ROOT, index, data)
    assert catcher.digest() != donor.digest()
    catcher.install(0, ROOT, 0.0)
    assert catcher.digest() == _device().digest(), "the frozen copy is the state before the update"
    donor.release(ROOT)
    assert donor.range_data(ROOT, 0) is None


def test_a_range_that_was_damaged_or_put_elsewhere_is_not_intact():
    donor = _device()
    donor.freeze(ROOT, 0.0)
    content, checksum = donor.range_data(ROOT, 0)
    assert not donor.intact(0, (content ^ 1, checksum))
    assert not donor.intact(1, (content, checksum))


def test_ranges_of_two_states_make_a_state_that_nobody_has():
    first, second, catcher = _device(0), _device(0, seed=8), _device(2)
    for device in (first, second):
        device.freeze(ROOT, 0.0)
    for index, donor in enumerate((first, second, first)):
        catcher.stage(ROOT, index, donor.range_data(ROOT, index))
    catcher.install(0, ROOT, 0.0)
    assert catcher.digest() not in (first.digest(), second.digest())


def test_an_incomplete_state_is_never_installed():
    device = _device()
    device.stage(ROOT, 0, (1, 2))
    with pytest.raises(AssertionError, match="all of its ranges"):
        device.install(0, ROOT, 0.0)


def test_a_snapshot_restores_the_state():
    device, other = _pair()[0], _device(3, seed=8)
    other.restore(ROOT, device.snapshot(), 0.0)
    other.install(0, ROOT, 0.0)
    assert other.digest() == device.digest()


def test_streams_run_in_order_and_wait_for_events():
    stream, other = Stream(), Stream()
    assert (stream.enqueue(1.0, 2.0), stream.enqueue(1.0, 2.0), stream.enqueue(9.0, 1.0)) == (3.0, 5.0, 10.0)
    other.wait(stream.free)
    assert other.enqueue(0.0, 1.0) == 11.0


def test_an_update_waits_for_the_copy_of_what_it_changes():
    device = _pair()[0]
    copied = device.freeze(ROOT, 10.0)
    assert copied == 10.0 + 300 / 100.0
    assert device.apply(1, "one", 2, 1.0, (1.0,), 10.0) == copied + TIMES.apply_s


def test_a_copy_waits_for_the_update_before_it():
    device = _pair()[0]
    applied = device.apply(1, "one", 2, 1.0, (1.0,), 10.0)
    assert device.freeze("one", 10.0) == applied + 300 / 100.0


def test_a_slow_device_takes_longer_until_it_is_mended():
    device = _device()
    device.slow_down(3.0)
    assert device.launch(RANGES, corpus(), False, 0.0).ready == (6.0, 9.0)
    assert device.freeze(ROOT, 0.0) == 3.0 * MEMORY.state / 100.0
    device.slow_down(1.0)
    assert device.warm_up(10.0) == 19.0


def test_a_flipped_bit_spoils_one_gradient_silently():
    device = _device()
    device.launch(RANGES, corpus(), False, 0.0)
    good = device.grads_for_log()
    device.flip_bit(63)
    assert device.launch(RANGES, corpus(), False, 0.0).finite
    assert [a ^ b for a, b in zip(good, device.grads_for_log(), strict=True)] == [1 << 63, 0]
    device.launch(RANGES, corpus(), False, 0.0)
    assert device.grads_for_log() == good


def test_a_gradient_that_is_not_a_number_is_seen_once():
    device = _device()
    device.poison()
    assert [device.launch(RANGES, corpus(), False, 0.0).finite for _ in range(2)] == [False, True]


def test_jitter_is_drawn_by_seed_replica_and_step_within_its_share():
    model = ComputeModel(ComputeConfig(jitter=0.1), 1, 3)
    times = {(r, s): model.ready(r, s, 0.0, 1.0)[0] for r in range(6) for s in range(6)}
    assert len(set(times.values())) == 36
    assert all(18 * 0.9 <= t <= 18 * 1.1 for t in times.values())
    assert times[2, 3] == ComputeModel(ComputeConfig(jitter=0.1), 1, 3).ready(2, 3, 0.0, 1.0)[0]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (ComputeConfig(jitter=1.0), "compute.jitter is 1.0"),
        (ComputeConfig(forward_s=-1.0), "compute.forward_s is -1.0"),
        (ComputeConfig(copy_bps=0.0), "compute.copy_bps is 0.0; it must be above 0"),
        (MemoryConfig(params=0), "memory.params is 0"),
    ],
)
def test_configurations_that_cannot_be_are_refused(config, named):
    with pytest.raises(ConfigError, match=named):
        config.check()
