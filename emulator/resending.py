"""Links inside a replica that fail: what was lost is sent again, in order, until the connection is reset."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address

from .network import CONTROL_BYTES

if TYPE_CHECKING:
    from .process import Process

SENT_AGAIN_S = 0.2  # as operating systems do


class Resending:
    """What one process has still to tell a mate over a link that fails.

    since: when it last came through, seconds
    """

    __slots__ = ("_handler", "_process", "_since", "_to", "_waiting", "address")

    def __init__(self, process: Process, to: Address, now: float) -> None:
        self._process, self._to, self._since = process, to, now
        self.address = process.address
        self._waiting: deque[m.Message] = deque()
        self._handler = self._again
        process.job.kernel.at(now, self._handler, None)

    def add(self, message: m.Message) -> None:
        self._waiting.append(message)

    def _again(self, _: object, now: float) -> None:
        process, to, waiting = self._process, self._to, self._waiting
        job = process.job
        while waiting and process.alive:
            arrival = job.network.arrival(process.address, to, CONTROL_BYTES, now)
            if arrival == math.inf:
                break
            job.reach(process, to, waiting.popleft(), arrival)
            self._since = now
        if waiting and process.alive and now - self._since < job.reset_after_s:
            job.kernel.at(now + SENT_AGAIN_S, self._handler, None)
            return
        del process.unsent[to]
        if waiting and process.alive:
            reason = f"the connection to rank {to[1]} was reset"
            lost = e.PeerLost(to[0], process.member.incarnation, reason)
            job.kernel.at(now, process.handler, lost)
