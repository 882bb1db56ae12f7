"""What a process hears of connections to other replicas that fail, are refused, or are made anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol.ids import Address, Incarnation, Replica, Round

if TYPE_CHECKING:
    from .process import Process


def refused(process: Process, to: Address, back: float, now: float) -> None:
    """Nobody is there, or not yet: the connection to the peer's last life is refused at once."""
    refused_by(process, to[0], process.job.hosts.known(to), back, now)


def refused_by(process: Process, peer: Replica, life: Incarnation, back: float, now: float) -> None:
    """The protocol hears at ``back`` that nobody is where ``peer`` had ``life`` last."""
    if process.reported.get(peer, 0.0) > now:
        return  # under way already
    process.reported[peer] = back
    process.job.kernel.at(back, process.handler, e.PeerLost(peer, life, "connection refused"))


def failed(process: Process, to: Address, round: Round, now: float) -> None:
    """Tell the protocol, once, when the connection to ``to`` gives up."""
    failure = process.job.network.failure(process.address, to)
    peer = to[0]
    if process.reported.get(peer) == failure.time:
        return
    process.reported[peer] = failure.time
    event: e.Event
    if failure.lost:
        event = e.PeerLost(peer, _life_at(process, to), "the connection was reset")
    else:
        event = e.Transient(round, peer, "retry exceeded")
    process.job.kernel.at(max(now, failure.time), process.handler, event)


def reconnect(process: Process, effect: f.Reconnect, now: float) -> None:
    """Up again when the network says; lost when it does not come back in time."""
    job, to = process.job, (effect.peer, process.address[1])
    up = job.network.connected(process.address, to, now)
    if up == math.inf:
        lost = e.PeerLost(effect.peer, _life_at(process, to), "no fresh connection")
        job.kernel.at(now + job.reset_after_s, process.handler, lost)
    else:
        job.kernel.at(up, process.handler, e.Reconnected(effect.peer))


def _life_at(process: Process, to: Address) -> Incarnation:
    """Of the process that is there; 0 if there is none."""
    target = process.job.processes.get(to)
    if target is None and process.job.elsewhere is not None:
        return process.job.hosts.known(to)
    return 0 if target is None else target.member.incarnation
