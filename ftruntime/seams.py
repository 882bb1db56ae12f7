"""The seams: what a driver needs of a device and of a consensus store, whoever provides them (design 2).

Each is a small ``typing.Protocol`` with a mock in ``emulator`` and real implementations elsewhere; the
seam of the data is ``ftruntime.data.SampleSource``. Operations that take time return the second at
which they are done (infinity: never), on the clock that ``now`` is of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from .protocol import store
from .protocol.geometry import Geometry
from .protocol.ids import Lineage, Replica, Round, Step
from .protocol.ledger import SampleRange

Ranges = tuple[SampleRange, ...]


class Corpus(NamedTuple):
    """What a rank reads for its ranges: the 64-bit digest of the tokens, and the tokens on demand."""

    digest: int
    tokens: Callable[[], bytes]


class Launched(NamedTuple):
    """ready: when each bucket's gradient is there. reused: nothing was computed.
    finite: False when the gradient is not a number, which the device sees when it looks."""

    ready: tuple[float, ...]
    reused: bool
    finite: bool


class Exchange(Protocol):
    """The ring buffers of one round at one rank. Chunks are numbered as in ``protocol.geometry``;
    what a chunk holds is the device's business."""

    def produce(self, number: int) -> Any:
        """The own share of chunk ``number``, a first share (ring step 0)."""

    def take(self, number: int, data: Any) -> Any:
        """Consume received chunk ``number``, in order; returns what is passed on, if anything is."""

    def finished(self, index: int) -> Any:
        """Finished chunk ``index``, in the order of finishing."""


class HeldRound(Protocol):
    """A learner's buffer for the sums of one round."""

    def store(self, index: int, data: Any) -> None:
        """Keep finished chunk ``index``, in the tapped member's order of finishing."""


class Device(Protocol):
    """One rank's device and its share of the host. Allocating methods raise the device's out-of-memory
    error and then have changed nothing."""

    step: Step
    lineage: Lineage

    def digest(self) -> int:
        """64 bits that are equal exactly when the state is."""

    def can_reuse(self, ranges: Ranges) -> bool:
        """Whether gradients of ``ranges`` on the current state are retained."""

    def launch(self, ranges: Ranges, corpus: Corpus, reuse: bool, now: float) -> Launched:
        """Forward and backward; allocates."""

    def computed(self) -> None:
        """The last bucket is there: activations are free."""

    def abort(self, now: float) -> None:
        """Stop what was launched."""

    def warm_up(self, now: float) -> float:
        """A throw-away step."""

    def exchange(
        self, round: Round, geometry: Geometry, index: int, tapped: bool = False, zeros: bool = False
    ) -> Exchange:
        """Buffers of ``round`` for ring member ``index``; allocates."""

    def hold(self, round: Round, geometry: Geometry, index: int) -> HeldRound:
        """A learner's buffer, fed by ring member ``index``; allocates."""

    def measure(self, round: Round) -> tuple[float, ...]:
        """The scalars that ride on the vote."""

    def apply(
        self,
        round: Round,
        lineage_after: Lineage,
        divisor: int,
        lr_factor: float,
        scalars: Sequence[float],
        now: float,
    ) -> float:
        """The optimizer step from the sums of ``round``."""

    def drop(self, round: Round) -> None:
        """Free the buffer of ``round``, if there is one."""

    def freeze(self, lineage: Lineage, now: float) -> float:
        """Copy the state to the host; allocates."""

    def release(self, lineage: Lineage) -> None:
        """Free a frozen copy, if there is one."""

    def range_data(self, lineage: Lineage, index: int) -> Any:
        """A range of a frozen copy with its checksum; None when it is not here."""

    def intact(self, index: int, data: Any) -> bool:
        """Whether a range that has arrived fits its checksum."""

    def stage(self, lineage: Lineage, index: int, data: Any) -> None:
        """Keep a range that has arrived; allocates."""

    def unstage(self, lineage: Lineage) -> None:
        """Free what is staged, if anything is."""

    def restore(self, lineage: Lineage, state: Any, now: float) -> float:
        """Stage a whole snapshot; allocates."""

    def install(self, step: Step, lineage: Lineage, now: float) -> float:
        """Make the staged state the state."""

    def snapshot(self) -> Any:
        """The state, for a checkpoint."""


class ConsensusStore(Protocol):
    """Carries out ``protocol.store`` requests. Any request may stay unanswered."""

    def submit(
        self, replica: Replica, request: store.Request, reply: Callable[[store.Answer, float], object]
    ) -> None:
        """Ask on behalf of ``replica``; ``reply(answer, now)`` is called later, or never."""

    def watch(self, replica: Replica, deliver: Callable[[store.Change, float], object]) -> None:
        """Call ``deliver(change, now)`` for every change from now on, in order."""

    def unwatch(self, replica: Replica) -> None:
        """No more changes for ``replica``."""
