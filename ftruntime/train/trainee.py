"""A torch model and its optimizer, as the driver sees them: bytes of a state, and a step (docs/driver.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from ftruntime.driver.memory import Bytes
from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.plan import Plan

from .groups import Group, groups_of, local

EXTRAS = 64 << 10  # bytes for what is not a tensor: state_dicts of schedulers and the like


class Stateful(Protocol):
    """Anything else that is part of the state, as a scheduler is. Its ``state_dict`` holds plain values."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class TorchTrainee:
    """``model`` under ``optimizer``; ``scheduler`` steps after each update.

    max_norm:  gradients are clipped to this global norm, over all ranks and replicas; 0: never
    tensors:   of the state: parameters first, in the model's order, then the optimizer's
    The state is parameters, the optimizer's tensors, its groups' learning rates, and what ``others`` hold.
    Raises ConfigError for what cannot be trained, with the reason.
    """

    dtype = "float32"

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any = None,
        others: Sequence[Stateful] = (),
        max_norm: float = 0.0,
    ) -> None:
        self.model, self.optimizer, self._scheduler = model, optimizer, scheduler
        self._others = [*others, *([scheduler] if scheduler is not None else [])]
        self._max_norm = max_norm
        self.groups: list[Group] = groups_of(model)
        self._params = [piece.param for group in self.groups for piece in group.pieces]
        self._make_optimizer_state()
        self._extras = np.zeros(EXTRAS, np.uint8)
        self.tensors = [local(p) for p in model.parameters()] + self._optimizer_tensors()
        self._pack()

    # -- the state -----------------------------------------------------------------------------

    def _make_optimizer_state(self) -> None:
        """Optimizers make their tensors at the first step: take one that changes nothing, and set them to
        zero, which is what they begin with. So all states have one size from the beginning."""
        kept = [local(param).clone() for param in self._params]
        for param in self._params:
            param.grad = torch.zeros_like(param)
        self.optimizer.step()
        for param, before in zip(self._params, kept, strict=True):
            local(param).copy_(before)
            param.grad = None
        for tensor in self._optimizer_tensors():
            tensor.zero_()

    def _optimizer_tensors(self) -> list[Tensor]:
        found = []
        for param in self._params:
            state = self.optimizer.state.get(param, {})
            found += [local(state[key]) for key in sorted(state) if isinstance(state[key], Tensor)]
        return found

    def state(self) -> list[memoryview]:
        """Of the tensors and of the rest, in a fixed order."""
        arrays = [tensor.reshape(-1).view(torch.uint8).numpy() for tensor in self.tensors]
        return [memoryview(array) for array in (*arrays, self._extras) if len(array)]

    def _pack(self) -> None:
        """Write what is not a tensor into its bytes."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        content = msgspec.json.encode([rates, [other.state_dict() for other in self._others]])
        if len(content) + 4 > EXTRAS:
            raise ConfigError(f"state_dicts of {len(content)} bytes are too large: at most {EXTRAS - 4} fit")
        self._extras[:] = 0
        packed = len(content).to_bytes(4, "little") + content
        self._extras[: len(packed)] = np.frombuffer(packed, np.uint8)

    @record_function("fthsdp.install")
    def installed(self) -> None:
        """Schedulers and learning rates follow the bytes that were installed."""
        length = int.from_bytes(self._extras[:4].tobytes(), "little")
        rates, states = msgspec.json.decode(self._extras[4 : 4 + length].tobytes())
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        for other, state in zip(self._others, states, strict=True):
            other.load_state_dict(state)

    # -- a step --------------------------------------------------------------------------------

    @record_function("fthsdp.apply")
    def apply(self, sums: Sequence[Bytes], plan: Plan, scalars: Sequence[float]) -> None:
        """One update from the sums. A norm that is not finite skips the optimizer, at every rank alike."""
        norm = math.sqrt(scalars[0]) / plan.divisor if math.isfinite(scalars[0]) else math.inf
        if math.isfinite(norm):
            self._set_gradients(sums, self._clip(norm) / plan.divisor)
            self._step(plan.lr_factor)
        if self._scheduler is not None:
            self._scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._pack()

    def _clip(self, norm: float) -> float:
        return min(1.0, self._max_norm / (norm + 1e-6)) if self._max_norm else 1.0

    def _set_gradients(self, sums: Sequence[Bytes], factor: float) -> None:
        for group, block in zip(self.groups, sums, strict=True):
            flat = torch.from_numpy(block.view(np.float32))
            for param, start, numel in group.pieces:
                if param.grad is None:
                    param.grad = torch.zeros_like(param)
                grad = local(param.grad)
                torch.mul(flat[start : start + numel].view(grad.shape), factor, out=grad)

    def _step(self, lr_factor: float) -> None:
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * lr_factor
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    @record_function("fthsdp.warm-up")
    def warm_up(self) -> None:
        """Connections are what takes time on a CPU; there is nothing to compile."""
