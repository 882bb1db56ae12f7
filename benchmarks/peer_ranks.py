"""A peer's job, run by `benchmarks/peers.py` under the peer's interpreter: so many ranks, so many steps.

    python benchmarks/peer_ranks.py '{"kind": "gloo", "replicas": 4, "ranks_per_replica": 1, "start": "fork",
                                      "steps": 5, "seconds": 60}'

Prints one JSON object when every rank has done its steps, then holds all ranks as they are, for their memory
to be measured, until its standard input ends. A rank that fails is told instead: {"error": ...}. Needs no
package of the project, as the peer may live in another environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

Job = dict[str, Any]
HOME = "127.0.0.1"
WORD = 600  # characters of an error: a report fits one atomic write to a pipe


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def timed(step: Callable[[], None], steps: int) -> list[float]:
    """Seconds of each step after a first one, in which all ranks find one another."""
    step()
    found = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return found


# -- what a rank does -----------------------------------------------------------------------------------


def gloo_rank(job: Job, rank: int, meet: Job) -> list[float]:
    """All-reduce of one float with every other rank; no quorum and no commit."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = timedelta(seconds=job["seconds"])
    world = job["replicas"] * job["ranks_per_replica"]
    store = dist.TCPStore(HOME, meet["ports"][0], is_master=False, timeout=limit, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)

    def step() -> None:
        value = torch.ones(1)
        dist.all_reduce(value)
        if value.item() != world:
            raise RuntimeError(f"the sum is {value.item()}, not {world}")

    return timed(step, job["steps"])


def torchft_rank(job: Job, rank: int, meet: Job) -> list[float]:
    """Quorum, all-reduce of one float over the replicas, and the vote whether to commit."""
    import torch
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    limit = timedelta(seconds=job["seconds"])
    replica, position = divmod(rank, job["ranks_per_replica"])
    manager = Manager(
        pg=ProcessGroupGloo(timeout=limit),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=job["replicas"],
        timeout=limit,
        quorum_timeout=limit,
        connect_timeout=limit,
        rank=position,
        world_size=job["ranks_per_replica"],
        store_addr=HOME,
        store_port=meet["ports"][replica],
        lighthouse_addr=meet["lighthouse"],
        replica_id=f"replica_{replica}",
        hostname=HOME,
        heartbeat_interval=timedelta(seconds=1),
        init_sync=False,
    )
    meet["manager"] = manager  # it lives as long as the rank

    def step() -> None:
        value = torch.full((1,), float(replica))
        manager.start_quorum()
        manager.allreduce(value).wait()
        if not manager.should_commit():
            raise RuntimeError(f"no commit: {manager.errored()}")
        if abs(value.item() * 2 - (job["replicas"] - 1)) > 0.01 * job["replicas"]:
            raise RuntimeError(f"the mean is {value.item()} of {manager.num_participants()} replicas")

    return timed(step, job["steps"])


RANKS = {"gloo": gloo_rank, "torchft": torchft_rank}


def host(job: Job, keep: list[object]) -> Job:
    """The servers by which ranks find one another: where they are."""
    import torch.distributed as dist

    stores = job["replicas"] if job["kind"] == "torchft" else 1
    for _ in range(stores):
        keep.append(dist.TCPStore(HOME, 0, is_master=True, wait_for_workers=False))
    meet: Job = {"ports": [store.port for store in keep]}  # type: ignore[attr-defined]
    if job["kind"] == "torchft":
        from torchft.coordination import LighthouseServer

        wait = int(job["seconds"] * 1000)
        server = LighthouseServer(
            bind="[::]:0", min_replicas=job["replicas"], join_timeout_ms=wait, heartbeat_timeout_ms=wait
        )
        keep.append(server)
        meet["lighthouse"] = f"http://{HOME}:{server.address().rpartition(':')[2].strip('/')}"
    return meet


# -- ranks as processes ---------------------------------------------------------------------------------


