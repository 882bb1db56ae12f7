"""The mock GPU of one rank, in fingerprint fidelity: a shard is one integer, sums are exact.

It does what a device and its share of the host do for a rank: computes gradients, takes part in FTAR
(``chunks.py``), applies the optimizer, freezes and stages states, all within limits of memory, in
the order of its streams and with faults of its own. It checks nothing that the protocol promises: told
to do the wrong thing it does it, and the checker, which recomputes the arithmetic, sees the difference.

Operations that take time change the content at once and return when they are done, for the driver
to schedule. That nothing of a rank that hangs completes is the driver's doing. ``tensor`` fidelity
(device_tensor.py, and device_pooled.py for all ranks of a replica at once) overrides the methods of the
section "content".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import mul
from typing import Any, NamedTuple

from ftruntime.protocol.geometry import Geometry
from ftruntime.protocol.ids import Lineage, Position, Replica, Round, Step
from ftruntime.seams import Corpus, Launched, Ranges

from .chunks import Exchange, HeldRound
from .compute import ComputeModel, Stream
from .hardware import MemoryConfig, TensorConfig
from .memory import Memory, OutOfMemory
from .mixing import GOLDEN, ODD, mix, unmix

_TWO_DOUBLES, _TWO_BITS = struct.Struct("<2d"), struct.Struct("<2Q")
INFINITE = 0x7FF0000000000000  # the digest of a gradient that overflowed
_PART_BIT = {"parameter": 5, "optimizer": 29}
State = Any  # an int here; tensors in tensor fidelity. Never changed in place once handed out


class Shared(NamedTuple):
    """What all devices of a job have in common.

    bucket_bytes:  of each gradient bucket of a rank
    ranges:        into how many checksummed ranges a state is cut
    retention:     where gradients stay after a step, for a retry: "device", "host" or "none"
    """

    seed: int
    bucket_bytes: tuple[int, ...]
    slots_bytes: int
    ranges: int
    retention: str
    memory: MemoryConfig
    compute: ComputeModel
    tensor: TensorConfig = TensorConfig()


class FingerprintDevice:
    """One rank's device. ``state`` is its content; (step, lineage) is what the rank calls it."""

    __slots__ = (
        "replica", "position", "shared", "step", "lineage", "state", "hbm", "host",
        "compute", "copy", "slow", "flip", "nan", "inf",
        "_grads", "_grad_bytes", "_retained", "_computing", "_ready",
        "_rounds", "_served", "_frozen", "_staged",
    )  # fmt: skip

    def __init__(self, replica: Replica, position: Position, shared: Shared, lineage: Lineage) -> None:
        """A fresh process on a fresh device, with the initial state. Raises OutOfMemory."""
        self.replica, self.position, self.shared = replica, position, shared
        self.hbm = Memory("hbm", shared.memory.hbm)
        self.host = Memory("host", shared.memory.host)
        self.hbm.take("params", shared.memory.params)
        self.hbm.take("optimizer", shared.memory.optimizer)
        self.hbm.take("slots", shared.slots_bytes)
        self.compute, self.copy = Stream(), Stream()
        self.slow, self.flip, self.nan, self.inf = 1.0, -1, False, False
        self.step, self.lineage = 0, lineage
        self.state: State = self.initial_state()
        self._grads: Any = None
        self._grad_bytes = sum(shared.bucket_bytes)
        self._retained: tuple[Lineage, Ranges] | None = None
        self._computing = False
        self._ready: tuple[float, ...] = ()
        self._rounds: dict[Round, Any] = {}  # an Exchange or a HeldRound, or what tensors have of them
        self._served: tuple[Round, Any] | None = None  # applied, and still asked for by learners
        self._frozen: dict[Lineage, State] = {}
        self._staged: dict[Lineage, dict[int, Any]] = {}

    # -- content ----------------------------------------------------------------------------------

    def initial_state(self) -> State:
        return mix(self.shared.seed * GOLDEN + self.position + 1)

    def digest(self) -> int:
        """64 bits that are equal exactly when the state is."""
        state: int = self.state
        return state

    def _gradients(self, corpus: Corpus) -> Any:
        """The raw sum over the own samples, per bucket: a function of state and samples only."""
        state, base, grads = self.state, corpus.digest + self.position * GOLDEN + 1, []
        for _ in self.shared.bucket_bytes:
            grads.append(mix(state ^ mix(base)))
            base += ODD
        return grads

    def _corrupt(self, grads: Any) -> None:
        """One bit of the gradient is wrong, and nobody notices."""
        grads[0] ^= 1 << self.flip

    def _overflow(self, grads: Any) -> None:
        """The gradient is infinite: a digest of its own."""
        grads[0] = INFINITE

    def digest_of(self, state: State) -> int:
        """What ``digest`` would be of ``state``."""
        digest: int = state
        return digest

    def flipped(self, state: State, part: str) -> State:
        """``state`` with one wrong bit in "parameter" or "optimizer"."""
        return state ^ (1 << _PART_BIT[part])

    def spoilt(self, data: Any) -> Any:
        """A chunk with one wrong bit."""
        return data ^ (1 << 3)

    def chunk_sum(self, data: Any) -> int:
        """The checksum that a chunk travels with."""
        return mix(data)

    def spoilt_range(self, data: Any) -> Any:
        """A range with one wrong bit, and the checksum that it had."""
        content, checksum = data
        return self.spoilt(content), checksum

    def _exchange(self, geometry: Geometry, index: int, grads: Any, tapped: bool) -> Any:
        return Exchange(geometry, index, grads, tapped)

    def _held(self, geometry: Geometry, index: int) -> Any:
        return HeldRound(geometry, index)

    def _scalars(self, reduced: Any) -> tuple[float, ...]:
        return (float(reduced[-1] >> 40),)

    def _updated(
        self, round: Round, reduced: Any, divisor: int, lr_factor: float, scalars: Sequence[float]
    ) -> State:
        lr, scalar = _TWO_BITS.unpack(_TWO_DOUBLES.pack(lr_factor, scalars[0] if scalars else 0.0))
        total = sum(map(mul, reduced, range(1, 2 * len(reduced), 2)))
        return mix(self.state ^ mix(total + divisor * GOLDEN + lr + scalar))

    def _cut(self, state: State, index: int) -> Any:
        """Range ``index`` of a state, with its checksum."""
        content = mix(state ^ index)
        return content, mix(content + index)

    def intact(self, index: int, data: Any) -> bool:
        """Whether a range that has arrived fits its checksum."""
        content, checksum = data
        return bool(mix(content + index) == checksum)

    def _join(self, parts: dict[int, Any]) -> State:
        """The state that staged ranges make up; torn ones make a state that is nobody else's."""
        states = [unmix(content) ^ index for index, (content, _) in sorted(parts.items())]
        if all(state == states[0] for state in states):
            return states[0]
        torn = 0
        for state in states:
            torn = mix(torn ^ state)
        return torn

    def grads_for_log(self) -> Any:
        """What the log calls ``grads``: what this device sends into FTAR."""
        return list(self._grads)

    def reduced_for_log(self, round: Round) -> Any:
        """What the log calls ``reduced``: the sums of a round that is complete here."""
        return self._rounds[round].reduced()

    # -- compute ----------------------------------------------------------------------------------

    def launch(self, ranges: Ranges, corpus: Corpus, reuse: bool, now: float) -> Launched:
        """Forward and backward on the current state, or with ``reuse`` the gradients retained from
        the same base and ranges. Raises OutOfMemory."""
        if reuse and self.can_reuse(ranges):
            return Launched(self._still_wanted(now), True, True)
        self.abort(now)
        self._make_room()
        self._grads, self._retained = self._gradients(corpus), (self.lineage, ranges)
        finite = not self.nan
        if self.flip >= 0:
            self._corrupt(self._grads)
            self.flip = -1
        if self.inf:
            self._overflow(self._grads)
        self.nan = self.inf = False
        self._ready = self._compute(now)
        return Launched(self._ready, False, finite)

    def _still_wanted(self, now: float) -> tuple[float, ...]:
        """When the gradients of the last launch are there, if not already."""
        if self._computing:
            return tuple(max(now, ready) for ready in self._ready)
        return (self._fetch_retained(now),) * len(self.shared.bucket_bytes)

    def _make_room(self) -> None:
        """Memory for gradients and activations: all of it or, with OutOfMemory, nothing more."""
        if self._grads is not None:
            self.computed()
            self.forget_gradients()
        self.hbm.take("grads", self._grad_bytes)
        try:
            self.hbm.take("activations", self.shared.memory.activations)
            self._computing = True
            if self.shared.retention == "host":
                self.host.take("retained", self._grad_bytes)
        except OutOfMemory:
            self.hbm.give(self._grad_bytes)
            self.computed()
            raise

    def _compute(self, now: float) -> tuple[float, ...]:
        stream = self.compute
        start = now if now > stream.free else stream.free
        ready = self.shared.compute.ready(self.replica, self.step, start, self.slow)
        stream.free = ready[-1]
        return ready

    def computed(self) -> None:
        """Activations are free: the last bucket is there, or the work was stopped."""
        if self._computing:
            self._computing = False
            self.hbm.give(self.shared.memory.activations)

    def abort(self, now: float) -> None:
        """Stop what was launched; gradients that were not finished are not retained."""
        if self._computing:
            self.computed()
            self.forget_gradients()
            self.compute.free = now

    def _fetch_retained(self, now: float) -> float:
        if self.shared.retention == "host":
            return self._copied(now, self._grad_bytes)
        return now

    def can_reuse(self, ranges: Ranges) -> bool:
        """Whether a launch of ``ranges`` on the current state may reuse gradients."""
        return self._retained == (self.lineage, ranges)

    def forget_gradients(self) -> None:
        if self._grads is not None:
            self._grads = self._retained = None
            self.hbm.give(self._grad_bytes)
            if self.shared.retention == "host":
                self.host.give(self._grad_bytes)

    def warm_up(self, now: float) -> float:
        """A throw-away step. Returns when it is done."""
        return self.compute.enqueue(now, self.shared.compute.config.first_step_s * self.slow)

    # -- FTAR --------------------------------------------------------------------------------------

    def exchange(
        self, round: Round, geometry: Geometry, index: int, tapped: bool = False, zeros: bool = False
    ) -> Any:
        """Ring buffers of ``round`` for ring member ``index``. The driver keeps the returned object
        for its chunks. ``zeros``: a catcher in the ring. Raises OutOfMemory."""
        assert zeros or self._grads is not None, "FTAR sums gradients that were launched"
        grads = None if zeros else self._grads
        exchange = self._exchange(geometry, index, grads, tapped)
        self._open(round, "reduced", exchange)
        return exchange

    def hold(self, round: Round, geometry: Geometry, index: int) -> Any:
        """A buffer for the sums of ``round``, as ring member ``index`` forwards them. Raises OutOfMemory."""
        held = self._held(geometry, index)
        self._open(round, "held", held)
        return held

    def _open(self, round: Round, name: str, buffer: Any) -> None:
        assert round not in self._rounds, f"round {round} has a buffer already"
        self.hbm.take(name, self._grad_bytes)
        self._rounds[round] = buffer

    def buffer(self, round: Round) -> Any:
        """The Exchange or HeldRound of ``round``, also when it was applied and learners still ask;
        None when it is gone."""
        if self._served is not None and self._served[0] == round:
            return self._served[1]
        return self._rounds.get(round)

    def has(self, round: Round) -> bool:
        """Whether sums of ``round`` are kept here that are neither applied nor dropped."""
        return round in self._rounds

    def measure(self, round: Round) -> tuple[float, ...]:
        """The scalars of this rank's reduced shard, one of them."""
        return self._scalars(self._rounds[round].reduced())

    def apply(
        self,
        round: Round,
        lineage_after: Lineage,
        divisor: int,
        lr_factor: float,
        scalars: Sequence[float],
        now: float,
    ) -> float:
        """The optimizer, from the sums of ``round``. Returns when it is done; the buffer is free then,
        unless learners still want chunks of it: it stays until the next round is applied."""
        buffer = self._rounds.pop(round)
        self.state = self._updated(round, buffer.reduced(), divisor, lr_factor, scalars)
        self.step, self.lineage = self.step + 1, lineage_after
        if self._served is not None:
            self._served = None
            self.hbm.give(self._grad_bytes)
        if buffer.tapped:
            self._served = (round, buffer)
        else:
            self.hbm.give(self._grad_bytes)
        self.abort(now)
        self.forget_gradients()  # of a base that this device no longer has
        self.compute.wait(self.copy.free)  # a frozen copy is read from the state that now changes
        return self.compute.enqueue(now, self.shared.compute.config.apply_s * self.slow)

    def drop(self, round: Round) -> None:
        """Free the buffer of ``round``, if there is one; the local gradients stay, if retained."""
        if self._rounds.pop(round, None) is not None:
            self.hbm.give(self._grad_bytes)
        if self.shared.retention == "none" and not self._computing:
            self.forget_gradients()

    # -- states: frozen, staged, installed ----------------------------------------------------------

    def freeze(self, lineage: Lineage, now: float) -> float:
        """Copy the state to the host under ``lineage``; again is nothing. Returns when it is done.
        Raises OutOfMemory."""
        if lineage in self._frozen:
            return now
        self.host.take("frozen", self.shared.memory.state)
        self._frozen[lineage] = self.state
        if not self._computing:  # forward and backward only read the state, an update changes it
            self.copy.wait(self.compute.free)
        return self._copied(now, self.shared.memory.state)

    def release(self, lineage: Lineage) -> None:
        if self._frozen.pop(lineage, None) is not None:
            self.host.give(self.shared.memory.state)

    def range_data(self, lineage: Lineage, index: int) -> Any:
        """Range ``index`` of the frozen copy, with its checksum; None when it is not here."""
        state = self._frozen.get(lineage)
        return None if state is None else self._cut(state, index)

    @property
    def range_bytes(self) -> int:
        return -(-self.shared.memory.state // self.shared.ranges)

    def stage(self, lineage: Lineage, index: int, data: Any) -> None:
        """Keep a range that has arrived. Raises OutOfMemory."""
        parts = self._staged.get(lineage)
        if parts is None:
            self.host.take("staged", self.shared.memory.state)
            parts = self._staged[lineage] = {}
        parts[index] = data

    def restore(self, lineage: Lineage, state: State, now: float) -> float:
        """Stage a whole state: a checkpoint's, or the initial one. Returns when. Raises OutOfMemory."""
        for index in range(self.shared.ranges):
            self.stage(lineage, index, self._cut(state, index))
        return self._copied(now, self.shared.memory.state)

    def twin(self, position: Position, state: State) -> FingerprintDevice:
        """A device at ``position`` that is as far as this one, which holds a state and nothing else."""
        other = FingerprintDevice(self.replica, position, self.shared, self.lineage)
        other.step, other.state, other.slow = self.step, state, self.slow
        for own, its in ((self.hbm, other.hbm), (self.host, other.host)):
            its.used, its.peak = own.used, own.peak
        other.compute.free, other.copy.free = self.compute.free, self.copy.free
        return other

    @property
    def has_gradients(self) -> bool:
        """Whether gradients, or a buffer that was applied, are still kept here."""
        return self._grads is not None or self._served is not None

    def unstage(self, lineage: Lineage) -> None:
        if self._staged.pop(lineage, None) is not None:
            self.host.give(self.shared.memory.state)

    def install(self, step: Step, lineage: Lineage, now: float) -> float:
        """Make the staged state of ``lineage`` the state. Returns when it is done."""
        parts = self._staged[lineage]
        assert len(parts) == self.shared.ranges, "a state is installed when all of its ranges are staged"
        self.state = self._join(parts)
        self.step, self.lineage = step, lineage
        self.unstage(lineage)
        self.abort(now)
        self.forget_gradients()
        done = self._copied(now, self.shared.memory.state)
        self.compute.wait(done)
        return done

    def snapshot(self) -> State:
        """The state itself, for a checkpoint."""
        return self.state

    def _copied(self, now: float, size: int) -> float:
        return self.copy.enqueue(now, size / self.shared.compute.config.copy_bps * self.slow)

    # -- faults and resources ------------------------------------------------------------------------

    def slow_down(self, factor: float) -> None:
        """What is asked for from now on takes ``factor`` times as long; 1 mends it."""
        assert factor > 0.0
        self.slow = factor

    def flip_bit(self, bit: int) -> None:
        """The next gradient computed has one wrong bit: silent corruption."""
        self.flip = bit & 63

    def overflow(self) -> None:
        """The next gradient computed is infinite."""
        self.inf = True

    def flip_state(self, part: str) -> None:
        """One bit of the state is wrong from now on."""
        self.state = self.flipped(self.state, part)

    def squeeze(self) -> None:
        """Something else takes what is left of the device's memory: the next allocation fails."""
        memory = self.shared.memory
        self.hbm.limit = memory.params + memory.optimizer + self.shared.slots_bytes

    def poison(self) -> None:
        """The next gradient computed is not a number."""
        self.nan = True

    def close(self) -> None:
        """The process has ended, and with it all that its device and its share of the host held."""
        self.state = self._grads = self._retained = self._served = None
        self._rounds.clear()
        self._frozen.clear()
        self._staged.clear()

    def resources(self) -> dict[str, int]:
        """Counts of what a rank may leak, for the log's ``resources``."""
        held = sum(buffer.learned for buffer in self._rounds.values())
        return {
            "buffers": len(self._rounds) - held,
            "held": held,
            "frozen": len(self._frozen),
            "staged": len(self._staged),
        }
