"""A job of real processes, seen from outside: status, metrics and log through a kill and a return."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request

import msgspec
import pytest
from click.testing import CliRunner

from ftruntime.observe import Observe
from ftruntime.observe.command import status
from ftruntime.observe.look import Connect, look
from tests.driver.cluster import CONFIG, Cluster
from tests.stores.served import TOKEN

ONE_RANK = msgspec.structs.replace(CONFIG, ranks_per_replica=1)
SLOW_BPS = 1000.0  # the state of a toy takes a second or two, so that the fetch can be seen


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def job(tmp_path):
    """Three replicas; each has a log and metrics."""
    ports = [_free_port() for _ in range(3)]

    def more(replica):
        log = tmp_path / f"log-{replica}.jsonl"
        observe = Observe(log=str(log), metrics_port=ports[replica], publish_s=0.1)
        return {"observe": observe, "bulk_bps": SLOW_BPS}

    cluster = Cluster(tmp_path, ONE_RANK, rest_s=2.0, more=more)
    cluster.ports = ports
    yield cluster
    cluster.close()


def _look(job):
    return look(Connect(f"{job.endpoint.host}:{job.endpoint.port}", "job", TOKEN))


def _metric(job, replica, name):
    """Sum of a metric's samples on the page that ``replica`` serves."""
    url = f"http://127.0.0.1:{job.ports[replica]}/metrics"
    lines = urllib.request.urlopen(url, timeout=10).read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _log(job, replica):
    return [json.loads(line) for line in (job.folder / f"log-{replica}.jsonl").read_text().splitlines()]


def test_a_kill_is_seen_with_its_cause_then_the_return(job):
    job.everyone(3)
    job.until(lambda: [r["state"] for r in _look(job)["replicas"]] == ["up"] * 3)
    before = _look(job)
    assert before["status"] == "running" and before["step"] >= 3 and before["lineage"]
    assert before["failures"] == [] and before["replicas"][1]["phase"]
    job.until(lambda: _metric(job, 0, "fthsdp_commits_total") >= 3)
    assert _metric(job, 0, "fthsdp_contributors") == 3

    job.kill(2, 0, signal.SIGKILL)
    job.until(lambda: _look(job)["replicas"][2]["state"] == "down" and "SIGKILL" in _cause(job))
    job.until(lambda: any("launcher" not in f["seen_by"] for f in _look(job)["failures"]))
    seen = _look(job)
    assert "SIGKILL" in seen["replicas"][2]["cause"]
    assert {f["culprit"] for f in seen["failures"]} == {2}
    job.until(lambda: _metric(job, 0, 'fthsdp_failures_total{culprit="2"') >= 1)

    states = []

    def back():
        replica = _look(job)["replicas"][2]
        if replica["state"] == "catching up":
            states.append((replica["staged"], replica["ranges"], replica["behind"]))
        return replica["state"] == "up" and replica["incarnation"] == 2

    job.until(back)
    assert any(ranges == 4 and 0 < staged <= 4 for staged, ranges, _ in states), states
    assert _look(job)["replicas"][2]["cause"] == ""

    events = _log(job, 0)
    lost = [e for e in events if e["event"] in ("peer-lost", "lease-ended")]
    assert lost and all(e["culprit"] == 2 and e["cause"] for e in lost)
    assert sum(e["event"] == "commit" for e in events) >= 3
    assert {"begin", "voted", "apply"} <= {e["phase"] for e in events if e["event"] == "phase"}
    assert any(e["event"] == "staged" for e in _log(job, 2))


def test_the_command_shows_a_table_and_json(job, monkeypatch):
    job.everyone(2)
    job.until(lambda: [r["state"] for r in _look(job)["replicas"]] == ["up"] * 3)
    monkeypatch.setenv("FTHSDP_TOKEN", TOKEN)
    at = f"{job.endpoint.host}:{job.endpoint.port}"
    table = CliRunner().invoke(status, [at])
    assert table.exit_code == 0 and "3 of 3 replicas up" in table.output, table.output
    found = json.loads(CliRunner().invoke(status, [at, "--json"]).output)
    assert [r["incarnation"] for r in found["replicas"]] == [1, 1, 1]
    other = CliRunner().invoke(status, [at, "--job", "another"])
    assert other.exit_code == 1 and "does not answer" in other.output


def _cause(job):
    return _look(job)["replicas"][2]["cause"]
