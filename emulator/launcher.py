"""The launchers: one per replica, in the manner of torchrun. They have processes started, see them die, have
what is left of a replica ended, expire its lease, and start it again after the time that takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import faultinject
from ftruntime.protocol import store as s
from ftruntime.protocol.head import Status
from ftruntime.protocol.ids import Incarnation, MemberId, Replica

from .commands import COMMAND_S, Died, End, Left, Life, Start, Told

if TYPE_CHECKING:
    from .hub import Hub

LOOKS_EVERY_S = 30.0  # at the lease of its replica: a leader that hangs dies of nothing else
RENEWALS_MISSED = 2  # leases may be lost with the store: a leader that lives soon has one again
QUICK_S = 120.0  # a life shorter than this makes the next restart wait longer
FIRST_BACKOFF_S, LAST_BACKOFF_S = 10.0, 640.0


class Launcher:
    """All launchers of a job.

    lives:   how often each replica was started
    states:  "up", "catching up", "restarting" or "down" for each replica
    """

    def __init__(self, hub: Hub, first_warm_up_s: float) -> None:
        self._hub = hub
        replicas = hub.config.replicas
        self.lives = [0] * replicas
        self.states = ["restarting"] * replicas
        self._registered: dict[Life, Incarnation] = {}
        self._ending: dict[Life, tuple[str, bool]] = {}  # why, and whether it is to start again
        self._started = [0.0] * replicas
        self._quick = [0] * replicas
        self._delay = [0.0] * replicas
        self._lost: set[Replica] = set()
        self._away_until = [0.0] * replicas  # until when a launcher sees nothing and starts nothing
        self._leased = [0.0] * replicas  # when the leader was last seen with a lease, or could not have one
        self._warm_up = [first_warm_up_s] * replicas

    def start_all(self, now: float) -> None:
        for replica in range(self._hub.config.replicas):
            self._start(replica, now)
            self._hub.kernel.at(now + LOOKS_EVERY_S, self._look, replica)

    def runs(self, replica: Replica) -> bool:
        """Whether the replica has processes that are not to be ended."""
        return self.states[replica] in ("up", "catching up")

    def hear(self, report: Told, now: float) -> None:
        HEAR[type(report)](self, report, now)

    # -- starting ----------------------------------------------------------------------------------

    def _start(self, replica: Replica, now: float) -> None:
        life = (replica, self.lives[replica])
        self.lives[replica] += 1
        self.states[replica] = "catching up"
        self._started[replica] = now + COMMAND_S
        self._hub.reached("launcher.start", (replica, 0), now)
        self._hub.command(self._order(life), now)

    def _order(self, life: Life) -> Start:
        return Start(life, self._warm_up[life[0]])

    def registered(self, life: Life, incarnation: Incarnation) -> None:
        """The leader of ``life`` is registered."""
        self._registered[life] = incarnation

    def delay(self, replica: Replica, seconds: float) -> None:
        """The next restart begins so much later."""
        self._delay[replica] += seconds

    def lose(self, replica: Replica, now: float) -> None:
        """The replica is gone for good."""
        self._lost.add(replica)
        if self.runs(replica):
            self.end(replica, "lost for ever", now)
        else:
            self.states[replica] = "down"

    def _restart_later(self, replica: Replica, now: float) -> None:
        if replica in self._lost:
            self.states[replica] = "down"
            if set(self.states) == {"down"}:
                self._hub.all_down(now)
            return
        self.states[replica] = "restarting"
        restart = faultinject.draw_restart(
            self._hub.config.ranks_per_replica,
            seed=self._hub.settings.seed,
            replica=replica,
            life=self.lives[replica],
        )
        backoff = self._backoff(replica, now)
        self._warm_up[replica] = restart.first_step.seconds
        wait = restart.allocation.seconds + restart.communicator_init.seconds
        wait += self._delay[replica] + backoff
        self._delay[replica] = 0.0
        self._hub.kernel.at(now + wait, self._restart, (replica, self.lives[replica]))

    def _backoff(self, replica: Replica, now: float) -> float:
        """One that keeps crashing waits longer each time (design 3.5)."""
        if now - self._started[replica] >= QUICK_S + self._warm_up[replica]:
            self._quick[replica] = 0
            return 0.0
        self._quick[replica] += 1
        return min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (self._quick[replica] - 1))

    def _restart(self, which: Life, now: float) -> None:
        replica, life = which
        if now < self._away_until[replica]:
            self._hub.kernel.at(self._away_until[replica], self._restart, which)
        elif life == self.lives[replica] and replica not in self._lost:
            self._start(replica, now)

    # -- ending --------------------------------------------------------------------------------------

    def _present(self, life: Life) -> bool:
        """Whether ``life`` is the one that runs, and not to be ended already."""
        replica, number = life
        return number == self.lives[replica] - 1 and self.runs(replica)

    def _died(self, report: Died, now: float) -> None:
        replica = report.life[0]
        if now < self._away_until[replica]:
            self._hub.kernel.at(self._away_until[replica], self.hear, report)
        elif self._present(report.life):
            self._hub.reached("launcher.death", (replica, 0), now)
            self.end(replica, "a process died", now)

    def _left(self, report: Left, now: float) -> None:
        replica, number = report.life
        if number != self.lives[replica] - 1 or self.states[replica] == "restarting":
            self._end(report.life, report.reason, False, now)  # a zombie: processes of one life end together
            return
        if not report.restart:
            self._for_good(replica)
        if self.runs(replica):
            self.end(replica, report.reason, now)

    def _for_good(self, replica: Replica) -> None:
        """A life asks not to be followed by another."""
        self._lost.add(replica)

    def end(self, replica: Replica, reason: str, now: float, restart: bool = True) -> None:
        """End what is left of the replica, expire its lease when that is done, and start it again."""
        self._hub.reached("launcher.end", (replica, 0), now)
        self._end((replica, self.lives[replica] - 1), reason, replica not in self._lost, now)
        self._hub.store.unwatch(replica)
        self._hub.down(replica, now)
        if restart:
            self._restart_later(replica, now)

    def _end(self, life: Life, reason: str, restart: bool, now: float) -> None:
        self._hub.command(End(life), now)
        self._ending.setdefault(life, (reason, restart))
        if not self._hub.hears_of_ends:
            self._hub.kernel.at(now + 2.0 * COMMAND_S, self.ended, life)

    def host_lost(self, replica: Replica, now: float) -> None:
        """The machine with all processes of the replica is gone."""
        self._died(Died((replica, self.lives[replica] - 1)), now)
        for life in [life for life in self._ending if life[0] == replica]:
            self.ended(life, now)

    def incarnations(self, replica: Replica) -> list[Incarnation]:
        """Of its registered lives that have not ended."""
        return [incarnation for life, incarnation in self._registered.items() if life[0] == replica]

    def ended(self, life: Life, now: float) -> None:
        """All processes of the life are gone."""
        found = self._ending.pop(life, None)
        if found is None:
            return
        reason, restart = found
        incarnation = self._registered.pop(life, 0)
        if incarnation:
            member = MemberId(life[0], incarnation)
            self._hub.log(["exit", now, member.replica, member.incarnation, reason, restart])
            self._hub.store.submit(member.replica, s.Expire(member), _ignore)

    def detach(self, replica: Replica, now: float) -> None:
        """The processes are taken for dead without being ended: they may come back as zombies."""
        self._hub.down(replica, now)
        self._restart_later(replica, now)

    def _look(self, replica: Replica, now: float) -> None:
        """A leader that lives without a lease, while the store can be reached, hangs."""
        hub = self._hub
        hub.kernel.at(now + LOOKS_EVERY_S, self._look, replica)
        incarnation = self._registered.get((replica, self.lives[replica] - 1), 0)
        head = hub.store.head
        # An unregistered life waits while the store has no head; a registered one renews its lease even then.
        open_to_new = head is not None and head.status is not Status.LOST
        well = (
            not self.runs(replica)
            or not hub.store.reachable(replica)
            or hub.store.leased(MemberId(replica, incarnation))
            or not (incarnation or open_to_new)
        )
        if well or now < self._away_until[replica] or self._started[replica] > self._leased[replica]:
            self._leased[replica] = now
        elif (
            now - max(self._leased[replica], hub.store.leases_lost)
            > RENEWALS_MISSED * hub.config.timeouts.lease / 3
        ):
            self._hub.reached("launcher.no_lease", (replica, 0), now)
            self.end(replica, "the leader has no lease and does not renew it", now)


HEAR: dict[type[Told], Callable[[Launcher, Any, float], None]] = {
    Died: Launcher._died,
    Left: Launcher._left,
}


def _ignore(answer: s.Answer, now: float) -> None:
    """A launcher does not wait for the store's answer."""
