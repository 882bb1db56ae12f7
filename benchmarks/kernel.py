"""What the parts under every emulated message cost, alone: microseconds each, best of several rounds.

    python benchmarks/kernel.py [--ranks 98304] [--json]

One step of 98,304 ranks is about 2.2 million chunk messages a bucket. Each costs an event, an arrival
and a chunk of the device; a rank and step costs a handful of log entries and the device's step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from emulator.compute import ComputeConfig, ComputeModel
from emulator.device import FingerprintDevice, Shared
from emulator.hardware import MemoryConfig
from emulator.kernel import Kernel, settled_heap
from emulator.netfaults import Group, LinkFault, LinkFaultKind
from emulator.network import CONTROL_BYTES, Network, NetworkConfig
from ftruntime.log.eventlog import EventLog
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ledger import SampleRange
from ftruntime.seams import Corpus

REPLICAS = 12
CHUNK = 8 << 20
ROUNDS = 5
ROOT = "0" * 32
GEOMETRY = geometry((96 << 20,), REPLICAS, CHUNK, 8)
RANGES = (SampleRange(3, 800, 8),)
CORPUS = Corpus(0x1234567890ABCDEF, lambda: b"")


def best(work: Callable[[], int]) -> float:
    """Microseconds for each of the things that ``work`` says it did, in its fastest round."""
    figures = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = work()
        figures.append((time.perf_counter() - start) / done * 1e6)
    return min(figures)


class Rank:
    """Gets an event and sends the next: what a rank does at the least."""

    __slots__ = ("bound", "kernel", "left")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.left = kernel, 0
        self.bound = self.handle

    def handle(self, event: object, now: float) -> None:
        if self.left:
            self.left -= 1
            self.kernel.at(now + 1.0, self.bound, event)


def events(ranks: int) -> float:
    kernel = Kernel()
    all_ranks = [Rank(kernel) for _ in range(ranks)]

    def work() -> int:
        before = kernel.events
        for rank in all_ranks:
            rank.left = 10
            kernel.at(kernel.now + 1.0, rank.bound, None)
        kernel.run()
        return kernel.events - before

    return best(work)


def messages(ranks: int, faulty: bool) -> float:
    network = Network(REPLICAS, ranks // REPLICAS, NetworkConfig())
    if faulty:  # one replica is touched; the messages of all others must stay cheap
        group = Group(replicas=frozenset({0}))
        network.add(LinkFault(LinkFaultKind.BANDWIDTH, 0.0, 1e9, group, amount=0.5))
    links = [((r, p), ((r + 1) % REPLICAS, p)) for r in range(REPLICAS) for p in range(ranks // REPLICAS)]

    def work() -> int:
        arrival = network.arrival
        for source, target in links:
            arrival(source, target, CHUNK, 1.0)
        return len(links)

    return best(work)


def tree_messages(ranks: int) -> float:
    network = Network(REPLICAS, ranks // REPLICAS, NetworkConfig())
    links = [((r, p), (r, p // 32)) for r in range(REPLICAS) for p in range(ranks // REPLICAS)]

    def work() -> int:
        arrival = network.arrival
        for source, target in links:
            arrival(source, target, CONTROL_BYTES, 1.0)
        return len(links)

    return best(work)


def devices(ranks: int) -> list[FingerprintDevice]:
    model = ComputeModel(ComputeConfig(), 1, 0)
    shared = Shared(0, GEOMETRY.buckets, 2 * 8 * CHUNK, 8, "device", MemoryConfig(), model)
    per = ranks // REPLICAS
    return [FingerprintDevice(rank // per, rank % per, shared, ROOT) for rank in range(ranks)]


def chunks(ranks: int) -> float:
    exchanges = []
    for device in devices(ranks // 4):
        device.launch(RANGES, CORPUS, False, 0.0)
        exchanges.append(device.exchange(1, GEOMETRY, device.replica))

    def work() -> int:
        for exchange in exchanges:
            exchange._done.clear()
            data = exchange.produce(0)
            for number in range(GEOMETRY.total):
                data = exchange.take(number, data)
        return len(exchanges) * GEOMETRY.total

    return best(work)


def rank_steps(ranks: int) -> float:
    """All that a device does in a step, less its chunks: launch, buffers, scalars, apply."""
    everyone, rounds = devices(ranks // 4), iter(range(ROUNDS))

    def work() -> int:
        round = next(rounds)
        for device in everyone:
            device.launch(RANGES, CORPUS, False, 0.0)
            device.computed()
            device.exchange(round, GEOMETRY, device.replica)._done.extend(range(GEOMETRY.finished_total))
            device.apply(round, ROOT, 12, 1.0, device.measure(round), 0.0)
        return len(everyone)

    return best(work)


def log_entries(ranks: int, to_disk: bool) -> float:
    """Without a disk: what the run itself pays. With it: also what the writer's thread takes, when it
    has to keep up with nothing but logging."""
    ranges, grads = [[3, 800, 8]], [0xFEDCBA0987654321]
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder) / "events.log" if to_disk else None)

        def work() -> int:
            for rank in range(ranks):
                digest = rank * 0x9E3779B97F4A7C15 & (1 << 64) - 1
                replica, position = rank % REPLICAS, rank // REPLICAS
                log(["computed", 12.5, replica, 1, position, 7, ROOT, digest, ranges, digest ^ 1, grads])
            return ranks

        figure = best(work)
        log.close()
    return figure


def measure(ranks: int) -> dict[str, float]:
    """Each figure in microseconds."""
    with settled_heap():
        return {
            "event": events(ranks),
            "network_message": messages(ranks, faulty=False),
            "network_message_while_another_replica_is_faulty": messages(ranks, faulty=True),
            "tree_message": tree_messages(ranks),
            "device_chunk": chunks(ranks),
            "device_step_without_chunks": rank_steps(ranks),
            "log_entry": log_entries(ranks, to_disk=False),
            "log_entry_to_disk_flat_out": log_entries(ranks, to_disk=True),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=98_304)
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    options = parser.parse_args()
    if options.ranks < 4 * REPLICAS:
        parser.error(f"--ranks is {options.ranks}; give at least {4 * REPLICAS}")
    figures = measure(options.ranks)
    if options.json:
        where = {"python": platform.python_version(), "cpus": os.cpu_count(), "ranks": options.ranks}
        print(json.dumps({"us": {name: round(us, 3) for name, us in figures.items()}, **where}))
        return
    for name, us in figures.items():
        print(f"{us:8.3f} us  {name.replace('_', ' ')}")


if __name__ == "__main__":
    main()
