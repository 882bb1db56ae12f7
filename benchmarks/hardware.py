"""FTAR's back end on whatever is here: is it right, how fast, how far from the limit (docs/hardware.md).

    python benchmarks/hardware.py                   a table; saves benchmarks/hardware.json
    python benchmarks/hardware.py --members 4 --mib 64 --json
    python benchmarks/hardware.py --quick           small, to see that all of it runs; saves nothing

With GPUs the kernels run on them, members taking them in turn; without, a thread of the processor does what
the kernel does, and the first line says so. The wire is nixl: RDMA with a card, else shared memory or TCP.
Each size is summed by FTAR and by torch's own all-reduce in turn, and the sums of FTAR are compared with the
protocol's definition.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from ftruntime.driver.ring_bytes import adder  # noqa: E402
from ftruntime.protocol.geometry import geometry  # noqa: E402
from ftruntime.protocol.ids import MemberId  # noqa: E402

MIB = 1 << 20
BOUND_S = 300.0  # nothing is waited for longer
TURNS = 9
DTYPES = {"float32": (torch.float32, 4), "bfloat16": (torch.bfloat16, 2)}


# -- one member -------------------------------------------------------------------------------------


def member(index: int, options: dict[str, Any], pipe: Connection) -> None:
    """One process of the ring: answers each size with how long its turns took."""
    torch.set_num_threads(1)
    device = _device(index)
    dist.init_process_group(
        "nccl" if _own_gpus(options["members"]) else "gloo",
        init_method=f"file://{options['meet']}",
        rank=index,
        world_size=options["members"],
    )
    for size in options["sizes"]:
        for dtype in DTYPES:
            pipe.send(_turns(index, options, device, size, dtype, pipe))
    dist.destroy_process_group()
    pipe.send(None)
    pipe.recv()


def _turns(
    index: int, options: dict[str, Any], device: str, size: int, dtype: str, pipe: Connection
) -> dict[str, Any]:
    from ftruntime.ftar import Communicator
    from ftruntime.ftar.nixl_wire import NixlWire

    members = tuple(MemberId(i, 1) for i in range(options["members"]))
    chunk = min(options["chunk"], max(16, size // len(members) // 16 * 16))
    engine = _engine(device, options["slots"], chunk, dtype)
    wire = NixlWire(members[index], engine.sent, engine.received)
    ftar = Communicator(engine, wire, members[index])
    for peer, card in zip(members, _swapped(wire.card, pipe), strict=True):
        if peer != members[index]:
            ftar.meet(peer, card)
    every = [_gradient(i, size, dtype) for i in range(len(members))]
    own, total = every[index].to(device), torch.zeros(size, dtype=torch.uint8, device=device)
    ours, torchs = [], []
    for turn in range(options["turns"] + 1):
        ours.append(_timed(device, lambda t=turn: ftar.all_reduce(t + 1, members, (size,), [own], [total])))
        other = own.clone().view(DTYPES[dtype][0])
        torchs.append(_timed(device, lambda o=other: dist.all_reduce(o)))
    right = np.array_equal(total.cpu().numpy(), _expected(every, dtype, chunk, options["slots"]))
    ftar.close()
    return {
        "size": size,
        "dtype": dtype,
        "chunk": chunk,
        "ours": ours[1:],
        "torch": torchs[1:],
        "right": right,
    }


def _engine(device: str, slots: int, chunk: int, dtype: str) -> Any:
    from ftruntime.ftar import Engine

    if device == "cpu":
        from ftruntime.ftar.processor import Processor

        return Engine(Processor(), slots, chunk, dtype, blocks=1)
    from ftruntime.ftar.stream import Cuda

    return Engine(Cuda(torch.device(device)), slots, chunk, dtype, device=device)


def _swapped(card: bytes, pipe: Connection) -> list[bytes]:
    pipe.send(card)
    assert pipe.poll(BOUND_S), "the others did not come"
    found: list[bytes] = pipe.recv()
    return found


def _timed(device: str, act: Any) -> float:
    dist.barrier()
    began = time.perf_counter()
    act()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _gradient(index: int, size: int, dtype: str) -> torch.Tensor:
    kind, item = DTYPES[dtype]
    chance = torch.Generator().manual_seed(index)
    return torch.randn(size // item, generator=chance).to(kind).view(torch.uint8)


def _expected(every: list[torch.Tensor], dtype: str, chunk: int, slots: int) -> Any:
    """The protocol's sum: each partition along the ring, from the member at which it begins."""
    count, add, size = len(every), adder(dtype), len(every[0])
    share = geometry((size,), count, chunk, slots).partition_bytes(0)
    total = np.zeros(size, np.uint8)
    for partition in range(count):
        part = slice(min(partition * share, size), min((partition + 1) * share, size))
        sum = every[partition].numpy()[part].copy()
        for step in range(1, count):
            add(sum, every[(partition + step) % count].numpy()[part], sum)
        total[part] = sum
    return total


