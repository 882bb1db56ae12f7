"""Launchers that err, and operators who take replicas out, bring them back, and change what they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ftruntime.protocol import events as e
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.ids import Address, Replica

from .launcher import Launcher
from .process import Process

if TYPE_CHECKING:
    from .emulation import Emulation

LEAVES_WITHIN_S = 180.0  # after that, who was asked to leave is ended


class OperatedLauncher(Launcher):
    """As ``Launcher``, at the hands of people."""

    def __init__(self, job: Emulation) -> None:
        super().__init__(job)
        self._second_after: dict[Replica, float] = {}
        self._misconfigured: set[Replica] = set()
        self._refused: set[Replica] = set()

    # -- launchers that err ------------------------------------------------------------------------

    def hang_next(self, address: Address) -> None:
        """The next process of this rank hangs as soon as it has started."""
        self._hangs.add(address)

    def start_beside(self, replica: Replica, now: float) -> None:
        """A new life starts at once, while the present one runs on."""
        self.detach(replica, restart=False)
        self._start(replica, now)

    def twice(self, replica: Replica, seconds: float) -> None:
        """The next restart is followed by another, ``seconds`` later, beside it."""
        self._second_after[replica] = seconds

    def _restart(self, which: tuple[Replica, int], now: float) -> None:
        replica, before = which[0], self.lives[which[0]]
        super()._restart(which, now)
        if self.lives[replica] > before and replica in self._second_after:
            seconds = self._second_after.pop(replica)
            self._job.kernel.at(now + seconds, self._second, (replica, self.lives[replica]))

    def _second(self, which: tuple[Replica, int], now: float) -> None:
        replica, life = which
        if life == self.lives[replica] and (replica, 0) in self._job.processes:
            self.start_beside(replica, now)

    def stop_looking(self, replica: Replica, until: float) -> None:
        """The launcher of ``replica`` is away."""
        self._away_until[replica] = max(self._away_until[replica], until)

    def donor_dies(self, address: Address, now: float) -> None:
        """The rank that was asked for a range dies. The fault names another, so the log says which."""
        process = self._job.processes.get(address)
        if process is not None and process.alive:
            self._job.log(["fault", now, {"kind": "donor_lost", "rank": list(address)}])
            self.crashed(process, "donor lost", now)

    # -- operators ---------------------------------------------------------------------------------

    def ask_to_leave(self, replica: Replica, now: float) -> None:
        """The replica is to leave between two steps; one that does not is ended."""
        self._job.kernel.at(now + LEAVES_WITHIN_S, self._make_leave, (replica, self.lives[replica]))
        self._job.processes[replica, 0].handle(e.Leave(), now)

    def _make_leave(self, which: tuple[Replica, int], now: float) -> None:
        replica, life = which
        if life == self.lives[replica] and (replica, 0) in self._job.processes:
            self.end(replica, "it did not leave in time", now)

    def give_up(self, replica: Replica) -> None:
        """No life of ``replica`` is started any more."""
        self._lost.add(replica)
        if (replica, 0) not in self._job.processes:
            self.states[replica] = "down"

    def take_back(self, replica: Replica, now: float) -> None:
        """``replica`` is to run again."""
        self._lost.discard(replica)
        if self.states[replica] == "down":
            self._restart_later(replica, now)

    def lose(self, replica: Replica, now: float) -> None:
        self._refused.discard(replica)
        super().lose(replica, now)

    def config_of(self, replica: Replica) -> JobConfig:
        config = self._job.config
        if replica not in self._misconfigured:
            return config
        return msgspec.structs.replace(config, samples_per_step=config.samples_per_step + 1)

    def reconfigure(self, replica: Replica, now: float) -> bool:
        """Restart ``replica`` with another configuration. False: it is not there."""
        if (replica, 0) not in self._job.processes or replica in self._misconfigured:
            return False
        self._misconfigured.add(replica)
        self.end(replica, "the operator restarts it with another configuration", now)
        return True

    def configure_again(self, replica: Replica, now: float) -> None:
        """Start ``replica`` with the right configuration."""
        self._misconfigured.discard(replica)
        if replica in self._refused:
            self._refused.discard(replica)
            self.take_back(replica, now)
        elif (replica, 0) in self._job.processes:  # it could not register so far
            self.end(replica, "the operator restarts it with the right configuration", now)

    def left(self, process: Process, reason: str, restart: bool, now: float) -> None:
        replica = process.address[0]
        current = self._job.processes.get(process.address) is process
        if current and not restart and replica in self._misconfigured and replica not in self._lost:
            self._refused.add(replica)
        super().left(process, reason, restart, now)
