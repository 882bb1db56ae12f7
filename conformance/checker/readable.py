"""Entries as lines that a person reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .entries import Entry


def describe(entry: Entry) -> str:
    """One line for ``entry``, whatever is in it."""
    try:
        kind, t = entry[0], entry[1]
        return f"t={t:.6f} {_TEXTS.get(kind, _other)(entry)}"
    except (TypeError, ValueError, IndexError, KeyError):
        return str(entry)[:200]


def member(pair: Any) -> str:
    return f"{pair[0]}.{pair[1]}"


def short(lineage: str) -> str:
    """The first digits of a lineage: enough to tell states apart by eye."""
    return str(lineage)[:8]


def span(ranges: Any) -> str:
    return ", ".join(f"stream {s} [{start}, {start + n})" for s, start, n in ranges) or "no samples"


def _who(e: Entry) -> str:
    return f"{e[2]}.{e[3]}" if len(e) > 3 else str(e[2])


def _rank(e: Entry) -> str:
    return f"{e[2]}.{e[3]} rank {e[4]}"


def _head(e: Entry) -> str:
    by = f" by {member(e[6])}" if e[6] else ""
    parts = [f"head v{e[2]}{by}:"]
    if e[7]:
        parts.append(_closed(e[7]))
    if e[9]:
        parts.append(_rollback(e[9]))
    parts.append(f"round {e[4]} {e[5]}" + (f": {_plan(e[8])}" if e[8] and e[5] == "running" else ""))
    return " ".join(parts)


def _closed(closed: dict[str, Any]) -> str:
    if closed["outcome"] != "committed":
        return f"round {closed['round']} closed;"
    state = f"step {closed['step_after']} {short(closed['lineage_after'])}"
    return f"round {closed['round']} committed as {state};"


def _rollback(rollback: dict[str, Any]) -> str:
    target = f"step {rollback['to_step']} {short(rollback['to_lineage'])}"
    return f"ROLLBACK from step {rollback['from_step']} to {target} ({rollback['source']});"


def _plan(plan: dict[str, Any]) -> str:
    base = f"on step {plan['base_step']} {short(plan['base_lineage'])}"
    who = ", ".join(member(m) for m in plan["contributors"]) or "nobody"
    catchers = ", ".join(member(c) for c in plan["catchers"])
    return f"{plan['kind']} {base} by {who}" + (f", catching up: {catchers}" if catchers else "")


def _end(e: Entry) -> str:
    states = "; ".join(
        f"{r}.{k} step {step} {short(lineage)}{'' if healthy else ' unhealthy'}"
        for r, k, step, lineage, healthy in e[2]
    )
    return f"end ({e[3]}): {states or 'no replica is up'}"


def _other(e: Entry) -> str:
    return f"{e[0]} {str(e[2:])[:160]}"


_TEXTS: dict[str, Callable[[Entry], str]] = {
    "meta": lambda e: f"meta: {str(e[2])[:160]}",
    "start": lambda e: f"{_who(e)} starts ({e[4]})",
    "crash": lambda e: f"{_rank(e)} crashes ({e[5]})",
    "exit": lambda e: f"{_who(e)} exits ({e[4]}), {'to restart' if e[5] else 'for good'}",
    "fault": lambda e: f"fault {e[2]}",
    "heal": lambda e: f"healed {e[2]}",
    "head": _head,
    "register": lambda e: f"{_who(e)} is registered",
    "fenced": lambda e: f"a write of {_who(e)} is refused",
    "computed": lambda e: (
        f"{_rank(e)} computes round {e[5]} on {short(e[6])} state {e[7]}, {span(e[8])}, gives {e[10]}"
    ),
    "reused": lambda e: f"{_rank(e)} reuses gradients in round {e[5]}, {span(e[6])}, gives {e[7]}",
    "applied": lambda e: (
        f"{_rank(e)} applies round {e[5]} ({'contributing' if e[6] else 'held'}) on {short(e[7])} "
        f"state {e[8]}: sum {e[9]}, divisor {e[11]}, lr x {e[12]:g} "
        f"-> step {e[13]} {short(e[14])} state {e[15]}"
    ),
    "dropped": lambda e: f"{_rank(e)} drops round {e[5]}",
    "installed": lambda e: f"{_rank(e)} installs step {e[5]} {short(e[6])} from {e[8]}, state {e[7]}",
    "initial": lambda e: f"{_rank(e)} starts with step {e[5]} {short(e[6])}, state {e[7]}",
    "checkpoint": lambda e: f"checkpoint {e[2]} of step {e[3]} {short(e[4])} is recorded",
    "shard": lambda e: f"{_rank(e)} writes its shard of {e[5]}: step {e[6]} {short(e[7])}, state {e[8]}",
    "resources": lambda e: f"{_rank(e)} uses {e[7]}",
    "final": lambda e: f"the job is over with step {e[2]} {short(e[3])}",
    "goes_on": lambda e: f"the job is to go on to step {e[2]}",
    "over": lambda e: f"{_rank(e)} ends well with step {e[5]} {short(e[6])}",
    "refold": lambda e: f"{len(e[2])} positions are run from here on: {str(e[2])[:120]}",
    "end": _end,
    "last_fault": lambda e: "the last fault had ended",
}
