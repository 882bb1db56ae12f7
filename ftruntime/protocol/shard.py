"""A rank's shard: whether it is changing, and how it comes from and goes to others (design 3.5).

    phase      event                next      what the rank does
    ---------  -------------------  --------  ----------------------------------------------------
    NEW        Enlist               IDLE      warms up, connects to its future neighbours
    IDLE       Outcome apply        CHANGING  optimizer step from the reduced buffer (``member.py``)
    IDLE       Install              CHANGING  the staged shard becomes the state
    CHANGING   Applied              IDLE      moves step and lineage, tells the leader

Links are FIFO and the leader has one order out at a time, so while CHANGING nothing else comes that concerns
the state; a catcher's rank may begin to hold another round meanwhile.
"""

from __future__ import annotations

import enum

from . import messages as m
from .branch import Branch
from .config import JobConfig
from .donor import Donor
from .effects import Connect, Effect, InstallStaged, Restore, SaveShard, Unstage, WarmUp
from .fetch import Fetch
from .fetch import State as FetchState
from .ids import Address, Lineage, MemberId, Position, Replica, Round, Step
from .plan import Target, lineage_root
from .task import Task

MAX_FROZEN = 4
MAX_STRIKES = 3


class Phase(enum.IntEnum):
    NEW = 1
    IDLE = 2
    CHANGING = 3


MOVES: dict[Phase, Phase] = {Phase.NEW: Phase.IDLE, Phase.IDLE: Phase.CHANGING, Phase.CHANGING: Phase.IDLE}


class Change:
    """An order that changes the state, while the device carries it out. Never modified."""

    __slots__ = ("lineage", "order", "round", "step")

    def __init__(self, order: int, step: Step, lineage: Lineage, round: Round) -> None:
        self.order, self.step, self.lineage, self.round = order, step, lineage, round


