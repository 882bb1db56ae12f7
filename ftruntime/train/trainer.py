"""What a training script uses: a loop that hides quorum, catch-up, vote and retry (docs/driver.md).

    trainer = Trainer(model, optimizer, source, samples_per_step=8)
    for step in trainer.steps(until=1000):
        for samples in step.batches(of=4):
            loss(model, samples).backward()

The body computes gradients and nothing else. It may be run again for a step whose round failed and whose
data or state changed; it is not run again when its gradients are still good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from ftruntime.data import SampleSource, corpus_digest, sample_ids
from ftruntime.driver import Driver, Settings, Work
from ftruntime.protocol.config import Ftar, JobConfig, check
from ftruntime.protocol.errors import ConfigError

from .environment import Environment, environment
from .groups import Group, local
from .trainee import Stateful, TorchTrainee

CHUNK_BYTES = 1 << 20


class Step:
    """One attempt at a step: ``number`` (from 0), and this rank's ``samples``."""

    def __init__(self, number: int, samples: list[bytes], last: Callable[[bool], object]) -> None:
        self.number, self.samples, self._last = number, samples, last

    def batches(self, of: int) -> Iterator[list[bytes]]:
        """The samples, ``of`` at a time. Gradients of all are summed; with the last batch FTAR begins to
        reduce them while the backward pass goes on."""
        for start in range(0, len(self.samples), of):
            self._last(start + of >= len(self.samples))
            yield self.samples[start : start + of]


