"""Workers as processes over gloo: the same trace, one clear line for what goes wrong, nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
JOB = [
    "--replicas",
    "3",
    "--ranks-per-replica",
    "8",
    "--steps",
    "12",
    "--faults",
    "table",
    "--mtbf-minutes",
    "1",
]
LONG_S = 120.0
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "RES_OPTIONS": "timeout:1 attempts:1"}


def command(*options: str) -> list[str]:
    return [sys.executable, "-c", "from emulator.cli import main; main()", "emulate", *options]


def run(arguments: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    """Run it to its end; whatever it started must be gone then."""
    env = {**ENV, "FTHSDP_MARK": str(time.monotonic_ns())}
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, timeout=LONG_S, **more)
    nobody_left(env)
    return done


def nobody_left(env: dict[str, str]) -> None:
    """Soon: multiprocessing has a process of its own that looks for what others leave."""
    until = time.monotonic() + 20.0
    while (found := marked(env["FTHSDP_MARK"])) and time.monotonic() < until:
        time.sleep(0.1)
    assert not found, "processes were left behind"


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FTHSDP_MARK") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_any_number_of_workers_leaves_one_trace_and_one_report(tmp_path):
    said = []
    for workers in (1, 2, 3, 4):
        folder = tmp_path / str(workers)
        done = run(command(*JOB, "--workers", str(workers), "--json", "-q", "--run-dir", str(folder)))
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
        assert len(list(folder.glob("events*.log"))) == workers
    measured = {"wall_seconds", "check_seconds", "peak_rss_bytes", "run_dir"}
    assert all(each["faults_injected"] for each in said)
    plain = [{key: value for key, value in each.items() if key not in measured} for each in said]
    assert plain == [plain[0]] * 4
    schedules = {(tmp_path / str(workers) / "schedule.json").read_text() for workers in (1, 2, 3, 4)}
    assert len(schedules) == 1


def test_a_run_of_workers_can_be_replayed_in_one_process(tmp_path):
    run(command(*JOB, "--workers", "2", "-q", "--run-dir", str(tmp_path / "run")))
    again = [sys.executable, "-c", "from emulator.cli import main; main()", "replay", str(tmp_path / "run")]
    done = run(again)
    assert done.returncode == 0 and done.stdout.startswith("same trace: "), done.stdout + done.stderr


def test_torchrun_starts_workers_that_do_not_share_a_folder(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('replicas = 3\nranks_per_replica = 8\nsteps = 12\nfaults = "table"\nmtbf_minutes = 1\n')
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--master-port"]
    options = ["-m", "emulator.worker", str(job), "--json", "-q", "--run-dir", str(tmp_path / "run")]
    done = run([*torchrun, str(free_port()), *options], cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    alone = run(command("--config", str(job), "--json", "-q", "--run-dir", str(tmp_path / "alone")))
    assert json.loads(done.stdout)["trace_hash"] == json.loads(alone.stdout)["trace_hash"]
    assert json.loads(done.stdout)["invariants"] == json.loads(alone.stdout)["invariants"]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- what goes wrong --------------------------------------------------------------------------------


def test_more_workers_than_positions(tmp_path):
    done = run(command("--ranks-per-replica", "4", "--workers", "5", "--run-dir", str(tmp_path / "run")))
    assert done.returncode == 2 and "workers is 5: it must be 1 to ranks_per_replica, 4" in done.stderr


def test_folding_needs_no_workers(tmp_path):
    done = run(command("--fold", "--workers", "2", "--run-dir", str(tmp_path / "run")))
    assert done.returncode == 2 and "lower workers from 2 to 1" in done.stderr


def test_a_port_that_is_taken(tmp_path):
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = run(command(*JOB, "--workers", "2", "--port", port, "--run-dir", str(tmp_path / "run")))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"port 127.0.0.1:{port} is in use: choose another --port")


def worker(tmp_path: Path, rank: int, workers: int, port: int, **settings: object) -> list[str]:
    """The command of one worker, as torchrun would start it."""
    job = tmp_path / f"job{rank}.toml"
    lines = {"replicas": 3, "ranks_per_replica": 8, "steps": 5, "worker_timeout": 20, **settings}
    job.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    told = {"RANK": rank, "WORLD_SIZE": workers, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [f"{key}={value}" for key, value in told.items()]
    options = [str(job), "-q", "--run-dir", str(tmp_path / "run")]
    return ["env", *words, sys.executable, "-m", "emulator.worker", *options]


def test_a_worker_that_never_comes(tmp_path):
    done = run(worker(tmp_path, 0, 3, free_port(), worker_timeout=2))
    assert done.returncode == 2
    assert "of 3 workers 1, 2 did not come within 2 s" in done.stderr and "Traceback" not in done.stderr


def test_a_first_worker_that_never_comes(tmp_path):
    port = free_port()
    done = run(worker(tmp_path, 1, 2, port, worker_timeout=2))
    assert done.returncode == 2
    assert f"worker 1 does not reach worker 0 at 127.0.0.1:{port} within 2 s" in done.stderr


def test_workers_that_were_told_different_things(tmp_path):
    port = free_port()
    other = subprocess.Popen(
        worker(tmp_path, 1, 2, port, steps=6), env=ENV, stderr=subprocess.PIPE, text=True
    )
    done = run(worker(tmp_path, 0, 2, port))
    _, said = other.communicate(timeout=LONG_S)
    assert (done.returncode, other.returncode) == (2, 2)
    assert "worker 1 has settings" in done.stderr and "worker 0 has settings" in said


def test_workers_of_different_releases(tmp_path):
    port = free_port()
    changed = "import emulator.workers.crew as crew; crew.release = lambda: '0.0.7'; "
    code = changed + "from emulator.worker import main; main()"
    line = worker(tmp_path, 1, 2, port)
    line[line.index("-m") : line.index("-m") + 2] = ["-c", code]
    with subprocess.Popen(line, env=ENV, stderr=subprocess.PIPE, text=True) as other:
        done = run(worker(tmp_path, 0, 2, port))
        _, said = other.communicate(timeout=LONG_S)
    assert done.returncode == 2 and "worker 1 has version 0.0.7, worker 0 has" in done.stderr
    assert "install the same version of fthsdp everywhere" in said


def test_a_worker_without_torchrun():
    bare = {key: value for key, value in ENV.items() if key not in ("RANK", "WORLD_SIZE")}
    line = [sys.executable, "-m", "emulator.worker", "job.toml"]
    done = subprocess.run(line, env=bare, capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 2 and "RANK is not set: start workers with torchrun" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_in_virtual_time_ends_the_run_in_one_line(tmp_path, how):
    env = {**ENV, "FTHSDP_MARK": str(time.monotonic_ns())}
    line = command("--steps", "100000", "--workers", "3", "-q", "--run-dir", str(tmp_path / "run"))
    with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True) as first:
        victim = child(first.pid, "spawn_main")
        until = time.monotonic() + LONG_S
        while not list((tmp_path / "run").glob("events.*.log")) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.0)
        victim.send_signal(how)
        _, said = first.communicate(timeout=LONG_S)
    assert first.returncode == 2 and f"ended with status {-how}" in said, said
    assert "Traceback" not in said and len(said.splitlines()) == 1, said
    nobody_left(env)


def child(pid: int, word: str) -> psutil.Process:
    """A child of process ``pid`` whose command has ``word`` in it."""
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        for process in psutil.Process(pid).children(recursive=True):
            if any(word in part for part in process.cmdline()):
                return process
        time.sleep(0.05)
    raise AssertionError(f"process {pid} has no child with {word}")


def test_a_first_worker_that_is_killed_leaves_nobody(tmp_path):
    env = {**ENV, "FTHSDP_MARK": str(time.monotonic_ns())}
    line = command("--steps", "100000", "--workers", "3", "-q", "--run-dir", str(tmp_path / "run"))
    with subprocess.Popen(line, env=env, stderr=subprocess.DEVNULL) as first:
        child(first.pid, "spawn_main")
        time.sleep(2.0)
        first.kill()
        first.wait(LONG_S)
    nobody_left(env)


def test_too_few_file_descriptors(tmp_path):
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

    done = run(command(*JOB, "--workers", "3", "-q", "--run-dir", str(tmp_path / "run")), preexec_fn=few)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "open files" in last and "Traceback" not in last, done.stderr


def written(log: Path) -> bool:
    return log.exists() and log.stat().st_size > 0


def test_ctrl_c_keeps_what_there_is(tmp_path):
    env = {**ENV, "FTHSDP_MARK": str(time.monotonic_ns())}
    folder = tmp_path / "run"
    line = command("--steps", "100000", "--workers", "2", "-q", "--run-dir", str(folder))
    with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True) as first:
        until = time.monotonic() + LONG_S
        while not written(folder / "events.1.log") and time.monotonic() < until:
            time.sleep(0.05)  # a block of it: some steps
        os.killpg(first.pid, signal.SIGINT)
        _, said = first.communicate(timeout=LONG_S)
    assert first.returncode == 130 and "interrupted at step" in said, said
    found = json.loads((folder / "summary.json").read_text())
    assert found["interrupted"] and found["steps_committed"] > 0
    assert all(each["violated"] == 0 for each in found["invariants"].values())
    nobody_left(env)
