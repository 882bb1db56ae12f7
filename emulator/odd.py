"""What faults have left in one process: a wrong clock, data that will be spoilt, samples that come late.

A process that is well has none of this (``Process.odd`` is None), and nothing asks. One that has some is no
pattern for others, and follows none (``alike.py``), and while there is one, no positions are seated anew
(``reseat.py``).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import messages as m
from ftruntime.protocol.ids import Address

if TYPE_CHECKING:
    from .emulation import Emulation
    from .process import Process
    from .ring_buffers import RingBuffers


SPOILT = "a chunk does not fit its checksum"


class Clock:
    """A clock that runs at its own rate, from a time at which it showed something else than the true one."""

    __slots__ = ("_rate", "_shown", "_since")

    def __init__(self) -> None:
        self._since = self._shown = 0.0
        self._rate = 1.0

    def read(self, now: float) -> float:
        """What it shows at ``now``, seconds."""
        return self._shown + (now - self._since) * self._rate

    def lasts(self, seconds: float) -> float:
        """How long ``seconds`` of this clock really are."""
        return seconds / self._rate

    def jump(self, seconds: float, now: float) -> None:
        self._shown, self._since = self.read(now) + seconds, now

    def run(self, rate: float, now: float) -> None:
        """From ``now`` on it runs ``rate`` times as fast as before; 1 / rate undoes it."""
        self._shown, self._since = self.read(now), now
        self._rate *= rate


class Odd:
    """One process's oddities. Times in seconds.

    clock:        None: the true one
    doom:         of what the next kernel dies
    chunks, ranges: how many of those that it sends next are spoilt on their way
    asks:         how many donors die of its next requests
    host_slow:    how many times slower it hands out ranges
    late:         (until, seconds): a step that begins before ``until`` waits so long for its samples
    samples_at:   no samples before
    full_until:   nothing can be saved before
    """

    __slots__ = ("asks", "chunks", "clock", "doom", "full_until", "host_slow", "late", "ranges", "samples_at")

    def __init__(self) -> None:
        self.clock: Clock | None = None
        self.doom = ""
        self.chunks = self.ranges = self.asks = 0
        self.host_slow = 1.0
        self.late: list[tuple[float, float]] = []
        self.samples_at = 0.0
        self.full_until = 0.0

    def waits_for_samples(self, now: float) -> float:
        """When the samples of a step that begins at ``now`` are there."""
        slow = sum(seconds for until, seconds in self.late if now < until)
        self.late = [(until, seconds) for until, seconds in self.late if now < until < math.inf]
        return max(now, self.samples_at) + slow

    def lasts(self, seconds: float) -> float:
        """How long a timer of ``seconds`` really takes."""
        return seconds if self.clock is None else self.clock.lasts(seconds)


class Checked(NamedTuple):
    """A chunk, and the checksum that it was sent with."""

    chunk: m.Chunk
    checksum: int


def oddities(process: Process) -> Odd:
    """What is wrong with ``process``, to add to."""
    if process.odd is None:
        process.odd = Odd()
        for buffers in process.rings.values():
            buffers.slow = True
    return process.odd


def wrong_clock(process: Process) -> Clock:
    """The clock of ``process``, to be set wrong: from now on the protocol is told what that one shows."""
    odd = oddities(process)
    if odd.clock is not None:
        return odd.clock
    clock = odd.clock = Clock()
    step, hear_chunk = process.step, process.hear_chunk
    process.step = lambda event, now: step(event, clock.read(now))
    process.hear_chunk = lambda source, message, now: hear_chunk(source, message, clock.read(now))
    return clock


def fail(process: Process, reason: str, now: float) -> None:
    """Device or host fail at once. A process that hears nothing cannot end itself: its launcher sees it."""
    if process.deaf:
        process.job.hosts.crashed(process, reason, now)
    else:
        process.die_of(reason, now)


# -- where a process meets its oddities ---------------------------------------------------------------


def kernel_fails(process: Process, now: float) -> bool:
    """Whether the kernel that is to run now ends the process."""
    odd = process.odd
    if odd is None or not odd.doom:
        return False
    process.die_of(odd.doom, now)
    return True


def samples_at(process: Process, reuse: bool, now: float) -> float:
    """When the samples of a step that begins at ``now`` are there. Gradients that were kept need none."""
    return now if process.odd is None or reuse else process.odd.waits_for_samples(now)


def save_fails(process: Process, effect: f.SaveShard, now: float) -> bool:
    """Whether a shard cannot be written, for the disk is full."""
    if process.odd is None or now >= process.odd.full_until:
        return False
    failed = e.Saved(effect.name, False, "no space is left on the disk")
    process.job.kernel.at(now, process.handler, failed)
    return True


def sends_range(process: Process, data: Any) -> tuple[float, Any]:
    """How long a range of the state takes to send, and what it is then; None where the donor has none."""
    odd, seconds = process.odd, process.device.range_bytes / process.job.host_bps
    if odd is None:
        return seconds, data
    if odd.ranges and data is not None:
        odd.ranges -= 1
        data = process.device.spoilt_range(data)
    return seconds * odd.host_slow, data


def asks_doomed_donor(process: Process, message: m.Message, to: Address, now: float) -> None:
    """The donor that is asked for a range may die of it."""
    odd = process.odd
    if odd is not None and odd.asks and type(message) is m.RangeRequest:
        odd.asks -= 1
        process.job.kernel.at(now, partial(_donor_dies, process.job), to)


def _donor_dies(job: Emulation, address: Address, now: float) -> None:
    """The fault names the rank that asked; so the log says which one it hit."""
    process = job.processes.get(address)
    if process is not None and process.alive:
        job.log(["fault", now, {"kind": "donor_lost", "rank": list(address)}])
        job.hosts.crashed(process, "donor lost", now)


def send_spoilt(process: Process, buffers: RingBuffers, chunk: m.Chunk, arrival: float) -> bool:
    """Whether a chunk of ``process`` goes out to arrive with one wrong bit, and the checksum that it had."""
    odd = process.odd
    if odd is None or not odd.chunks:
        return False
    odd.chunks -= 1
    checksum, data = process.device.chunk_sum(chunk.data), process.device.spoilt(chunk.data)
    spoilt = m.Chunk(chunk.round, chunk.incarnation, chunk.seq, chunk.push, data)
    buffers.at(arrival, partial(_hear_checked, buffers.right.__self__), Checked(spoilt, checksum))
    return True


def _hear_checked(process: Process, event: Checked, now: float) -> None:
    """A chunk whose checksum does not go without saying: one that does not fit is never used."""
    chunk = event.chunk
    if process.deaf:
        return  # a connection that nobody serves breaks: the chunk is sent again over the next one
    if process.device.chunk_sum(chunk.data) == event.checksum:
        process.on_chunk(chunk, now)
    elif chunk.round in process.rings:
        left = process.rings[chunk.round].left
        process.handle(e.Transient(chunk.round, left, SPOILT), now)
