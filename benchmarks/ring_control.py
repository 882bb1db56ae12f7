"""What a chunk costs in FTAR's control plane: a round of a ring is recorded, then replayed without a driver.

python benchmarks/ring_control.py --members 12 --slots 8
"""

from __future__ import annotations

import copy
import json
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ftruntime.protocol.congestion import Tier, fresh_window
from ftruntime.protocol.effects import Effect, Post, Send
from ftruntime.protocol.geometry import Geometry, geometry
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import Ack, Join
from ftruntime.protocol.ring import Ring

Call = tuple[str, tuple[object, ...]]


def make_ring(shape: Geometry, index: int) -> Ring:
    """Member ``index`` of the ring, at position 0 in round 1."""
    names = [MemberId(replica, 1) for replica in range(shape.members)]
    return Ring(
        shape,
        names[index],
        names[index - 1],
        names[(index + 1) % shape.members],
        position=0,
        round=1,
        window=fresh_window(Tier.RACK, shape.slots),
        contributing=True,
        chunk_timeout=60.0,
        max_retries=3,
    )


def record(shape: Geometry) -> list[Call]:
    """What happens to member 0 in a round in which messages are delivered in the order of sending."""
    rings = [make_ring(shape, i) for i in range(shape.members)]
    calls: list[Call] = []
    due: deque[tuple[int, str, tuple[object, ...]]] = deque((i, "start", ()) for i in range(len(rings)))
    due.extend((i, "bucket_ready", (b,)) for b in range(len(shape.buckets)) for i in range(len(rings)))
    while due:
        i, name, arguments = due.popleft()
        out: list[Effect] = []
        getattr(rings[i], name)(*arguments, 0.0, out)
        if i == 0:
            calls.append((name, arguments))
        due.extend(e for effect in out for e in deliveries(effect, i, shape))
    assert all(ring.finished for ring in rings), "the ring did not finish"
    return calls


def deliveries(effect: Effect, i: int, shape: Geometry) -> list[tuple[int, str, tuple[object, ...]]]:
    """Calls that follow from an effect of member ``i``."""
    if isinstance(effect, Post) and effect.send:
        found: list[tuple[int, str, tuple[object, ...]]] = []
        if shape.needs_completions:
            found.append((i, "sent", (effect.give + 1,)))
        return [*found, ((i + 1) % shape.members, "chunk", (effect.give, effect.push))]
    if isinstance(effect, Send) and isinstance(effect.message, Ack):
        return [(effect.to[0], "ack", (effect.message.count,))]
    if isinstance(effect, Send) and isinstance(effect.message, Join):
        return [(effect.to[0], "join", (effect.message,))]
    return []


def replay(shape: Geometry, calls: list[Call], rings: int) -> float:
    """Seconds for ``rings`` members to live through ``calls``, less what the bare loop costs."""
    fresh = make_ring(shape, 0)
    spent = 0.0
    for _ in range(rings):
        out: list[Effect] = []
        ring = copy.copy(fresh)
        bound: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (getattr(ring, name), (*arguments, 0.0, out)) for name, arguments in calls
        ]
        began = perf_counter()
        for call, arguments in bound:
            call(*arguments)
        spent += perf_counter() - began
        empty = [(nothing, arguments) for _, arguments in bound]
        began = perf_counter()
        for call, arguments in empty:
            call(*arguments)
        spent -= perf_counter() - began
    return spent


def timed_kinds(shape: Geometry, calls: list[Call], rings: int) -> float:
    """Seconds of one ``Ring.chunk``, its quickest time at each place of the round, less the clock's own."""
    fresh = make_ring(shape, 0)
    quickest = [float("inf")] * len(calls)
    clock = float("inf")
    for _ in range(rings):
        out: list[Effect] = []
        ring = copy.copy(fresh)
        for at, (name, arguments) in enumerate(calls):
            call = getattr(ring, name)
            given = (*arguments, 0.0, out)
            began = perf_counter()
            call(*given)
            ended = perf_counter()
            quickest[at] = min(quickest[at], ended - began)
            clock = min(clock, perf_counter() - ended)
    chunks = [spent for spent, (name, _) in zip(quickest, calls, strict=True) if name == "chunk"]
    return sum(chunks) / len(chunks) - clock


def another(ring: Ring) -> Ring:
    """A new ring like ``ring``."""
    return Ring(
        ring.geometry,
        ring.me,
        ring.left,
        ring.right,
        position=0,
        round=2,
        window=ring.window,
        contributing=True,
        chunk_timeout=60.0,
        max_retries=3,
    )


def nothing(*_: object) -> None:
    """The call that the loop makes anyway."""


@click.command()
@click.option("--members", default=12, show_default=True, help="Members of the ring.")
@click.option("--slots", default=8, show_default=True, help="Slots of a link.")
@click.option("--chunks", default=1, show_default=True, help="Chunks per partition.")
@click.option("--buckets", default=1, show_default=True, help="Buckets of the round.")
@click.option("--rings", default=5000, show_default=True, help="Rounds to replay.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(members: int, slots: int, chunks: int, buckets: int, rings: int, as_json: bool) -> None:
    """Microseconds per received chunk inside ``Ring``: all its calls of a round, over the chunks."""
    shape = geometry((members * chunks,) * buckets, members, 1, slots)
    calls = record(shape)
    best = min(replay(shape, calls, max(1, rings // 5)) / max(1, rings // 5) for _ in range(5))
    one = timed_kinds(shape, calls, max(1, rings // 5))
    first = make_ring(shape, 0)
    began = perf_counter()
    kept = [another(first) for _ in range(rings)]
    made = (perf_counter() - began) / len(kept)
    figures = {
        "chunks": shape.total,
        "calls": len(calls),
        "us_per_chunk": round(1e6 * best / shape.total, 3),
        "us_per_call": round(1e6 * best / len(calls), 3),
        "us_per_chunk_call": round(1e6 * one, 3),
        "us_per_ring_made": round(1e6 * made, 2),
        "bytes_per_ring": sys.getsizeof(kept[0]),
    }
    if as_json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:18} {value}")


if __name__ == "__main__":
    main()
