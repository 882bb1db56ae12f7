"""Packets between workers over torch.distributed's gloo: one send and one receive for each peer and window.

gloo's own waiting has no bound but that of its group, and a lost peer shows as an error of the pending
receive. Both are told in one line that names the worker.
"""

from __future__ import annotations

import datetime
import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from .errors import WorkersError

LOOPBACK = "127.0.0.1"
LOOKS_EVERY_S = 0.02  # for who has come
REAPED_S = 1.0  # until a process that lost its connection is seen to have ended
FIRST = 1 << 14  # bytes of the first message of a packet; what does not fit comes in a second
HEADER = struct.Struct("<I")


class Meeting(NamedTuple):
    """Where workers meet. ``seconds``: how long they wait for each other, at most, always."""

    address: str
    port: int
    rank: int
    workers: int
    seconds: float = 300.0


class Wire:
    """The group of all workers.

    lost: says of processes that this one started which have ended, and how; "" if none has
    """

    def __init__(self, meeting: Meeting, lost: Callable[[], str] = lambda: "") -> None:
        """Meet the others. Raises WorkersError when one does not come in time, or the port is taken."""
        self.rank, self.workers = meeting.rank, meeting.workers
        self.others = [rank for rank in range(meeting.workers) if rank != meeting.rank]
        self._lost_children = lost
        self._out = {rank: torch.zeros(FIRST, dtype=torch.uint8) for rank in self.others}
        self._in = {rank: torch.zeros(FIRST, dtype=torch.uint8) for rank in self.others}
        self._store = _store(meeting)
        _gather(self._store, meeting, lost)
        if meeting.address == LOOPBACK:  # else gloo would look up this machine's name
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        try:
            dist.init_process_group(
                "gloo",
                store=dist.PrefixStore("workers", self._store),
                rank=meeting.rank,
                world_size=meeting.workers,
                timeout=datetime.timedelta(seconds=meeting.seconds),
            )
        except RuntimeError as error:
            raise WorkersError(f"workers cannot be connected: {_why(error)}") from None

    def agree(self, what: str, value: str) -> None:
        """Hold ``value`` against every other worker's. Raises WorkersError naming who differs."""
        for rank, theirs in self.exchange(dict.fromkeys(self.others, value.encode())).items():
            if theirs.decode() != value:
                raise WorkersError(
                    f"worker {rank} has {what} {theirs.decode()}, worker {self.rank} has {value}: "
                    "install the same version of fthsdp everywhere and give every worker the same settings"
                )

    def exchange(self, packets: dict[int, bytes]) -> dict[int, bytes]:
        """Give each other worker its packet and take theirs. Raises WorkersError when one is lost."""
        sends: list[tuple[int, Any]] = []
        for rank, packet in packets.items():
            sends += [(rank, work) for work in self._send(rank, packet)]
        found = {rank: self._receive(rank) for rank in self.others}
        for rank, work in sends:
            self._finish(rank, work)
        return found

    def tell(self, rank: int, packet: bytes) -> None:
        """Give one worker a packet. Raises WorkersError when it is lost."""
        for work in self._send(rank, packet):
            self._finish(rank, work)

    def hear(self, rank: int) -> bytes:
        """Take the next packet of one worker. Raises WorkersError when it is lost."""
        return self._receive(rank)

    def _send(self, rank: int, packet: bytes) -> list[Any]:
        """Start sending."""
        first, room = self._out[rank].numpy(), FIRST - HEADER.size
        first[: HEADER.size] = np.frombuffer(HEADER.pack(len(packet)), np.uint8)
        head = packet[:room]
        first[HEADER.size : HEADER.size + len(head)] = np.frombuffer(head, np.uint8)
        works = [self._start(rank, self._out[rank])]
        if len(packet) > room:
            works.append(self._start(rank, torch.frombuffer(bytearray(packet[room:]), dtype=torch.uint8)))
        return works

    def _start(self, rank: int, tensor: torch.Tensor) -> Any:
        try:
            return dist.isend(tensor, rank)
        except RuntimeError as error:
            raise self._lost(rank, error) from None

    def _receive(self, rank: int) -> bytes:
        try:
            dist.recv(self._in[rank], rank)
            raw = self._in[rank].numpy().tobytes()
            (length,) = HEADER.unpack_from(raw)
            left = length - (FIRST - HEADER.size)
            if left <= 0:
                return raw[HEADER.size : HEADER.size + length]
            rest = torch.empty(left, dtype=torch.uint8)
            dist.recv(rest, rank)
        except RuntimeError as error:
            raise self._lost(rank, error) from None
        return raw[HEADER.size :] + rest.numpy().tobytes()

    def _finish(self, rank: int, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self._lost(rank, error) from None

    def _lost(self, rank: int, error: RuntimeError) -> WorkersError:
        said = _first_line(error)
        if "imed out" in said:
            return WorkersError(f"worker {rank} said nothing in time: is its machine overloaded or stopped?")
        until = time.monotonic() + REAPED_S
        while not (ended := self._lost_children()) and time.monotonic() < until:
            time.sleep(0.01)
        return WorkersError(ended or f"worker {rank} is gone: {said.rsplit('] ', 1)[-1]}")

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _store(meeting: Meeting) -> dist.Store:
    """Worker 0 serves it. Under torchrun its agent may serve one at the address: that one is taken."""
    serves = meeting.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    where = f"{meeting.address}:{meeting.port}"
    try:
        return dist.TCPStore(
            meeting.address,
            meeting.port,
            is_master=serves,
            timeout=datetime.timedelta(seconds=meeting.seconds),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        if not serves:
            raise WorkersError(
                f"worker {meeting.rank} does not reach worker 0 at {where} within {meeting.seconds:g} s"
            ) from None
        taken = "EADDRINUSE" in str(error) or "already in use" in str(error)
        why = "in use" if taken else f"not to be had ({_first_line(error)})"
        raise WorkersError(f"port {where} is {why}: choose another --port") from None


def _gather(store: dist.Store, meeting: Meeting, lost: Callable[[], str]) -> None:
    """Wait until all are there. Raises WorkersError that names who is not."""
    store.set(f"here/{meeting.rank}", "")
    missing, until = list(range(meeting.workers)), time.monotonic() + meeting.seconds
    while missing := [rank for rank in missing if not store.check([f"here/{rank}"])]:
        if ended := lost():
            raise WorkersError(f"{ended} before it had met the others")
        if time.monotonic() >= until:
            names = ", ".join(map(str, missing))
            raise WorkersError(
                f"of {meeting.workers} workers {names} did not come within {meeting.seconds:g} s: is each "
                f"started, with the same --workers, and does it reach {meeting.address}:{meeting.port}?"
            )
        time.sleep(LOOKS_EVERY_S)


def _why(error: Exception) -> str:
    """In one line; with the mend where the cause is known."""
    if "open files" in str(error):
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"too many open files for the limit of {most}: raise it (ulimit -n 1024), or lower --workers"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def free_port() -> int:
    """A port of the loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
