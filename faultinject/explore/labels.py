"""Moves in words: what a counterexample is printed as."""

from __future__ import annotations

from ftruntime.protocol import events as e
from ftruntime.protocol import store as s
from ftruntime.protocol.head import Head

from .job import Job, Move, Row

SHOWN = ("round", "seq", "count", "index", "yes", "complete", "verdict", "step", "member", "live")


def label(job: Job, row: Row, move: Move) -> str:
    """What ``move`` means in ``row``, in one line."""
    nodes, places = job.nodes, job.places
    match move:
        case ("message", int(i), int(j)):
            message = nodes.messages[job.first(row, job.links + i * job.size + j)]
            return f"{places[j]} receives from {places[i]}: {gist(message)}"
        case ("device", int(i)):
            return f"device of {places[i]} finishes: {gist(nodes.table[row[i]].device.pending[0])}"
        case ("timer", int(i), name, tag):
            return f"timer {name} {tag} fires at {places[i]}"
        case ("reset", int(i)):
            replica, life = job.first(row, job.resets + i)
            return f"{places[i]} learns that the connection to {replica}.{life} is reset"
        case ("expire" | "lapse", r, life):
            return f"the lease of {r}.{life} ends"
        case (str(kind), int(r)):
            return _about_store(job, row, kind, r)
    return str(move)


def _about_store(job: Job, row: Row, kind: str, r: int) -> str:
    nodes = job.nodes
    match kind:
        case "request" | "lose":
            lost = ", and the answer is lost" if kind == "lose" else ""
            request = nodes.requests[job.first(row, job.requests + r)[1]]
            return f"the store serves replica {r}: {gist(request)}{lost}"
        case "orphan":
            return (
                f"the store serves dead replica {r}: {gist(nodes.requests[job.first(row, job.orphans + r)])}"
            )
        case "answer":
            return f"replica {r} is answered: {gist(nodes.answers[job.first(row, job.answers + r)[1]])}"
        case "watch":
            return f"replica {r} is told: {gist(nodes.changes[job.first(row, job.watches + r)])}"
    return f"replica {r}: {kind}"


def gist(thing: object) -> str:
    """A message, event, request, answer or change in short."""
    name = type(thing).__name__
    match thing:
        case s.CasDone():
            return f"{name} taken={thing.taken}, now {_head(thing.head)}"
        case s.Cas() | s.HeadChanged() | s.View():
            return f"{name} {_head(thing.head)}"
        case s.Put() | s.RecordChanged():
            r = thing.record
            ready = ", ready" if r.ready else ""
            stance = f"round {r.round} {r.stance.name.lower()}{ready}"
            return f"{name} {r.member}: holds step {r.held.step}, as of {r.as_of}, {stance}"
        case e.Event():
            return str(thing)
    values = [(f, getattr(thing, f, None)) for f in SHOWN if f in getattr(thing, "__struct_fields__", ())]
    return " ".join([name, *(f"{f}={value}" for f, value in values if value is not None)])


def _head(head: Head | None) -> str:
    if head is None:
        return "(empty)"
    end = f"the chain ends with step {head.end.step} of round {head.end.round}"
    return f"v{head.version} round {head.round} {head.status.name.lower()}, {end}, by {head.by}"