class Shard(Branch):
    """``step`` and ``lineage`` name the state that this rank's device holds."""

    __slots__ = (
        "_change",
        "_checkpoint",
        "_donor",
        "_fetch",
        "_fetch_number",
        "_passed_over",
        "_restoring",
        "_saving",
        "_staged",
        "_warm",
        "lineage",
        "phase",
        "step",
    )

    def __init__(self, config: JobConfig, replica: Replica, position: Position) -> None:
        super().__init__(config, replica, position)
        self.phase = Phase.NEW
        self.step: Step = 0
        self.lineage: Lineage = lineage_root(config.job, config.initial_digest)
        self._change: Change | None = None
        self._donor: Donor | None = None
        self._fetch: Fetch | None = None
        self._fetch_number = 0
        self._restoring: Target | None = None
        self._staged = False
        self._saving: tuple[int, str] | None = None
        self._checkpoint = 0  # the order to write the newest checkpoint
        self._passed_over = 0  # and the one before it, for which nobody waits any more
        self._warm = False

    def _clone_shard(self, other: Shard) -> None:
        self._clone_branch(other)
        other._donor = self._donor.clone() if self._donor is not None else None
        other._fetch = self._fetch.clone() if self._fetch is not None else None

    def _move(self, phase: Phase) -> None:
        assert MOVES[self.phase] is phase, f"rank {self.position}: {self.phase.name} to {phase.name}"
        self.phase = phase

    def _done(self, order: int, out: list[Effect]) -> None:
        self._answer("done", order, self.position, m.Done(order), out)

    # -- warm-up -------------------------------------------------------------------------------

    def _enlist(self, source: Address, message: m.Enlist, now: float, out: list[Effect]) -> None:
        self._move(Phase.IDLE)
        self.me = message.member
        out.append(Connect(tuple(r for r in range(self._config.replicas) if r != self.me.replica)))
        out.append(WarmUp())

    def warm(self, out: list[Effect]) -> None:
        """The throw-away step is done and the connections are up."""
        if not self._warm:
            self._warm = True
            self._answer("prepared", 0, self.position, m.Prepared(), out)

    # -- donor ---------------------------------------------------------------------------------

    def _donor_machine(self) -> Donor:
        if self._donor is None:
            ranges = self._config.catch_up.ranges
            waiting = 4 * ranges * self._config.replicas
            self._donor = Donor(self.me, self.position, ranges, max_frozen=MAX_FROZEN, max_waiting=waiting)
        return self._donor

    def _freeze(self, task: Task, out: list[Effect]) -> None:
        """Before anything of the round can change the state (!)."""
        if self._donor is not None or task.wanted:
            wanted = {lineage: frozenset(catchers) for lineage, catchers in task.wanted}
            self._donor_machine().plan(wanted, Target(self.step, self.lineage), out)

    def _request(self, source: Address, message: m.RangeRequest, now: float, out: list[Effect]) -> None:
        self._donor_machine().request(source, message, out)

    @property
    def staging(self) -> Target | None:
        """The state that is being staged, or is staged, here."""
        return self._fetch.target if self._fetch is not None else self._restoring

    # -- catcher -------------------------------------------------------------------------------

    def _start_fetch(self, source: Address, message: m.StartFetch, now: float, out: list[Effect]) -> None:
        target = Target(message.step, message.lineage)
        if message.number != self._fetch_number:
            self._stop(out)
            self._fetch_number = message.number
        if message.checkpoint:
            if self._restoring != target:
                self._restoring = target
                out.append(Restore(message.checkpoint, target.step, target.lineage))
        elif self._fetch is None:
            self._fetch = self._new_fetch(target, message.donors)
            self._fetch.start(now, out)
        else:
            self._fetch.donors_changed(message.donors, now, out)
        self._fetch_progress(out)

    def _new_fetch(self, target: Target, donors: tuple[MemberId, ...]) -> Fetch:
        c = self._config.catch_up
        return Fetch(
            target,
            self.position,
            self.me,
            c.ranges,
            donors,
            window=c.outstanding,
            range_timeout=self._config.timeouts.range,
            max_strikes=MAX_STRIKES,
            tag=self._fetch_number,
        )

    def _stop_fetch(self, source: Address, message: m.StopFetch, now: float, out: list[Effect]) -> None:
        self._stop(out)

    def _stop(self, out: list[Effect]) -> None:
        """Throw away what is staged, and what the subtree has said of it."""
        if self._fetch is not None and self._fetch.state is not FetchState.CANCELLED:
            self._fetch.cancel(out)
        elif self._restoring is not None:
            out.append(Unstage(self._restoring.lineage))
        self._forget_calls("fetched")
        self._fetch, self._staged, self._restoring = None, False, None

    def _range(self, source: Address, message: m.RangeData, now: float, out: list[Effect]) -> None:
        if self._fetch is not None:
            self._fetch.data(message, now, out)
            self._fetch_progress(out)

    def _not_here(self, source: Address, message: m.NotHere, now: float, out: list[Effect]) -> None:
        if self._fetch is not None:
            self._fetch.not_here(message, now, out)
            self._fetch_progress(out)

    def _fetch_progress(self, out: list[Effect]) -> None:
        """Tell the leader that the shard is staged, once, or that no donor can be had."""
        fetch = self._fetch
        if fetch is None or self._staged:
            return
        if fetch.complete:
            self._all_staged(out)
        elif fetch.starved:
            accused = tuple(sorted({donor.replica for donor in fetch.unreachable}))
            self._tell(m.Fetched(self._fetch_number, False, "no donor can be had", accused), out)

    def _all_staged(self, out: list[Effect]) -> None:
        self._staged = True
        number = self._fetch_number
        self._answer("fetched", number, self.position, m.Fetched(number, True), out)

    def restored(self, lineage: Lineage, ok: bool, reason: str, out: list[Effect]) -> None:
        """A shard was staged from a checkpoint, or could not be."""
        if self._restoring is None or self._restoring.lineage != lineage or self._staged:
            return
        if ok:
            self._all_staged(out)
        else:
            self._restoring = None
            self._tell(m.Fetched(self._fetch_number, False, reason), out)

    def _child_fetched(self, source: Address, message: m.Fetched, now: float, out: list[Effect]) -> None:
        if message.number != self._fetch_number:
            return
        if message.ok:
            self._answer("fetched", message.number, source[1], message, out)
        else:
            self._tell(message, out)

    def _install(self, source: Address, message: m.Install, now: float, out: list[Effect]) -> None:
        assert self._staged, "only what is staged at every rank is installed (!)"
        self._move(Phase.CHANGING)
        self._change = Change(message.order, message.step, message.lineage, -1)
        out.append(InstallStaged(message.step, message.lineage))

    # -- checkpoints ---------------------------------------------------------------------------

    def _write_checkpoint(
        self, source: Address, message: m.WriteCheckpoint, now: float, out: list[Effect]
    ) -> None:
        self._passed_over, self._checkpoint = self._checkpoint, message.order
        # If some shard of the last one failed, its roll would stay open here for ever.
        self._forget_call("done", self._passed_over)
        self._saving = (message.order, message.name)
        out.append(SaveShard(message.name, self.step, self.lineage))

    def saved(self, name: str, ok: bool, out: list[Effect]) -> None:
        """The shard of checkpoint ``name`` is durable. One that is not is never put on record."""
        if self._saving is not None and self._saving[1] == name:
            order, self._saving = self._saving[0], None
            if ok:
                self._done(order, out)
