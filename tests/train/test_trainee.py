"""A torch model as the driver sees it: buckets, bytes of the state, updates, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ftruntime.protocol.errors import ConfigError  # noqa: E402
from ftruntime.train import groups as groups_file  # noqa: E402
from ftruntime.train.environment import environment  # noqa: E402
from ftruntime.train.trainee import TorchTrainee  # noqa: E402

ENVIRONMENT = {
    "FTHSDP_REPLICA": "1",
    "FTHSDP_REPLICAS": "3",
    "FTHSDP_STORE": "127.0.0.1:29600",
    "FTHSDP_TOKEN": "a token of the tests, long enough",
}


def make(optimizer=torch.optim.AdamW, scheduled=True, **options):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    chosen = optimizer(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(chosen, 0.5) if scheduled else None
    return TorchTrainee(model, chosen, scheduler, **options)


def sums_of(trainee, seed=0):
    draw = np.random.default_rng(seed)
    return [
        draw.standard_normal(group.elements).astype(np.float32).view(np.uint8) for group in trainee.groups
    ]


def plan(divisor=4, lr_factor=1.0):
    return SimpleNamespace(divisor=divisor, lr_factor=lr_factor)


def norm_of(sums):
    return (sum(float(np.square(block.view(np.float32).astype(np.float64)).sum()) for block in sums),)


def state_of(trainee):
    return b"".join(bytes(view) for view in trainee.state())


def reference(optimizer, sums, steps, divisor, factor=1.0):
    """The same updates by torch alone."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    chosen = optimizer(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(chosen, 0.5)
    flat = torch.from_numpy(np.concatenate([block.view(np.float32) for block in sums]))
    for _ in range(steps):
        start = 0
        for param in reversed(list(model.parameters())):
            param.grad = (flat[start : start + param.numel()] * (factor / divisor)).view(param.shape).clone()
            start += param.numel()
        chosen.step()
        scheduler.step()
    return model


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_an_update_is_what_the_optimizer_makes_of_the_mean(optimizer):
    trainee = make(optimizer)
    sums = sums_of(trainee)
    for _ in range(3):
        trainee.apply(sums, plan(), norm_of(sums))
    expected = reference(optimizer, sums, 3, 4)
    for got, wanted in zip(trainee.model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(got, wanted)


def test_a_profile_shows_what_the_training_thread_is_at():
    trainee = make()
    sums = sums_of(trainee)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        trainee.apply(sums, plan(), norm_of(sums))
        trainee.installed()
    names = {event.key for event in profile.key_averages()}
    assert {"fthsdp.apply", "fthsdp.install"} <= names


def test_making_the_optimizers_state_changes_nothing():
    assert state_of(make()) == state_of(make())
    torch.manual_seed(3)
    fresh = torch.nn.Linear(8, 16)
    assert torch.equal(next(iter(make().model.parameters())), fresh.weight)


def test_a_state_that_was_installed_goes_on_to_the_bit():
    one, other = make(), make()
    sums = sums_of(one)
    for _ in range(2):
        one.apply(sums, plan(), norm_of(sums))
    assert state_of(one) != state_of(other)
    for view, source in zip(other.state(), one.state(), strict=True):
        view[:] = source
    other.installed()
    assert other.optimizer.param_groups[0]["lr"] == one.optimizer.param_groups[0]["lr"] == 0.025
    for trainee in (one, other):
        trainee.apply(sums, plan(), norm_of(sums))
    assert state_of(one) == state_of(other)


def test_a_norm_that_is_not_finite_skips_the_update_and_not_the_schedule():
    trainee = make()
    before = [p.detach().clone() for p in trainee.model.parameters()]
    trainee.apply(sums_of(trainee), plan(), (float("nan"),))
    assert all(torch.equal(a, b) for a, b in zip(before, trainee.model.parameters(), strict=True))
    assert trainee.optimizer.param_groups[0]["lr"] == 0.05


def test_gradients_are_clipped_to_the_norm_over_all():
    trainee = make(torch.optim.SGD, max_norm=0.5)
    sums = sums_of(trainee)
    (square,) = norm_of(sums)
    trainee.apply(sums, plan(), (square,))
    expected = reference(torch.optim.SGD, sums, 1, 4, 0.5 / (square**0.5 / 4 + 1e-6))
    for got, wanted in zip(trainee.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted)


def test_the_plans_factor_scales_one_step_only():
    trainee, still = make(torch.optim.SGD), make(torch.optim.SGD)
    sums = sums_of(trainee)
    trainee.apply(sums, plan(lr_factor=0.0), norm_of(sums))
    pairs = zip(trainee.model.parameters(), still.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert trainee.optimizer.param_groups[0]["lr"] == 0.05  # by the schedule alone


def test_a_plain_model_is_cut_into_buckets(monkeypatch):
    monkeypatch.setattr(groups_file, "PLAIN_BYTES", 100)
    groups = make().groups
    assert [group.elements for group in groups] == [68, 144]
    assert [piece.start for piece in groups[0].pieces] == [0, 4]


def test_what_cannot_be_trained_is_refused_with_the_reason():
    optimizer = torch.optim.SGD
    for model, reason in [
        (torch.nn.Sequential(torch.nn.BatchNorm1d(4)), "module 0 keeps statistics"),
        (torch.nn.Linear(2, 2, dtype=torch.bfloat16), "parameter weight is torch.bfloat16"),
        (torch.nn.Linear(2, 2, device="meta"), "parameter weight is on meta"),
    ]:
        with pytest.raises(ConfigError, match=reason):
            TorchTrainee(model, optimizer(model.parameters(), lr=0.1))


def test_state_dicts_that_are_too_large_are_refused():
    class Large:
        def state_dict(self):
            return {"content": "x" * 70_000}

        def load_state_dict(self, state):
            pass

    with pytest.raises(ConfigError, match="are too large"):
        make(others=[Large()])


def test_the_environment_of_torchrun_is_understood():
    found = environment({**ENVIRONMENT, "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "4"})
    assert (found.replica, found.replicas, found.position, found.ranks, found.life) == (1, 3, 1, 2, 4)
    assert str(found.store) == "127.0.0.1:29600"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"FTHSDP_REPLICA": ""}, "FTHSDP_REPLICA is not set; for example"),
        ({"FTHSDP_REPLICA": "3"}, "it must be 0 to FTHSDP_REPLICAS - 1, 2"),
        ({"FTHSDP_REPLICAS": "three"}, "'three': it must be a number"),
        ({"FTHSDP_STORE": "somewhere"}, "give it as HOST:PORT"),
    ],
)
def test_a_wrong_environment_is_one_clear_line(change, reason):
    with pytest.raises(ConfigError, match=reason):
        environment({**ENVIRONMENT, **change})
