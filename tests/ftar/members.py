"""Members of a ring on CPU tensors: one a thread, on the wire of one process. Kernels are interpreted."""

import threading

import numpy as np
import torch

from ftruntime.driver.ring_bytes import ITEM, adder
from ftruntime.ftar import Communicator, Engine, Patience
from ftruntime.ftar.memory_wire import MemoryWire, Net
from ftruntime.ftar.stream import Threads
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import MemberId

QUICK = Patience(chunk=20.0, kernel=20.0, retries=5)
BOUND_S = 120  # whatever happens, no test waits for longer


def padded(size):
    return -(-size // 16) * 16


def gradients(sizes, dtype, seed):
    """A tensor of bytes for each bucket, with numbers of many magnitudes in it."""
    chance = torch.Generator().manual_seed(seed)
    found = []
    for size in sizes:
        count = padded(size) // ITEM[dtype]
        numbers = torch.randn(count, generator=chance) * 2.0 ** torch.randint(
            -8, 8, (count,), generator=chance
        )
        found.append(numbers.to(getattr(torch, dtype)).view(torch.uint8))
    return found


def zeros(sizes):
    return [torch.zeros(padded(size), dtype=torch.uint8) for size in sizes]


def reference(members_grads, sizes, dtype, chunk_bytes, slots):
    """The sums as the protocol defines them: each chunk along the ring, from the member that begins it."""
    count, add = len(members_grads), adder(dtype)
    shape = geometry(tuple(sizes), count, chunk_bytes, slots)
    totals = [np.zeros(size, np.uint8) for size in sizes]
    for bucket, size in enumerate(sizes):
        for partition in range(count):
            start, end = (
                partition * shape.partition_bytes(bucket),
                (partition + 1) * shape.partition_bytes(bucket),
            )
            start, end = min(start, size), min(end, size)
            total = members_grads[partition][bucket].numpy()[start:end].copy()
            for step in range(1, count):
                own = members_grads[(partition + step) % count][bucket].numpy()[start:end]
                add(total, own, total)
            totals[bucket][start:end] = total
    return totals


class Members:
    """``count`` communicators that have met. ``close`` ends their threads."""

    def __init__(
        self,
        count,
        dtype="float32",
        *,
        chunk_bytes=256,
        slots=4,
        blocks=1,
        checked=False,
        patience=QUICK,
        quiet=0.05,
        stream=Threads,
    ):
        self.dtype, self.chunk_bytes, self.slots = dtype, chunk_bytes, slots
        self.damage = lambda there: None
        self.intruders = []  # writes of an earlier round that landed in slots that are in use
        self.net = Net(landed=self._landed)
        self.blocks, self.checked, self.stream = blocks, checked, stream
        self.patience, self.quiet = patience, quiet
        self.all = {}
        for replica in range(count):
            self.add(MemberId(replica, 1))

    def add(self, me):
        """A member that all others meet, and that meets them."""
        engine = Engine(
            self.stream(self.blocks), self.slots, self.chunk_bytes, self.dtype, blocks=self.blocks,
            threads=32, tile_bytes=256, checker=self.stream(1) if self.checked else None,
        )  # fmt: skip
        wire = MemoryWire(self.net, me, engine.sent, engine.received)
        one = Communicator(engine, wire, me, patience=self.patience, quiet=self.quiet)
        for other in self.all.values():
            other.meet(me, wire.card)
            one.meet(other.me, other.wire.card)
        self.all[me] = one
        return one

    def _landed(self, source, target, there, word):
        one = self.all[target]
        if word.round != one._begun and np.shares_memory(there, one.engine.received.numpy()):
            self.intruders.append((source, target, word))
        self.damage(there)

    @property
    def ids(self):
        return tuple(sorted(self.all))

    def reduce(self, round, sizes, *, members=None, seed=0, given_up=None, skip=()):
        """A round of ``members``, each on its thread; returns {member: sums or what it raised}."""
        members = members or self.ids
        grads = {me: gradients(sizes, self.dtype, 1000 * seed + me.replica) for me in members}
        found, failed = {}, threading.Event()

        def run(me):
            sums = zeros(sizes)
            try:
                self.all[me].all_reduce(
                    round, members, tuple(sizes), grads[me], sums, given_up=given_up or failed.is_set
                )
                found[me] = [total.numpy()[:size] for total, size in zip(sums, sizes, strict=True)]
            except BaseException as error:
                found[me] = error
                failed.set()

        threads = [threading.Thread(target=run, args=(me,), daemon=True) for me in members if me not in skip]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
            assert not thread.is_alive(), "a member did not come to an end"
        ordered = [grads[me] for me in members]
        self.expected = reference(ordered, sizes, self.dtype, self.chunk_bytes, self.slots)
        return found

    def check(self, found):
        """Every member has the reference's bits, and nothing landed where it should not."""
        assert not self.intruders
        for me, sums in found.items():
            assert not isinstance(sums, BaseException), f"{me}: {sums!r}"
            for bucket, (total, expected) in enumerate(zip(sums, self.expected, strict=True)):
                assert np.array_equal(total, expected), f"{me} has other bits in bucket {bucket}"

    def close(self):
        for one in self.all.values():
            one.close()
