"""How a job stands: what the store shows and what leaders and launchers have published, made sense of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import MemberId, Replica
from ftruntime.protocol.plan import Catcher
from ftruntime.protocol.store import View

from .report import Failure, Report
from .stalls import PHASES

SHOWN = 8  # failures
SAME_S = 10.0  # reports of one failure come within this time
UP, CATCHING_UP, WAITING, DOWN, ABSENT = "up", "catching up", "waiting", "down", "absent"


def status(view: View, reports: Iterable[Report]) -> dict[str, Any]:
    """Plain values, for JSON and for a table. A store without a head has an empty job."""
    found = {report.key: report for report in reports}
    failures = _failures(found.values())
    head = view.head
    leaders = [report for report in found.values() if report.source == "leader"]
    newest = max(leaders, key=lambda report: (report.step, report.time), default=None)
    common: dict[str, Any] = {
        "step_seconds": 0.0 if newest is None else newest.step_seconds,
        "lost_seconds": dict.fromkeys(PHASES, 0.0) if newest is None else newest.lost,
        "failures": failures,
    }
    if head is None:
        return {
            "step": 0,
            "lineage": "",
            "round": 0,
            "status": "empty",
            "reason": "",
            "replicas": [],
            **common,
        }
    return {
        "step": head.end.step,
        "lineage": head.end.lineage,
        "round": head.round,
        "status": head.status.name.lower(),
        "reason": head.plan.reason,
        "replicas": [
            _replica(head, view, replica, found.get(("leader", replica)), _cause(failures, replica))
            for replica in range(len(head.incarnations))
        ],
        **common,
    }


def _replica(head: Head, view: View, replica: Replica, report: Report | None, cause: str) -> dict[str, Any]:
    member = MemberId(replica, head.incarnations[replica][0])
    record = next((record for record in view.records if record.member == member), None)
    catcher = head.plan.catcher(member)
    state = _state(head, view, member, catcher)
    own = report if report is not None and report.incarnation == member.incarnation else None
    held = head.plan.base.step if state == UP else 0 if record is None else record.held.step
    fetched = catcher is not None and catcher.fetch is not None
    return {
        "replica": replica,
        "incarnation": member.incarnation,
        "state": state,
        "phase": own.phase if own is not None and state not in (DOWN, ABSENT) else "",
        "step": held,
        "behind": max(0, head.end.step - held),
        "fetching_step": catcher.fetch.step if fetched and catcher is not None and catcher.fetch else None,
        "donors": [donor.replica for donor in catcher.donors] if catcher is not None else [],
        "staged": 0 if own is None else own.staged,
        "ranges": 0 if own is None else own.ranges,
        "cause": cause if state in (DOWN, CATCHING_UP, WAITING) else "",
    }


def _cause(failures: list[dict[str, Any]], replica: Replica) -> str:
    """The newest; but what its launcher saw at about that time says more than what its peers saw."""
    own = [failure for failure in failures if failure["culprit"] == replica]
    recent = [failure for failure in own if failure["time"] > own[0]["time"] - SAME_S]
    first = [failure for failure in recent if "launcher" in failure["seen_by"]] or recent
    return str(first[0]["cause"]) if first else ""


def _state(head: Head, view: View, member: MemberId, catcher: Catcher | None) -> str:
    if member.incarnation == 0:
        return ABSENT
    if member not in view.leased:
        return DOWN
    if member in head.plan.contributors:
        return UP
    return CATCHING_UP if catcher is not None else WAITING


def _failures(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """The last ones, newest first; what several saw alike is one, with all who saw it."""
    seen: dict[tuple[Replica, str], dict[str, Any]] = {}
    every: list[tuple[Failure, Report]] = [(f, report) for report in reports for f in report.failures]
    for failure, report in sorted(every, key=lambda pair: pair[0].time):
        key = (failure.culprit, failure.cause)
        who = "launcher" if report.source == "launcher" else f"replica {report.replica}"
        known = seen.pop(key, None)
        by = [who] if known is None else sorted({*known["seen_by"], who})
        seen[key] = {
            "time": failure.time,
            "round": failure.round,
            "culprit": failure.culprit,
            "cause": failure.cause,
            "seen_by": by,
        }
    return sorted(seen.values(), key=lambda f: -f["time"])[:SHOWN]
