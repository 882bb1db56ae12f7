"""FTAR over plain sockets against gloo, on one machine, in one run (docs/driver.md has figures).

    python benchmarks/ftar_wire.py                    2 processes, 64 MiB
    python benchmarks/ftar_wire.py --members 4 --mib 64 --chunk-mib 4

Each process sums one float32 bucket over all, three ways in turn: FTAR as the runtime does it (the protocol's
ring with slots and credits, chunks over this project's connections), torch's own gloo all-reduce, and the
same ring made of gloo's isend and irecv. Prints the median, best and 90th percentile of each in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from typing import Any

import numpy as np

from ftruntime.driver.links import Links
from ftruntime.driver.memory import Bytes, Pool
from ftruntime.driver.ring_bytes import RingBytes, adder
from ftruntime.protocol import effects as f
from ftruntime.protocol import messages as m
from ftruntime.protocol.congestion import Tier, fresh_window
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import Address, MemberId
from ftruntime.protocol.ring import Ring
from ftruntime.stores import Seat
from ftruntime.wire import Endpoint, Frame, Loop, Who


class Sums:
    """One member of a ring that does nothing but sum: the driver's data plane and the protocol's ring."""

    def __init__(self, index: int, members: int, size: int, chunk: int, slots: int) -> None:
        self.index, self.members, self.size = index, members, size
        self.shape = geometry((size,), members, chunk, slots)
        self.loop, self.pool, self.add = Loop(), Pool(), adder("float32")
        who = Who("rank", "bench", index, 0, 0, 1)
        self.links = Links(
            self.loop, "127.0.0.1", b"a token for a benchmark", lambda: who, self._landing, self._heard,
            lambda *lost: sys.exit(f"lost {lost}"), lambda *mended: None, lambda: None,
        )  # fmt: skip
        self.round, self.ring, self.bytes, self.early = 0, None, None, []

    def meet(self, endpoints: list[Endpoint]) -> None:
        self.links.seated([Seat(i, 0, 0, endpoint) for i, endpoint in enumerate(endpoints)])
        self.links.connect([(i, 0) for i in range(self.members) if i != self.index])
        while not all(self.links.up((i, 0)) for i in range(self.members) if i != self.index):
            self.loop.turn()

    def sum(self, grads: Bytes) -> Bytes:
        """One round; returns the sums."""
        self.round += 1
        left, right = ((self.index + k) % self.members for k in (-1, 1))
        self.slots = [memoryview(b"")] * self.shape.slots
        self.bytes = RingBytes(self.pool, self.shape, self.index, [grads], self.add)
        self.ring = Ring(
            self.shape, MemberId(self.index, 1), MemberId(left, 1), MemberId(right, 1), position=0,
            round=self.round, window=fresh_window(Tier.RACK, self.shape.slots), contributing=True,
            chunk_timeout=1000.0, max_retries=0,
        )  # fmt: skip
        out = []
        self.ring.start(self.loop.now(), out)
        self.ring.bucket_ready(0, self.loop.now(), out)
        self._carry_out(out)
        early, self.early = self.early, []
        for source, message in early:
            self._heard(source, message, None)
        while not self.ring.finished:
            self.loop.turn()
        return self.bytes.sums[0]

    def _landing(self, source: Address, message: Any, size: int) -> memoryview:
        assert message.round == self.round
        return memoryview(self.bytes.landing(message.seq))

    def _heard(self, source: Address, message: Any, payload: object) -> None:
        if message.round > self.round:
            self.early.append((source, message))
            return
        out = []
        self.ring.handle(source[0], message, self.loop.now(), out)
        self._carry_out(out)

    def _carry_out(self, effects: list[f.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, f.Send):
                self.links.send(effect.to, effect.message)
            elif isinstance(effect, f.Post):
                self._post(effect)

    def _post(self, p: f.Post) -> None:
        if p.filled:
            data = self.slots[p.give % len(self.slots)]
        else:
            made = self.bytes.take(p.take) if p.take >= 0 else self.bytes.produce(p.give)
            if p.give < 0:
                return
            data = self.slots[p.give % len(self.slots)] = memoryview(made)
        if p.send:
            to = ((self.index + 1) % self.members, 0)
            self.links.transfer(to, Frame(m.Chunk(p.round, 1, p.give, p.push), (data,), p.round))


def gloo_ring(dist: Any, tensor: Any, total: Any, members: int, index: int) -> None:
    """The same all-reduce out of isend and irecv, a whole partition at a time."""
    parts = list(tensor.chunk(members))
    sums = list(total.chunk(members))
    left, right = (index - 1) % members, (index + 1) % members
    for step in range(2 * (members - 1)):
        out = (index - step) % members
        into = (index - step - 1) % members
        sent = dist.isend(parts[out] if step == 0 else sums[out], right)
        dist.irecv(sums[into], left).wait()
        if step < members - 1:
            sums[into] += parts[into]
        sent.wait()


def member(index: int, arguments: argparse.Namespace, pipe: Any) -> None:
    """One process: meet the others, then time the three ways in turn."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=index, world_size=arguments.members)
    size = arguments.mib << 20
    ours = Sums(index, arguments.members, size, arguments.chunk_mib << 20, arguments.slots)
    pipe.send(ours.links.endpoint)
    ours.meet(pipe.recv())
    values = np.random.default_rng(index).standard_normal(size // 4).astype(np.float32)
    tensor, total = torch.from_numpy(values), torch.empty(size // 4)
    expected = tensor.clone()
    dist.all_reduce(expected)
    took = {"ftar": [], "gloo": [], "gloo isend/irecv": []}
    for turn in range(arguments.turns + 2):
        scratch = tensor.clone()
        ways = {
            "ftar": lambda: ours.sum(values.view(np.uint8)),
            "gloo": lambda scratch=scratch: dist.all_reduce(scratch),
            "gloo isend/irecv": lambda: gloo_ring(dist, tensor, total, arguments.members, index),
        }
        for name, way in ways.items():
            dist.barrier()
            begin = time.perf_counter()
            result = way()
            if turn >= 2:
                took[name].append(time.perf_counter() - begin)
            if name == "ftar" and turn == 0:
                torch.testing.assert_close(torch.from_numpy(result.view(np.float32)), expected)
    pipe.send(took)
    pipe.recv()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--chunk-mib", type=int, default=4)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:  # for gloo's own store
        arguments.port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for index in range(arguments.members):
        near, far = spawn.Pipe()
        process = spawn.Process(target=member, args=(index, arguments, far), daemon=True)
        process.start()
        pipes.append(near)
        processes.append(process)
    endpoints = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(endpoints)
    took = [pipe.recv() for pipe in pipes]
    figures = {}
    for name in took[0]:
        slowest = sorted(max(values) for values in zip(*(t[name] for t in took), strict=True))
        figures[name] = {
            "median_ms": 1e3 * statistics.median(slowest),
            "best_ms": 1e3 * slowest[0],
            "p90_ms": 1e3 * slowest[int(0.9 * (len(slowest) - 1))],
        }
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, row in figures.items():
            print(f"{name:18s}" + "".join(f"  {key[:-3]} {value:8.1f} ms" for key, value in row.items()))
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join(10)


if __name__ == "__main__":
    main()