# -- what it runs on --------------------------------------------------------------------------------


def _own_gpus(members: int) -> bool:
    """NCCL wants a GPU for each member."""
    return torch.cuda.is_available() and torch.cuda.device_count() >= members


def _device(index: int) -> str:
    return f"cuda:{index % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def machine() -> dict[str, Any]:
    """What is here, as far as it matters."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    cards = sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []
    versions = {name: _version(name) for name in ("torch", "triton", "nixl-cu12")}
    return {
        "gpus": gpus,
        "rdma": cards,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


# -- limits -----------------------------------------------------------------------------------------


def copy_rate(device: str) -> float:
    """Bytes a second that memory takes and gives when a block of 64 MiB is copied: read and write counted."""
    source = torch.zeros(64 * MIB, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(10):
        began = time.perf_counter()
        target.copy_(source)
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 2 * len(source) / min(times)


def control_cost(members: int = 2, chunks: int = 2000) -> float:
    """Seconds a chunk that the control plane takes at a member: protocol, queue, flags and a wire in memory,
    with a kernel that needs no time and chunks of one unit."""
    from ftruntime.ftar import Communicator, Engine
    from ftruntime.ftar.memory_wire import MemoryWire, Net

    class Nothing:
        pinned, failure, idle = False, None, True

        def launch(self, *arguments: Any) -> None: ...
        def after(self, event: Any) -> None: ...
        def close(self) -> None: ...

    net, ids = Net(), tuple(MemberId(i, 1) for i in range(members))
    size = 16 * chunks * members
    exchanges = []
    ftars = []
    for me in ids:
        engine = Engine(Nothing(), 8, 16)
        _at_once(engine.flags)
        ftars.append(Communicator(engine, MemoryWire(net, me, engine.sent, engine.received), me))
    for one in ftars:
        for other in ftars:
            if one is not other:
                one.meet(other.me, other.wire.card)
    shape = geometry((size,), members, 16, 8)
    block = torch.zeros(size, dtype=torch.uint8)
    for index, one in enumerate(ftars):
        one.engine.begin(shape, index, [block], [block.clone()])
        exchanges.append(one._exchange(shape, ids, 1))
    began = time.perf_counter()
    for exchange in exchanges:
        exchange.start(0.0)
        exchange.bucket_ready(0.0)
    while not all(exchange.finished for exchange in exchanges):
        for one, exchange in zip(ftars, exchanges, strict=True):
            for sight in one.wire.poll():
                exchange.see(sight, 0.0)
            exchange.turn(0.0)
    return (time.perf_counter() - began) / (members * shape.total)


def _at_once(flags: Any) -> None:
    """As if a kernel had done everything by the time that it was published."""
    publish = flags.publish

    def published(fields: tuple[int, ...]) -> int:
        number: int = publish(fields)
        flags._heads[:] = number + 1
        return number

    flags.publish = published


# -- the run ----------------------------------------------------------------------------------------


def run(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows, one a size and type. Raises SystemExit with one line when a member dies."""
    context = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for index in range(options["members"]):
        mine, theirs = context.Pipe()
        process = context.Process(target=member, args=(index, options, theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(mine)
        processes.append(process)
    try:
        rows = list(_rows(ends))
        for end in ends:
            end.send("end")
    except (EOFError, BrokenPipeError):
        sys.exit("hardware: a member died; what it said is above")
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    return rows


def _rows(ends: list[Connection]) -> Iterator[dict[str, Any]]:
    while True:
        said = [_heard(end) for end in ends]
        if said[0] is None:
            return
        if isinstance(said[0], bytes):
            for end in ends:
                end.send(said)
        else:
            yield _row(said)


def _heard(end: Connection) -> Any:
    if not end.poll(BOUND_S):
        sys.exit(f"hardware: a member said nothing for {BOUND_S:g} s")
    return end.recv()


def _row(said: list[dict[str, Any]]) -> dict[str, Any]:
    """A turn takes as long as its slowest member."""
    first, members = said[0], len(said)
    ours, torchs = (
        [max(turn) for turn in zip(*(one[k] for one in said), strict=True)] for k in ("ours", "torch")
    )
    moved = 2 * (members - 1) / members * first["size"]  # bytes that each link carries
    middle = statistics.median(ours)
    return {
        "members": members, "bytes": first["size"], "dtype": first["dtype"], "chunk_bytes": first["chunk"],
        "right": all(one["right"] for one in said), "ftar_s": middle, "ftar_best_s": min(ours),
        "torch_s": statistics.median(torchs), "torch_best_s": min(torchs),
        "ratio": middle / statistics.median(torchs), "link_bytes_s": moved / middle,
    }  # fmt: skip


def main(words: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 64], help="of a bucket")
    parser.add_argument("--chunk-mib", type=float, default=8.0, help="at most")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(words)
    if given.quick:
        given.mib, given.turns = [0.25], 2
    if given.members < 2:
        sys.exit(f"hardware: --members {given.members} does not fit; write 2 or more")
    sizes = [max(16, int(mib * MIB) // 16 * 16) for mib in given.mib]
    options = {
        "members": given.members, "sizes": sizes, "chunk": int(given.chunk_mib * MIB) // 16 * 16,
        "slots": given.slots, "turns": given.turns, "meet": f"/tmp/fthsdp-hardware-{os.getpid()}",
    }  # fmt: skip
    rows = run(options)
    found = {
        "machine": machine(), "rows": rows, "copy_bytes_s": copy_rate(_device(0)),
        "control_s_a_chunk": control_cost(chunks=200 if given.quick else 2000),
    }  # fmt: skip
    if not given.quick:
        (HERE / "hardware.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found) if given.json else _text(found))
    sys.exit(0 if all(row["right"] for row in rows) else 1)


def _text(found: dict[str, Any]) -> str:
    here = found["machine"]
    lines = [
        f"{', '.join(here['gpus']) or 'no GPU: a thread of the processor stands in for the kernel'}; "
        f"{', '.join(here['rdma']) or 'no RDMA card: shared memory or TCP'}; {here['cores']} cores",
        f"torch {here['torch']}, triton {here['triton']}, nixl {here['nixl-cu12']}",
        "",
        "| members | MiB | type | bits | FTAR, ms (best) | torch, ms (best) | FTAR / torch | GB/s a link | "
        "of copying |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [
            row["members"], f"{row['bytes'] / MIB:g}", row["dtype"], "right" if row["right"] else "WRONG",
            f"{1e3 * row['ftar_s']:.2f} ({1e3 * row['ftar_best_s']:.2f})",
            f"{1e3 * row['torch_s']:.2f} ({1e3 * row['torch_best_s']:.2f})", f"{row['ratio']:.2f}",
            f"{row['link_bytes_s'] / 1e9:.2f}", f"{row['link_bytes_s'] / found['copy_bytes_s']:.0%}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    lines += [
        "",
        f"copying in memory: {found['copy_bytes_s'] / 1e9:.1f} GB/s, read and written",
        f"control plane: {1e6 * found['control_s_a_chunk']:.1f} us a chunk at a member (a chunk of 8 MB at "
        "400 Gb/s takes 160)",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