class Trainer:
    """Trains ``model`` with ``optimizer`` on ``source``, as one rank of one replica of a job.

    samples_per_step:  samples that a replica trains in a step, all of its ranks together
    config:            more of ``JobConfig``, which all replicas must share: ``timeouts``, ``lr_scaling`` ...
    audit:             write digests and sums for the checker into FTHSDP_JOURNALS; for small models
    The loss must be a sum over samples: what is applied is divided by the samples of all replicas.
    Raises ConfigError, in one line, for anything that cannot work.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        source: SampleSource,
        *,
        samples_per_step: int,
        job: str = "job",
        scheduler: Any = None,
        others: Sequence[Stateful] = (),
        max_norm: float = 0.0,
        config: dict[str, Any] | None = None,
        audit: bool = False,
    ) -> None:
        self.me: Environment = environment()
        if samples_per_step % self.me.ranks:
            raise ConfigError(
                f"samples_per_step is {samples_per_step}: each of the {self.me.ranks} ranks of a replica "
                f"must get as many, so make it a multiple of {self.me.ranks}"
            )
        self.trainee = TorchTrainee(model, optimizer, scheduler, others, max_norm)
        self._source, self._work, self._last = source, None, True
        self._filled: list[bool] = []
        _listen(self.trainee.groups, self._reduced)
        self.config = self._configured(job, samples_per_step, config or {})
        journals, name = self.me.journals, f"{self.me.replica}-{self.me.position}-{self.me.life}"
        self.driver = Driver(
            Settings(
                self.config, self.me.replica, self.me.position, self.me.life, self.me.store, self.me.token,
                self.me.interface, journal=None if journals is None else journals / f"{name}.log",
                audit=audit, checkpoints=self.me.checkpoints, observe=self.me.observe,
            ),
            self.trainee,
        )  # fmt: skip

    def _configured(self, job: str, samples: int, more: dict[str, Any]) -> JobConfig:
        buckets = tuple(4 * group.elements for group in self.trainee.groups)
        chunk = min(CHUNK_BYTES, max(1024, max(buckets) // self.me.replicas // 16 * 16))
        settings = {
            "replicas": self.me.replicas,
            "ranks_per_replica": self.me.ranks,
            "samples_per_step": samples,
            "job": job,
            "initial_digest": _initial_digest(self.trainee),
            "ftar": Ftar(buckets=buckets, chunk_bytes=chunk),
            **more,
        }
        return check(JobConfig(**settings))

    @property
    def step(self) -> int:
        """Updates that the state contains."""
        return self.driver.host.step

    def steps(self, until: int) -> Iterator[Step]:
        """Attempts at steps until the job is over: until its state has ``until`` updates, or more if others
        ask for more. Ends when all replicas have the last state, or ``timeouts.linger`` has passed.
        """
        if until < 1:
            raise ConfigError(f"until is {until}: a job ends with step 1 at the earliest")
        self.driver.start(until)
        works = self.driver.worker.works()
        while True:
            with record_function("fthsdp.wait"):
                work = next(works, None)
            if work is None:
                break
            with record_function("fthsdp.compute"):
                yield self._begin(work)
                self._complete(work)
        self.driver.stop()

    def _begin(self, work: Work) -> Step:
        """Set the random state, which is part of no state: it follows from what is trained."""
        self._work, self._last = work, True
        self._filled = [False] * len(work.grads)
        work.corpus_digest = corpus_digest(self._source, work.ranges)
        torch.manual_seed(int(work.base[:15], 16) ^ self.me.position)
        for piece in (piece for group in self.trainee.groups for piece in group.pieces):
            piece.param.grad = None
        own = [s for i, s in enumerate(sample_ids(work.ranges)) if i % self.me.ranks == self.me.position]
        return Step(work.step, [self._source.tokens(*sample) for sample in own], self._is_last)

    def _is_last(self, last: bool) -> None:
        self._last = last

    def _reduced(self, bucket: int, flat: Tensor) -> None:
        """FSDP has reduced a bucket within the replica, for one batch."""
        work = self._work
        if work is None:
            return
        block = torch.from_numpy(work.grads[bucket].view(np.float32))
        if len(flat) != len(block):
            raise ConfigError(
                f"bucket {bucket} has {len(flat)} of {len(block)} elements: some parameter has no gradient"
            )
        if self._filled[bucket]:
            block += flat
        else:
            block.copy_(flat)
            self._filled[bucket] = True
        if self._last:
            work.ready(bucket)

    def _complete(self, work: Work) -> None:
        """The body is through: what no hook has brought is taken from the gradients themselves."""
        for bucket, group in enumerate(self.trainee.groups):
            if group.module is None:
                _gather(group, work.grads[bucket].view(np.float32))
                work.ready(bucket)
            elif not self._filled[bucket]:
                raise ConfigError("a step's body must call backward on a loss of the whole model")
            else:
                work.ready(bucket)  # if its last batch was not said to be the last
        self._work = None


def _listen(groups: Sequence[Group], heard: Callable[[int, Tensor], None]) -> None:
    """Have FSDP give each bucket's flat gradient, summed over the replica, not averaged."""
    for bucket, group in enumerate(groups):
        if group.module is not None:
            group.module.set_gradient_divide_factor(1.0)
            group.module.set_force_sum_reduction_for_comms(True)
            group.module.set_all_reduce_hook(lambda flat, bucket=bucket: heard(bucket, flat))


def _gather(group: Group, block: np.ndarray[Any, Any]) -> None:
    flat = torch.from_numpy(block)
    for param, start, numel in group.pieces:
        if param.grad is None:
            raise ConfigError("a parameter has no gradient: freeze it with requires_grad_(False), or use it")
        flat[start : start + numel].copy_(local(param.grad).reshape(-1))


def _initial_digest(trainee: TorchTrainee) -> str:
    """Names the state of all ranks of the replica: those that differ must not train together."""
    digest = hashlib.blake2b(digest_size=16)
    for view in trainee.state():
        digest.update(view)
    own = digest.digest()
    if not torch.distributed.is_initialized():
        return own.hex()
    mine = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    every = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(every, mine)
    content = b"".join(part.numpy().tobytes() for part in every)
    return hashlib.blake2b(content, digest_size=16).hexdigest()
