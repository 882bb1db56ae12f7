"""When other positions can be run than before, and how the change is made.

It is made while every rank of every replica applies one and the same round: a fifth of a second in which
nothing is under way but the answers of the devices (``ftruntime/protocol/twin.py``). A replica that has no
process then is no hindrance; one that catches up is. A position that begins to be run becomes what the one
was that has stood for it, with a state of its own made from that one's: the same in all replicas, though not
the one that it would have come to by itself. A position that is run no more goes without a trace: who stands
for it equals it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftruntime.protocol import events as e
from ftruntime.protocol.ids import Position, Replica, Round
from ftruntime.protocol.twin import image, resting, twin

from .device import FingerprintDevice
from .folding import Seating
from .mixing import GOLDEN, mix
from .process import Process

if TYPE_CHECKING:
    from .emulation import Emulation


def state_of(position: Position, state: int) -> int:
    """A state for ``position`` from the ``state`` of who has stood for it."""
    return mix(state ^ mix(position * GOLDEN + 1))


def quiet(job: Emulation, round: Round, now: float) -> bool:
    """Whether every process that there is applies ``round``, which all of them trained, and nothing else is
    going on that touches more than single positions."""
    if job.network.faulty or any(process.alive for process in job.zombies):
        return False
    return all(_applies(process, round, now) for process in job.processes.values())


def _applies(process: Process, round: Round, now: float) -> bool:
    well = process.alive and not process.deaf and not process.stall
    idle = not process.unsent and not process.rings and not process.lane.pending
    if not (well and idle and process.pending is not None and resting(process.rank.member)):
        return False
    change = process.rank.member._change
    return change is not None and change.round == round and _bare(process.device, now)


def _bare(device: FingerprintDevice, now: float) -> bool:
    """The device holds its state and nothing else, and no fault waits in it."""
    held = device.resources()
    free = not any(held.values()) and not device.has_gradients and device.flip < 0 and not device.nan
    return free and now < device.compute.free


def standing(job: Emulation, position: Position, now: float) -> tuple[object, ...]:
    """How the ranks at ``position`` stand in all replicas: where equal, they do the same from here on."""
    found: list[object] = []
    for replica in range(job.config.replicas):
        process = job.processes.get((replica, position))
        if process is not None:
            device = process.device
            streams = [max(now, s.free) for s in (device.compute, device.copy)]
            nic, free = job.network.nic(process.address)
            times = (*streams, max(now, process.host_free), max(now, free[nic]))
            memory = (device.hbm.used, device.host.used)
            found.append((replica, image(process.rank.member), times, device.slow, memory))
    return tuple(found)


def reseat(job: Emulation, old: Seating, new: Seating) -> list[list[Any]]:
    """Run the positions of ``new`` from here on. Returns what the log says of those that were not run
    before."""
    for process in job.processes.values():
        job.messages_of_the_dead += process.sent * process.weight
        process.sent = 0
    fresh = [position for position in new.positions if position not in old.counts]
    gone = [position for position in old.positions if position not in new.counts]
    _share_out(job, old, fresh)
    states = [_seat(job, replica, old, fresh) for replica in job.running_replicas()]
    for replica in job.running_replicas():
        mates = job.processes[replica, 0].mates
        for position in gone:
            del mates[position]
            job.processes.pop((replica, position)).die()
    return states


def _share_out(job: Emulation, old: Seating, fresh: list[Position]) -> None:
    """Checkpoints have a shard for each position that is run; one of long ago is still the position's."""
    for shards in job.storage.values():
        for position in fresh:
            if position not in shards:
                state = state_of(position, shards[old.stands_in[position]][0])
                shards[position] = (state, state)


def _seat(job: Emulation, replica: Replica, old: Seating, fresh: list[Position]) -> list[Any]:
    """Processes for ``fresh`` in ``replica``; what the log says of them."""
    mates = job.processes[replica, 0].mates
    said: list[list[int]] = []
    for position in fresh:
        model = mates[old.stands_in[position]]
        mates[position] = job.processes[replica, position] = process = _double(job, model, position)
        said.append([position, process.device.digest()])
    leader = mates[0]
    return [replica, leader.member.incarnation, leader.device.step, leader.device.lineage, said]


def _double(job: Emulation, model: Process, position: Position) -> Process:
    """A process at ``position`` that is as far as ``model``: it applies, and will say so when it is done."""
    address = (model.address[0], position)
    device = model.device.twin(position, state_of(position, model.device.state))
    process = Process(job, twin(model.rank, position), device, address, model.life)
    process.mates = model.mates
    process.host_free, process.source = model.host_free, model.source
    process.reported = dict(model.reported)
    round = next(iter(process.rank.member.shares))
    process.pending = []  # the log has it already
    job.kernel.at(device.compute.free, process.on_changed, e.Applied(round))
    return process
