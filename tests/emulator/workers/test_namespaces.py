"""Two network namespaces as two machines: torchrun on each, one job, the trace of one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .test_workers import ENV, LONG_S, command, run

NETWORK = "10.77.31"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Names of two namespaces that reach each other as NETWORK.1 and NETWORK.2, over fths0 in each."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    names = [f"fthsdp-{os.getpid()}-{number}" for number in (1, 2)]
    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        pair = [f"fths{os.getpid() % 100_000}{side}" for side in "ab"]
        ip("link", "add", pair[0], "type", "veth", "peer", "name", pair[1])
        for number, (name, link) in enumerate(zip(names, pair, strict=True), 1):
            ip("link", "set", link, "netns", name)
            for words in (
                ["link", "set", link, "name", "fths0"],
                ["addr", "add", f"{NETWORK}.{number}/24", "dev", "fths0"],
                ["link", "set", "fths0", "up"],
                ["link", "set", "lo", "up"],
            ):
                ip("-n", name, *words)
    except (subprocess.SubprocessError, OSError) as error:
        _remove(made)
        pytest.skip(f"this machine makes no network namespaces: {error}")
    yield names
    _remove(made)


def _remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)


def test_two_machines_leave_the_trace_of_one_process(tmp_path, machines):
    job = tmp_path / "job.toml"
    job.write_text('replicas = 3\nranks_per_replica = 8\nsteps = 12\nfaults = "table"\nmtbf_minutes = 1\n')
    env = {**ENV, "GLOO_SOCKET_IFNAME": "fths0", "TP_SOCKET_IFNAME": "fths0"}
    nodes = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", "torch.distributed.run",
             "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "2",
             "--master-addr", f"{NETWORK}.1", "--master-port", "29500",
             "-m", "emulator.worker", str(job), "--json", "-q", "--run-dir", str(tmp_path / f"run{number}")],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )
        for number, name in enumerate(machines)
    ]  # fmt: skip
    try:
        said = [node.communicate(timeout=LONG_S) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], said
    alone = run(command("--config", str(job), "--json", "-q", "--run-dir", str(tmp_path / "alone")))
    found = json.loads(said[0][0])
    assert found["trace_hash"] == json.loads(alone.stdout)["trace_hash"]
    assert len(list((tmp_path / "run0").glob("events*.log"))) == 4 and not (tmp_path / "run1").exists()
