"""One rank as a process, on nixl: ``python -m tests.ftar.nixl_rank JSON``. Tells how rounds went."""

import json
import os
import sys
import time
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

from ftruntime.ftar import Communicator, Engine, Failure, Patience
from ftruntime.ftar.nixl_wire import NixlWire
from ftruntime.ftar.stream import Threads
from ftruntime.protocol.ids import MemberId

from .members import gradients, reference, zeros

BOUND_S = 100


def say(**fields):
    print(json.dumps(fields), flush=True)


def wait_for(path):
    until = time.monotonic() + BOUND_S
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.01)
    return path.read_bytes()


def put(path, data):
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def main():
    torch.set_num_threads(1)
    job = json.loads(sys.argv[1])
    folder, me = Path(job["folder"]), MemberId(job["replica"], 1)
    ids = tuple(MemberId(replica, 1) for replica in range(job["count"]))
    engine = Engine(
        Threads(1), job["slots"], job["chunk_bytes"], job["dtype"], blocks=1, threads=32,
        tile_bytes=job["chunk_bytes"], checker=Threads(1) if job["checked"] else None,
    )  # fmt: skip
    wire = NixlWire(me, engine.sent, engine.received)
    one = Communicator(engine, wire, me, patience=Patience(chunk=job["patience"], kernel=20.0, retries=3))
    put(folder / f"{me}.card", wire.card)
    for peer in ids:
        if peer != me:
            one.meet(peer, wait_for(folder / f"{peer}.card"))
    say(met=True, pid=os.getpid())
    for round, present in enumerate(job["rounds"], start=1):
        run(one, job, round, tuple(ids[replica] for replica in present), folder)
    one.close()
    say(closed=True)


def run(one, job, round, members, folder):
    if one.me not in members:
        return
    sizes = tuple(job["sizes"])
    every = [gradients(sizes, job["dtype"], 1000 * round + member.replica) for member in members]
    sums = zeros(sizes)
    say(begins=round)
    began = time.monotonic()
    try:
        one.all_reduce(round, members, sizes, every[members.index(one.me)], sums)
    except Failure as failure:
        report = failure.report
        say(round=round, ok=False, kind=report.error_class.name, accused=report.accused, reason=report.reason)
        return
    seconds = time.monotonic() - began
    expected = reference(every, sizes, job["dtype"], job["chunk_bytes"], job["slots"])
    right = all(np.array_equal(t.numpy()[:n], e) for t, n, e in zip(sums, sizes, expected, strict=True))
    say(round=round, ok=right, seconds=seconds, revoked=one.revoked)


if __name__ == "__main__":
    main()
