"""``fthsdp status``: how a job of real processes stands, once or live."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ftruntime.protocol.errors import ConfigError

from .look import Connect, Unreachable, connect, look

EXAMPLES = """\b
Examples:
  fthsdp status run                        # the folder of python -m ftruntime.launch --folder run
  FTHSDP_TOKEN=... fthsdp status host:29600 --job llama --watch
  fthsdp status run --json | jq .step
"""


@click.command(epilog=EXAMPLES)
@click.argument("where", metavar="STORE|RUN")
@click.option("--job", default="job", show_default=True, help="Name of the job; a run's folder knows it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, or one a line with --watch.")
@click.option("--watch", is_flag=True, help="Go on showing it, until Ctrl-C.")
@click.option("--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600), help="Seconds.")
def status(where: str, job: str, as_json: bool, watch: bool, every: float) -> None:
    """Show how a job stands: replicas, step, lineage, who catches up and how far, last failures.

    STORE is HOST:PORT of the job's store, with the job's token in FTHSDP_TOKEN; RUN is the folder of a run.
    """
    try:
        at = connect(where, job)
        if watch:
            _watch(at, as_json, every)
        else:
            found = look(at)
            print(json.dumps(found)) if as_json else Console().print(shown(found))
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except Unreachable as error:
        print(f"fthsdp status: {error}", file=sys.stderr)
        sys.exit(1)


def _watch(at: Connect, as_json: bool, every: float) -> None:
    """A store that is away is waited for."""
    if as_json:
        while True:
            print(json.dumps(_tried(at)), flush=True)
            time.sleep(every)
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            found = _tried(at)
            live.update(shown(found) if "step" in found else Text(found["problem"]), refresh=True)
            time.sleep(every)


def _tried(at: Connect) -> dict[str, Any]:
    try:
        return look(at)
    except Unreachable as error:
        return {"job": at.job, "problem": str(error)}


def shown(found: dict[str, Any]) -> Group:
    """For people."""
    up = sum(replica["state"] == "up" for replica in found["replicas"])
    lost = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in found["lost_seconds"].items() if seconds)
    lines = [
        f"job {found['job']}: {found['status']}, step {found['step']}, round {found['round']}, "
        f"{up} of {len(found['replicas'])} replicas up, {found['step_seconds'] * 1000:.0f} ms a step",
        f"lineage {found['lineage']}",
        f"lost seconds: {lost or 'none'}",
    ]
    if found["reason"]:
        lines.append(f"plan: {found['reason']}")
    table = Table("replica", "life", "state", "phase", "step", "behind", "how far", "cause")
    for replica in found["replicas"]:
        table.add_row(
            str(replica["replica"]), str(replica["incarnation"]), replica["state"], replica["phase"],
            str(replica["step"]), str(replica["behind"]), _how_far(replica), replica["cause"],
        )  # fmt: skip
    failures = Table("when", "culprit", "cause", "seen by", title="last failures")
    for failure in found["failures"]:
        when = time.strftime("%H:%M:%S", time.localtime(failure["time"]))
        failures.add_row(when, str(failure["culprit"]), failure["cause"], ", ".join(failure["seen_by"]))
    return Group(*map(Text, lines), table, *([failures] if found["failures"] else []))


def _how_far(replica: dict[str, Any]) -> str:
    if replica["state"] != "catching up":
        return ""
    if replica["ranges"]:
        donors = ", ".join(map(str, replica["donors"]))
        return f"{replica['staged']} of {replica['ranges']} ranges from {donors}"
    return f"{replica['behind']} steps behind"