def act(job: Job, rank: int, meet: Job, report: int, hold: int) -> None:
    """Be rank ``rank``, or the host for -1: report on one pipe, stay until the other one ends."""
    die_with_parent()
    keep: list[object] = []
    try:
        if rank < 0:
            word: Job = {"rank": rank, "meet": host(job, keep)}
        else:
            word = {"rank": rank, "seconds": RANKS[job["kind"]](job, rank, meet)}
    except Exception as error:
        word = {"rank": rank, "error": f"{type(error).__name__}: {error}"[:WORD]}
    os.write(report, json.dumps(word).encode() + b"\n")
    os.read(hold, 1)
    os._exit(0)


class Ranks:
    """The processes of a job, forked from this one or started afresh, and what they report."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.reports, self.report = os.pipe()
        self.hold, self.holds = os.pipe()
        self.unread = b""

    def start(self, rank: int, meet: Job) -> None:
        """One more process."""
        if self.job["start"] == "fork":
            if os.fork() == 0:
                os.close(self.holds)
                act(self.job, rank, meet, self.report, self.hold)
            return
        given = json.dumps([self.job, rank, meet, self.report, self.hold])
        subprocess.Popen(
            [sys.executable, __file__, "--rank", given],
            pass_fds=(self.report, self.hold),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def next(self) -> Job:
        """The next report; RuntimeError where a process failed or ended without one."""
        while b"\n" not in self.unread:
            if select.select([self.reports], [], [], 0.5)[0]:
                self.unread += os.read(self.reports, 65536)
                continue
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(-1, os.WNOHANG)
                if ended:
                    raise RuntimeError(f"a process ended by itself, status {status}")
        line, _, self.unread = self.unread.partition(b"\n")
        word: Job = json.loads(line)
        if "error" in word:
            raise RuntimeError(f"rank {word['rank']}: {word['error']}")
        return word


def processes(job: Job) -> list[float]:
    """Every rank is a process: the seconds of rank 0's steps."""
    if job["start"] == "fork":
        __import__("torchft" if job["kind"] == "torchft" else "torch.distributed")
    ranks = Ranks(job)
    ranks.start(-1, {})
    meet = ranks.next()["meet"]
    world = job["replicas"] * job["ranks_per_replica"]
    for rank in range(world):
        ranks.start(rank, meet)
    words = [ranks.next() for _ in range(world)]
    job["keep"] = ranks
    return next(word["seconds"] for word in words if word["rank"] == 0)


# -- ranks as threads -----------------------------------------------------------------------------------


def threads(job: Job) -> list[float]:
    """Every rank is a thread, with torch's own process group for tests: the seconds of rank 0's steps."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg

    torch.set_num_threads(1)
    threading.stack_size(256 * 1024)
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    _install_threaded_pg()
    world = job["replicas"] * job["ranks_per_replica"]
    store = dist.HashStore()
    done = threading.Semaphore(0)
    stay = threading.Event()
    words: dict[int, list[float]] = {}
    errors: list[str] = []

    def step() -> None:
        value = torch.ones(1)
        dist.all_reduce(value)
        if value.item() != world:
            raise RuntimeError(f"the sum is {value.item()}, not {world}")

    def run(rank: int) -> None:
        try:
            limit = timedelta(seconds=job["seconds"])
            dist.init_process_group("threaded", rank=rank, world_size=world, store=store, timeout=limit)
            words[rank] = timed(step, job["steps"])
        except Exception as error:
            errors.append(f"rank {rank}: {type(error).__name__}: {error}"[:WORD])
        done.release()
        stay.wait()

    for rank in range(world):
        threading.Thread(target=run, args=(rank,), daemon=True).start()
    for _ in range(world):
        done.acquire()
        if errors:
            raise RuntimeError(errors[0])
    return words[0]


def main() -> None:
    if sys.argv[1] == "--rank":
        act(*json.loads(sys.argv[2]))
    die_with_parent()
    job: Job = json.loads(sys.argv[1])
    began = time.perf_counter()
    try:
        seconds = threads(job) if job["kind"] == "threads" else processes(job)
        word: Job = {"seconds": seconds, "start_seconds": time.perf_counter() - began - sum(seconds)}
    except Exception as error:
        word = {"error": f"{type(error).__name__}: {error}"[:WORD]}
    print(json.dumps(word), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
