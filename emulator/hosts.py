"""The hosts of a job's ranks: they start processes, end them, and report who died.

Hosts know what happens on them and nothing else; when a replica starts or ends is the launcher's decision,
and comes as a command (``commands.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ftruntime.protocol import events as e
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.ids import Address, Incarnation, Position, Replica
from ftruntime.protocol.rank import Rank

from .commands import AskToLeave, Detach, Died, End, Forget, Inject, Left, Life, Start, Told
from .process import Process

if TYPE_CHECKING:
    from .emulation import Emulation

Team = dict[Position, Process]  # the processes of one life of a replica


class Hosts:
    """The processes of the positions that are run here.

    teams:    those of each life that has not been ended
    warm_up:  how long the throw-away step of the present life takes, by replica
    """

    def __init__(self, job: Emulation) -> None:
        self._job = job
        self.teams: dict[Life, Team] = {}
        self.warm_up = [0.0] * job.config.replicas
        self._ended: list[Process] = []  # whose devices still hold what they held
        self._known: dict[Address, Incarnation] = {}  # the last life that was seen to end

    def hear(self, command: Told, now: float) -> None:
        HEAR[type(command)](self, command, now)

    # -- starting and ending ---------------------------------------------------------------------------

    def _start(self, command: Start, now: float) -> None:
        job, (replica, life) = self._job, command.life
        self.warm_up[replica] = command.warm_up_s
        team: Team = {}
        self.teams[command.life] = team
        config = other_configuration(job.config) if command.misconfigured else job.config
        for position in job.positions:
            address = (replica, position)
            rank = Rank(config, replica, position, f"{replica}/{life}", life)
            process = Process(job, rank, job.make_device(replica, position), address, command.life)
            process.mates = team
            if job.folds is not None:
                job.folds.seat(process)
            team[position] = job.processes[address] = process
            if job.points is not None:
                job.points.watch(process)
            if position in command.hang:
                process.stick()
        if 0 in team:
            job.hub_of_leaders.watch(team[0])
            until = job.settings.steps if job.settings.agreed_end else 0
            team[0].handle(e.Started(until), now)

    def _end(self, command: End, now: float) -> None:
        team = self.teams.pop(command.life, {})
        for process in team.values():
            if self._job.processes.get(process.address) is process:
                del self._job.processes[process.address]
                if not process.member.incarnation:
                    self._attach_older(process.address)
            self.kill(process, now)
            self._ended.append(process)
        if self._job.elsewhere is not None:
            self._job.elsewhere.ended(command.life, now)

    def _attach_older(self, address: Address) -> None:
        """A process that was started too early went before it was registered, so it has fenced nobody: the
        one beside which it was started still runs, and is reached again."""
        replica, position = address
        for life in sorted((life for life in self.teams if life[0] == replica), reverse=True):
            older = self.teams[life].get(position)
            if older is not None and older.alive:
                self._job.processes[address] = older
                if older in self._job.zombies:
                    self._job.zombies.remove(older)
                    older.leads = True
                return

    def detach(self, replica: Replica) -> list[Process]:
        """Take the processes for dead without ending them: they may come back as zombies."""
        found = [self._job.processes.pop((replica, p), None) for p in self._job.positions]
        processes = [process for process in found if process is not None]
        for process in processes:
            if process.leads:
                process.leads = False
                self._job.zombies.append(process)
        return processes

    def free_ended(self) -> None:
        """Free the devices of processes that were ended. Not at once: one may end in the midst of what its
        device is told to do."""
        for process in self._ended:
            process.device.close()
        self._ended.clear()

    # -- dying -------------------------------------------------------------------------------------------

    def crashed(self, process: Process, cause: str, now: float) -> None:
        """One process died of its own fault; its launcher sees that in a moment."""
        if process.alive:
            self._job.log_crash(process, cause, now)
            self.kill(process, now)
            self._job.report(Died(process.life), now)

    def left(self, process: Process, reason: str, restart: bool, now: float) -> None:
        """A process ended itself."""
        if process.alive:
            self.kill(process, now)
            self._job.report(Left(process.life, process.member.incarnation, reason, restart), now)

    def kill(self, process: Process, now: float) -> None:
        """Connections of a process that ends are reset: its peers of equal position learn at once."""
        if not process.alive:
            return
        process.die()
        job, (replica, position) = self._job, process.address
        job.messages_of_the_dead += process.sent * process.weight
        incarnation = process.member.incarnation
        if incarnation:
            self._known[process.address] = incarnation
        lost = e.PeerLost(replica, incarnation, "connection reset")
        for other in range(job.config.replicas):
            peer = job.processes.get((other, position))
            if other != replica and peer is not None:
                latency = job.network.link(process.address, peer.address)[0]
                job.kernel.at(now + latency, peer.handler, lost)
        if job.elsewhere is not None:
            job.elsewhere.died(process, now)

    def saw(self, address: Address, incarnation: Incarnation) -> None:
        """Somebody at ``address``, which is run elsewhere, has this life, or had it last."""
        self._known[address] = max(incarnation, self._known.get(address, 0))

    def known(self, address: Address) -> Incarnation:
        """The last life that anybody had a connection to at ``address``; 0 if none had."""
        process = self._job.processes.get(address)
        incarnation = 0 if process is None else process.member.incarnation
        return incarnation or self._known.get(address, 0)

    # -- the rest ------------------------------------------------------------------------------------------

    def _inject(self, command: Inject, now: float) -> None:
        self._job.inject(command.faults, now)

    def _detach(self, command: Detach, now: float) -> None:
        self.detach(command.replica)

    def _ask(self, command: AskToLeave, now: float) -> None:
        leader = self.teams.get(command.life, {}).get(0)
        if leader is not None:
            leader.handle(e.Leave(), now)

    def _forget(self, command: Forget, now: float) -> None:
        storage = self._job.storage
        for name in [name for name in storage if name not in command.recorded]:
            if int(name.split("-")[1]) < command.oldest:
                storage.delete(name)


def other_configuration(config: JobConfig) -> JobConfig:
    """What an operator may start a replica with by mistake: the job refuses it."""
    return msgspec.structs.replace(config, samples_per_step=config.samples_per_step + 1)


HEAR: dict[type[Told], Callable[[Hosts, Any, float], None]] = {
    Start: Hosts._start,
    End: Hosts._end,
    Inject: Hosts._inject,
    Detach: Hosts._detach,
    AskToLeave: Hosts._ask,
    Forget: Hosts._forget,
}
