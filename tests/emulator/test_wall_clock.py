"""Runs against real time, of workers that are really killed and stopped: all invariants hold."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from click.testing import CliRunner

from emulator.cli import main
from emulator.rundir import RunDir
from emulator.settings_file import make_settings

from .real_run import LIMIT_S, RealRun

LEASE_S = 90.0
MANY = 5_000  # steps: more than any of these runs makes


def test_a_run_in_which_nothing_happens(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", 5) as run:
        found = run.end()
    assert found["steps_committed"] == 5
    assert found["faults_injected"] == 0
    assert len(list((tmp_path / "run").glob("events.*.log"))) == 3
    assert not (tmp_path / "run" / "workers.json").exists()


def test_a_worker_that_is_killed_is_started_again_and_catches_up(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", MANY) as run:
        run.until(lambda: run.steps >= 3)
        killed = run.workers()[2]["replicas"]
        run.signal(2, signal.SIGKILL)
        run.until(lambda: run.count("installed") > 0)
        assert run.workers()[4]["replicas"] == killed
        found = run.stop()
    assert found["faults_by_kind"] == {"crash": 2}
    assert {entry[2] for entry in run.entries() if entry[0] == "crash"} == set(killed)
    assert {entry[2] for entry in run.entries() if entry[0] == "exit"} == set(killed)


def test_a_worker_that_stands_still_past_its_lease_comes_back_as_a_zombie(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", MANY) as run:
        run.until(lambda: run.steps >= 3)
        stopped = set(run.workers()[2]["replicas"])
        run.signal(2, signal.SIGSTOP)
        run.until(lambda: run.count("fault") == len(stopped))
        since = run.entries()[-1][1]
        run.until(lambda: run.entries()[-1][1] > since + 2 * LEASE_S)
        assert run.count("exit") == 0, "nobody can know that its processes are gone"
        run.signal(2, signal.SIGCONT)
        run.until(lambda: run.count("installed", lambda entry: entry[2] in stopped) > 0)
        found = run.stop()
    assert found["faults_by_kind"] == {"pause": len(stopped)}
    assert {entry[2] for entry in run.entries() if entry[0] == "exit"} == stopped


def test_a_worker_that_is_killed_while_another_catches_up(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", MANY) as run:
        run.until(lambda: run.steps >= 3)
        run.signal(2, signal.SIGKILL)
        run.until(lambda: run.count("register") > 4)
        run.signal(3, signal.SIGKILL)
        run.until(lambda: run.count("installed", lambda entry: entry[2] in (1, 2)) >= 4)
        found = run.stop()
    assert found["faults_by_kind"] == {"crash": 4}


def test_all_workers_are_killed_at_once(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", MANY) as run:
        run.until(lambda: run.steps >= 2)
        for worker in (1, 2, 3):
            run.signal(worker, signal.SIGKILL)
        run.until(lambda: any(entry[0] == "head" and entry[9] for entry in run.entries()))
        found = run.stop()
    assert found["faults_by_kind"] == {"crash": 8}
    assert found["rolled_back_steps"] >= 2, "nobody had a state to go on from but the initial one"


def test_a_replay_of_real_time_is_refused_in_one_line(tmp_path: Path) -> None:
    settings = make_settings({"clock": "wall"})
    folder = RunDir.create(tmp_path / "run", settings)
    ran = CliRunner().invoke(main, ["replay", str(folder.path)])
    assert ran.exit_code == 2
    assert "real time does not repeat" in ran.stderr


def test_ctrl_c_leaves_what_there_is_and_nobody_behind(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", MANY) as run:
        run.until(lambda: run.steps >= 2)
        found = run.stop()
    assert found["interrupted"] is True
    assert run.entries()[-1][0] == "end"


def test_a_hub_that_is_killed_leaves_nobody_behind(tmp_path: Path) -> None:
    with RealRun(tmp_path / "run", MANY) as run:
        run.until(lambda: run.steps >= 2)
        run.process.kill()
        assert run.left() == []


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with RealRun(tmp_path / "run", 5, "--port", port) as run:
            _, err = run.process.communicate(timeout=LIMIT_S)
    assert run.process.returncode == 2
    assert f"port 127.0.0.1:{port} cannot be had" in err and "Traceback" not in err
