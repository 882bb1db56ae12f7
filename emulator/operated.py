"""Launchers that err, and operators who take replicas out, bring them back, and change what they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftruntime.protocol.ids import Address, Replica

from .commands import AskToLeave, Detach, Life, Start
from .launcher import Launcher

if TYPE_CHECKING:
    from .hub import Hub

LEAVES_WITHIN_S = 180.0  # after that, who was asked to leave is ended


class OperatedLauncher(Launcher):
    """As ``Launcher``, at the hands of people."""

    def __init__(self, hub: Hub, first_warm_up_s: float) -> None:
        super().__init__(hub, first_warm_up_s)
        self._second_after: dict[Replica, float] = {}
        self._hangs: set[Address] = set()  # ranks of which the next process hangs as soon as it has started
        self._hung: set[Replica] = set()  # replicas of which the present life has such a process
        self._misconfigured: set[Replica] = set()
        self._refused: set[Replica] = set()

    def _order(self, life: Life) -> Start:
        replica = life[0]
        hang = tuple(sorted(position for r, position in self._hangs if r == replica))
        self._hangs -= {(replica, position) for position in hang}
        if hang:
            self._hung.add(replica)
        return Start(life, self._warm_up[replica], hang, replica in self._misconfigured)

    # -- launchers that err ------------------------------------------------------------------------

    def hang_next(self, address: Address) -> None:
        """The next process of this rank hangs as soon as it has started."""
        self._hangs.add(address)

    def end(self, replica: Replica, reason: str, now: float, restart: bool = True) -> None:
        super().end(replica, reason, now, restart)
        if replica in self._hung:
            self._hung.remove(replica)
            self._hub.life_ended(replica, now)

    def start_beside(self, replica: Replica, now: float) -> None:
        """A new life starts at once, while the present one runs on."""
        self._hub.command(Detach(replica), now)
        self._hub.down(replica, now)
        self._start(replica, now)

    def twice(self, replica: Replica, seconds: float) -> None:
        """The next restart is followed by another, ``seconds`` later, beside it."""
        self._second_after[replica] = seconds

    def _restart(self, which: Life, now: float) -> None:
        replica, before = which[0], self.lives[which[0]]
        super()._restart(which, now)
        if self.lives[replica] > before and replica in self._second_after:
            seconds = self._second_after.pop(replica)
            self._hub.kernel.at(now + seconds, self._second, (replica, self.lives[replica] - 1))

    def _second(self, life: Life, now: float) -> None:
        if self._present(life):
            self.start_beside(life[0], now)

    def stop_looking(self, replica: Replica, until: float) -> None:
        """The launcher of ``replica`` is away."""
        self._away_until[replica] = max(self._away_until[replica], until)

    # -- operators ---------------------------------------------------------------------------------

    def ask_to_leave(self, replica: Replica, now: float) -> None:
        """The replica is to leave between two steps; one that does not is ended."""
        life = (replica, self.lives[replica] - 1)
        self._hub.kernel.at(now + LEAVES_WITHIN_S, self._make_leave, life)
        self._hub.command(AskToLeave(life), now)

    def _make_leave(self, life: Life, now: float) -> None:
        if self._present(life):
            self.end(life[0], "it did not leave in time", now)

    def give_up(self, replica: Replica) -> None:
        """No life of ``replica`` is started any more."""
        self._lost.add(replica)
        if not self.runs(replica):
            self.states[replica] = "down"

    def take_back(self, replica: Replica, now: float) -> None:
        """``replica`` is to run again."""
        self._lost.discard(replica)
        if self.states[replica] == "down":
            self._restart_later(replica, now)

    def lose(self, replica: Replica, now: float) -> None:
        self._refused.discard(replica)
        super().lose(replica, now)

    def reconfigure(self, replica: Replica, now: float) -> bool:
        """Restart ``replica`` with another configuration. False: it is not there."""
        if not self.runs(replica) or replica in self._misconfigured:
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
        elif self.runs(replica):  # it could not register so far
            self.end(replica, "the operator restarts it with the right configuration", now)

    def _for_good(self, replica: Replica) -> None:
        if replica in self._misconfigured and replica not in self._lost:
            self._refused.add(replica)
        super()._for_good(replica)
