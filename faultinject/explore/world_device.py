"""A device for worlds without time: what is reduced is kept as who contributed it from which state.

A chunk is the sorted tuple of (replica, base lineage, ranges) that have been added to it, so a wrong
sum shows as a wrong tuple. What a command answers is queued in ``pending`` and comes when the
world lets it come.
"""

from __future__ import annotations

import copy

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.geometry import Geometry, geometry
from ftruntime.protocol.ids import Lineage, Replica, Round, Step
from ftruntime.protocol.ledger import SampleRange
from ftruntime.protocol.plan import Plan
from ftruntime.protocol.task import Part, Task

Share = tuple[Replica, Lineage, tuple[SampleRange, ...]]
Sum = tuple[Share, ...]


class RoundBuffer:
    """Receive and send slots, and the reduced chunks, of one round at one rank."""

    __slots__ = ("plan", "reduced", "slots", "task", "taken")

    def __init__(self, plan: Plan, task: Task) -> None:
        self.plan, self.task = plan, task
        self.slots: dict[int, Sum] = {}
        self.taken: dict[int, Sum] = {}
        self.reduced: list[Sum] = []  # finished chunks in the order of finishing

    def clone(self) -> RoundBuffer:
        other = copy.copy(self)
        other.slots, other.taken, other.reduced = dict(self.slots), dict(self.taken), list(self.reduced)
        return other


class WorldDevice:
    """``state`` is (step, lineage) as the device has it; ``wrong`` collects violated sums."""

    __slots__ = (
        "_config",
        "_replica",
        "buffers",
        "frozen",
        "gradient",
        "pending",
        "staged",
        "state",
        "wrong",
    )

    def __init__(self, config: JobConfig, replica: Replica, state: tuple[Step, Lineage]) -> None:
        self._config, self._replica = config, replica
        self.state = state
        self.gradient: Share | None = None
        self.buffers: dict[Round, RoundBuffer] = {}
        self.frozen: dict[Lineage, tuple[Step, Lineage]] = {}
        self.staged: tuple[Step, Lineage] | None = None
        self.pending: tuple[e.Event, ...] = ()
        self.wrong: tuple[str, ...] = ()

    def clone(self) -> WorldDevice:
        other = copy.copy(self)
        other.buffers = {round: buffer.clone() for round, buffer in self.buffers.items()}
        other.frozen = dict(self.frozen)
        return other

    # -- commands ------------------------------------------------------------------------------

    def launch(self, effect: f.Launch) -> None:
        """Gradients of the task's samples on the present state, one bucket after the other."""
        self._open(effect.plan, effect.task)
        share = (self._replica, self.state[1], effect.task.ranges)
        if effect.reuse and share != self.gradient:
            self.wrong += (f"round {effect.plan.round} reuses a gradient that is not its own",)
        self.gradient = share
        for bucket in range(len(self._config.ftar.buckets)):
            self.pending += (e.BucketReady(effect.plan.round, bucket),)
        if effect.task.members == 1:
            buffer = self.buffers[effect.plan.round]
            buffer.reduced = [(share,)] * self._shape(effect.task).finished_total

    def hold(self, effect: f.Hold) -> None:
        self._open(effect.plan, effect.task)

    def _open(self, plan: Plan, task: Task) -> None:
        self.buffers[plan.round] = RoundBuffer(plan, task)

    def _shape(self, task: Task) -> Geometry:
        ftar = self._config.ftar
        return geometry(ftar.buckets, task.members, ftar.chunk_bytes, ftar.slots)

    def arrived(self, round: Round, seq: int, data: object) -> None:
        """The wire wrote a receive slot: what was there is gone, whether or not it was taken."""
        buffer = self.buffers.get(round)
        if buffer is not None:
            assert isinstance(data, tuple)
            buffer.taken[seq % self._config.ftar.slots] = data

    def post(self, effect: f.Post) -> Sum | None:
        """Consume and produce as FTAR asks; returns what goes to the right neighbour, if anything."""
        buffer = self.buffers[effect.round]
        if effect.give >= 0 and not effect.filled:
            buffer.slots[effect.give] = self._produce(buffer, effect.take)
        elif effect.take >= 0:
            buffer.reduced.append(buffer.taken[effect.take % self._config.ftar.slots])
        return buffer.slots[effect.give] if effect.send else None

    def _produce(self, buffer: RoundBuffer, take: int) -> Sum:
        own = (self.gradient,) if buffer.task.part is Part.CONTRIBUTE and self.gradient else ()
        if take < 0:
            return own
        step = self._shape(buffer.task).locate(take).step
        received = buffer.taken[take % self._config.ftar.slots]
        total = tuple(sorted(received + own)) if step < buffer.task.members - 1 else received
        if step >= buffer.task.members - 2:
            buffer.reduced.append(total)
        return total

    def tapped(self, round: Round, index: int) -> Sum:
        return self.buffers[round].reduced[index]

    def store_tap(self, round: Round, data: object) -> None:
        assert isinstance(data, tuple)
        self.buffers[round].reduced.append(data)

    def apply(self, effect: f.Apply) -> None:
        """Move on, if what was reduced is exactly what the plan asked for."""
        plan, buffer = effect.plan, self.buffers[effect.plan.round]
        expected = tuple(
            sorted(
                (m.replica, plan.base.lineage, r) for m, r in zip(plan.contributors, plan.ranges, strict=True)
            )
        )
        total = self._shape(buffer.task).finished_total
        if buffer.reduced != [expected] * total:
            self.wrong += (f"round {plan.round} applied {buffer.reduced}, not {expected}",)
        if self.state[1] != plan.base.lineage:
            self.wrong += (f"round {plan.round} applied onto {self.state}",)
        if not effect.keep:
            del self.buffers[plan.round]
        self.state = (plan.base.step + 1, plan.lineage_after)
        self.gradient = None
        self.pending += (e.Applied(plan.round),)

    def drop(self, round: Round) -> None:
        self.buffers.pop(round, None)
        self.pending = tuple(p for p in self.pending if getattr(p, "round", None) != round)

    def whole(self, round: Round) -> bool:
        """Whether every chunk of ``round`` is reduced here."""
        buffer = self.buffers.get(round)
        return buffer is not None and len(buffer.reduced) == self._shape(buffer.task).finished_total

    def stage(self, target: tuple[Step, Lineage], data: object) -> None:
        """A range of ``target`` arrived; ``data`` says of which state it really is."""
        if data != target:
            self.wrong += (f"staged a range of {data} as one of {target}",)
        self.staged = target

    def install(self, effect: f.InstallStaged) -> None:
        if self.staged != (effect.step, effect.lineage):
            self.wrong += (f"installed {effect.lineage} but {self.staged} is staged",)
        self.state, self.staged, self.gradient = (effect.step, effect.lineage), None, None
        self.pending += (e.Applied(-1),)

    def freeze(self, effect: f.Freeze) -> None:
        if self.state != (effect.step, effect.lineage):
            self.wrong += (f"froze {effect.lineage} while holding {self.state}",)
        self.frozen[effect.lineage] = self.state  # what a copy made now really contains
