"""One rank of torchft, for `benchmarks/vs_torchft.py`, under torchft's own interpreter.

    python benchmarks/vs_rank_torchft.py '{"replica": 0, "life": 0, "report": "file", ...}'

The quorum is asynchronous, as torchft does by default; a batch that was not committed is trained again, which
is kinder than its examples are. Needs no package of the project.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

Job = dict[str, Any]
HOME = "127.0.0.1"


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Report:
    """A line for each thing that happened: seconds of the machine's monotonic clock, what, step, members."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, what: str, step: int = 0, members: int = 0, more: object = None) -> None:
        os.write(self._file, json.dumps([time.monotonic(), what, step, members, more]).encode() + b"\n")


def manager_of(job: Job, state: dict[str, Any]) -> Any:
    """torchft's Manager, with its defaults for whatever ``job`` does not name."""
    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo

    class DyingGroup(ProcessGroupGloo):
        """Of a joiner that dies when it is a member of the quorum, before it has connected."""

        def reconfigure(self, *args: Any, **more: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    store = dist.TCPStore(HOME, 0, is_master=True, wait_for_workers=False)
    state["store"] = store  # it lives as long as the rank
    limit = timedelta(seconds=job["patience"])
    times = {name: limit for name in ("timeout", "quorum_timeout", "connect_timeout")}
    if job["patience"] < 10:
        times["quorum_timeout"] = timedelta(seconds=30)  # a quorum also waits for who is restarting
    return Manager(
        pg=(DyingGroup if job["die_joining"] else ProcessGroupGloo)(timeout=limit),
        load_state_dict=state["load"],
        state_dict=state["save"],
        min_replica_size=job["min_replicas"],
        rank=0,
        world_size=1,
        store_addr=HOME,
        store_port=store.port,
        lighthouse_addr=job["lighthouse"],
        replica_id=f"replica_{job['replica']}",
        hostname=HOME,
        init_sync=False,
        **times,
    )


def train(job: Job) -> None:
    """Steps without end. The gradient has a one for each sample, so the parameters count what was applied."""
    import torch

    torch.set_num_threads(1)
    report = Report(job["report"])
    params = torch.zeros(job["elements"])
    blob = torch.zeros(job["state_bytes"] // 4)
    blob += job["replica"]

    def load(saved: dict[str, Any]) -> None:
        params.copy_(saved["params"])
        blob.copy_(saved["blob"])
        report("installed")

    state: dict[str, Any] = {"load": load, "save": lambda: {"params": params, "blob": blob}}
    manager = manager_of(job, state)
    own = job["elements"] // job["replicas"]
    cursor = 0
    while True:
        manager.start_quorum()
        time.sleep(job["compute_s"])
        step = manager.current_step()
        gradient = torch.zeros(job["elements"])
        gradient[(job["replica"] * own + cursor % own) if own else 0] = 1.0
        work = manager.allreduce(gradient)
        if step == job["stop_at"]:
            report("stopping", step)
            os.kill(os.getpid(), signal.SIGSTOP)
        work.wait()
        if step == job["fail_at"]:
            report("failing", step)
            job["fail_at"] = -1
            manager.report_error(RuntimeError("the device failed after the all-reduce"))
        members = manager.num_participants()
        took_part = manager.is_participating()
        if manager.should_commit():
            params += gradient * members
            cursor += took_part
            told = None
            if step + 1 == job["tell_at"]:
                told = [manager.batches_committed(), [round(x) for x in params.tolist()]]
            report("commit", manager.current_step(), members, told)


if __name__ == "__main__":
    die_with_parent()
    train(json.loads(sys.argv[1]))
