"""The launchers: one per replica, in the manner of torchrun. They start processes, see them die, end
what is left of a replica, expire its lease at once, and start it again after the time that takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import faultinject
from ftruntime.protocol import events as e
from ftruntime.protocol import store as s
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.head import Status
from ftruntime.protocol.ids import Address, MemberId, Position, Replica
from ftruntime.protocol.rank import Rank

from .process import Process

if TYPE_CHECKING:
    from .emulation import Emulation

SEES_DEATH_S = 0.05  # until the launcher's wait on its processes returns
LOOKS_EVERY_S = 30.0  # at the lease of its replica: a leader that hangs dies of nothing else
RENEWALS_MISSED = 2  # leases may be lost with the store: a leader that lives soon has one again
QUICK_S = 120.0  # a life shorter than this makes the next restart wait longer
FIRST_BACKOFF_S, LAST_BACKOFF_S = 10.0, 640.0


class Launcher:
    """All launchers of a job.

    lives:   how often each replica was started
    states:  "up", "catching up", "restarting" or "down" for each replica
    """

    def __init__(self, job: Emulation) -> None:
        self._job = job
        replicas = job.config.replicas
        self.lives = [0] * replicas
        self.states = ["restarting"] * replicas
        self._started = [0.0] * replicas
        self._quick = [0] * replicas
        self._delay = [0.0] * replicas
        self._lost: set[Replica] = set()
        self._ended: list[Process] = []  # whose devices still hold what they held
        self._hangs: set[Address] = set()  # ranks of which the next process hangs as soon as it has started
        self._hung: set[Replica] = set()  # replicas of which the present life has such a process
        self._away_until = [0.0] * replicas  # until when a launcher sees nothing and starts nothing
        self._leased = [0.0] * replicas  # when the leader was last seen with a lease, or could not have one
        self._warm_up = [job.first_warm_up_s] * replicas

    def start_all(self, now: float) -> None:
        for replica in range(self._job.config.replicas):
            self._start(replica, now)
            self._job.kernel.at(now + LOOKS_EVERY_S, self._look, replica)

    def warm_up_s(self, replica: Replica) -> float:
        """How long the throw-away step of the present life takes."""
        return self._warm_up[replica]

    # -- starting ----------------------------------------------------------------------------------

    def _start(self, replica: Replica, now: float) -> None:
        job, config = self._job, self.config_of(replica)
        life = self.lives[replica]
        self.lives[replica] += 1
        self.states[replica] = "catching up"
        self._started[replica] = now
        mates: dict[Position, Process] = {}
        for position in job.positions:
            address = (replica, position)
            rank = Rank(config, replica, position, f"{replica}/{life}", life)
            process = Process(job, rank, job.make_device(replica, position), address)
            process.mates = mates
            if job.folds is not None:
                job.folds.seat(process)
            mates[position] = job.processes[address] = process
            if job.points is not None:
                job.points.watch(process)
            if address in self._hangs:
                self._hangs.remove(address)
                self._hung.add(replica)
                process.stick()
        leader = mates[0]
        job.reached("launcher.start", leader.address)
        job.store.watch(replica, leader.watched)
        leader.handle(e.Started(), now)

    def config_of(self, replica: Replica) -> JobConfig:
        """The configuration that the next life is started with."""
        return self._job.config

    def delay(self, replica: Replica, seconds: float) -> None:
        """The next restart begins so much later."""
        self._delay[replica] += seconds

    def lose(self, replica: Replica, now: float) -> None:
        """The replica is gone for good."""
        self._lost.add(replica)
        if (replica, 0) in self._job.processes:
            self.end(replica, "lost for ever", now)
        else:
            self.states[replica] = "down"

    def _restart_later(self, replica: Replica, now: float) -> None:
        if replica in self._lost:
            self.states[replica] = "down"
            return
        self.states[replica] = "restarting"
        restart = faultinject.draw_restart(
            self._job.config.ranks_per_replica,
            seed=self._job.settings.seed,
            replica=replica,
            life=self.lives[replica],
        )
        self._warm_up[replica] = restart.first_step.seconds
        wait = restart.allocation.seconds + restart.communicator_init.seconds
        wait += self._delay[replica] + self._backoff(replica, now)
        self._delay[replica] = 0.0
        self._job.kernel.at(now + wait, self._restart, (replica, self.lives[replica]))

    def _backoff(self, replica: Replica, now: float) -> float:
        """One that keeps crashing waits longer each time (design 3.5)."""
        if now - self._started[replica] >= QUICK_S + self._warm_up[replica]:
            self._quick[replica] = 0
            return 0.0
        self._quick[replica] += 1
        return min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (self._quick[replica] - 1))

    def _restart(self, which: tuple[Replica, int], now: float) -> None:
        replica, life = which
        if now < self._away_until[replica]:
            self._job.kernel.at(self._away_until[replica], self._restart, which)
        elif life == self.lives[replica] and replica not in self._lost:
            self._start(replica, now)

    # -- ending --------------------------------------------------------------------------------------

    def crashed(self, process: Process, cause: str, now: float) -> None:
        """One process died of its own fault; its launcher sees that in a moment."""
        if not process.alive:
            return
        member = process.member
        self._job.log_crash(process, cause, now)
        self._kill(process, now)
        self._job.kernel.at(now + SEES_DEATH_S, self._seen, (member.replica, self.lives[member.replica]))

    def _seen(self, which: tuple[Replica, int], now: float) -> None:
        replica, life = which
        if now < self._away_until[replica]:
            self._job.kernel.at(self._away_until[replica], self._seen, which)
        elif life == self.lives[replica] and self.states[replica] in ("up", "catching up"):
            self._job.reached("launcher.death", (replica, 0))
            self.end(replica, "a process died", now)

    def left(self, process: Process, reason: str, restart: bool, now: float) -> None:
        """A process ended itself: fenced, or because its replica is broken."""
        if not process.alive:
            return
        current = self._job.processes.get(process.address) is process
        if not current:  # a zombie: the processes of one life end together
            for mate in process.mates.values():
                self._kill(mate, now)
                self._ended.append(mate)
            self._log_exit(process.member, reason, False, now)
            return
        if not restart:
            self._lost.add(process.address[0])
        self.end(process.address[0], reason, now)

    def end(self, replica: Replica, reason: str, now: float, restart: bool = True) -> None:
        """End what is left of the replica, expire its lease at once, and start it again."""
        job = self._job
        job.reached("launcher.end", (replica, 0))
        member = job.processes[replica, 0].member
        for position in job.positions:
            process = job.processes.pop((replica, position))
            self._kill(process, now)
            self._ended.append(process)
        job.store.unwatch(replica)
        self._log_exit(member, reason, replica not in self._lost, now)
        if replica in self._hung:
            self._hung.remove(replica)
            job.injector.life_ended(replica, now)
        if member.incarnation:
            job.store.submit(replica, s.Expire(member), _ignore)
        job.down(replica, now)
        if restart:
            self._restart_later(replica, now)

    def free_ended(self) -> None:
        """Free the devices of processes that were ended. Not at once: one may end in the midst of what its
        device is told to do."""
        for process in self._ended:
            process.device.close()
        self._ended.clear()

    def _log_exit(self, member: MemberId, reason: str, restart: bool, now: float) -> None:
        if member.incarnation:
            self._job.log(["exit", now, member.replica, member.incarnation, reason, restart])

    def _kill(self, process: Process, now: float) -> None:
        """Connections of a process that ends are reset: its peers of equal position learn at once."""
        if not process.alive:
            return
        process.die()
        job, (replica, position) = self._job, process.address
        job.messages_of_the_dead += process.sent * process.weight
        life = process.member.incarnation
        for other in range(job.config.replicas):
            peer = job.processes.get((other, position))
            if other != replica and peer is not None:
                latency = job.network.link(process.address, peer.address)[0]
                lost = e.PeerLost(replica, life, "connection reset")
                job.kernel.at(now + latency, peer.handler, lost)

    def detach(self, replica: Replica, restart: bool = True) -> list[Process]:
        """Take the processes for dead without ending them: they may come back as zombies."""
        processes = [self._job.processes.pop((replica, position)) for position in self._job.positions]
        processes[0].leads = False
        self._job.zombies.append(processes[0])
        self._job.down(replica, self._job.kernel.now)
        if restart:
            self._restart_later(replica, self._job.kernel.now)
        return processes

    def _look(self, replica: Replica, now: float) -> None:
        """A leader that lives without a lease, while the store can be reached, hangs."""
        job = self._job
        job.kernel.at(now + LOOKS_EVERY_S, self._look, replica)
        leader, head = job.processes.get((replica, 0)), job.store.head
        # An unregistered life waits while the store has no head; a registered one renews its lease even then.
        open_to_new = head is not None and head.status is not Status.LOST
        well = (
            leader is None
            or not job.store.reachable(replica)
            or job.store.leased(leader.member)
            or not (leader.member.incarnation or open_to_new)
        )
        if well or now < self._away_until[replica] or self._started[replica] > self._leased[replica]:
            self._leased[replica] = now
        elif (
            now - max(self._leased[replica], job.store.leases_lost)
            > RENEWALS_MISSED * job.config.timeouts.lease / 3
        ):
            self._job.reached("launcher.no_lease", (replica, 0))
            self.end(replica, "the leader has no lease and does not renew it", now)


def _ignore(answer: s.Answer, now: float) -> None:
    """A launcher does not wait for the store's answer."""
