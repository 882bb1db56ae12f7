"""Which faults are in effect, and whom they touch.

The log carries faults as maps of an open vocabulary: ``kind`` and whom they hit are all that the
checker reads. A fault that it cannot place is taken to touch the whole job: the checker then claims
less rather than too much. How long a fault is on: until its ``heal``; if it is bound to processes
(crash, hang, slow ...) at most until the life that suffered it is over; if the store lost its content,
until the store begins a new epoch; some strike once and are over at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

SURROUNDINGS = (
    "partition", "link", "network", "store", "consensus", "latency", "bandwidth", "loss", "flap", "message",
    "hang_at_start",
)  # fmt: skip
CONTENT_LOST = ("store_empty", "store_restored_old")
ONCE = (
    "store_lost_answer", "corrupt_gradient", "nan_gradient", "inf_gradient", "corrupt_parameter",
    "corrupt_optimizer", "corrupt_chunk", "corrupt_range", "donor_lost", "loader_killed", "clock_jump",
    "scale_up",
)  # fmt: skip
# Make a restart late or double, or spoil what lies in storage: felt by nothing that runs.
NOBODY = ("launcher_delay", "launcher_twice", "checkpoint_damaged")
EVERYONE = -1  # stands for the whole job in a set of replicas
STORE = -2  # stands for the consensus store
NEVER = float("-inf")


class Active(NamedTuple):
    """A fault in effect. ``bound``: to the processes of the replicas that it touches."""

    fault: dict[str, Any]
    who: frozenset[int]
    bound: bool


def touched(fault: dict[str, Any]) -> frozenset[int]:
    """The replicas that ``fault`` touches, or EVERYONE, or STORE.

    Read off, in this order: the kind (of the store, or of nobody); ``groups`` of a partition, of which
    the one with the store, or else the largest, counts as untouched; ``rank``, ``host``, ``rack``,
    ``replica``, ``replicas``; ``target``: "store", 3, [3, position], [[3, 0], [4, 0]], {"replica": 3},
    "3/12".
    """
    kind = str(fault.get("kind", ""))
    if kind in NOBODY:
        return frozenset()
    if "store" in kind or "consensus" in kind:
        return frozenset((STORE,))
    if fault.get("groups"):
        return _cut_off(fault["groups"])
    return frozenset(_fields(fault)) or frozenset(_replicas(fault.get("target"))) or frozenset((EVERYONE,))


def _cut_off(groups: Iterable[Iterable[Any]]) -> frozenset[int]:
    ranked = sorted((set(group) for group in groups), key=lambda group: ("store" in group, len(group)))
    lost = {party for group in ranked[:-1] for party in group}
    return frozenset(STORE if party == "store" else int(party) for party in lost)


def _fields(fault: dict[str, Any]) -> Iterator[int]:
    for key in ("rank", "host", "rack", "replica"):
        yield from _replicas(fault.get(key))
    for replica in fault.get("replicas") or ():
        yield from _replicas(replica)


def _replicas(target: Any) -> Iterator[int]:
    if isinstance(target, int):
        yield target
    elif isinstance(target, str):
        yield from _named(target)
    elif isinstance(target, dict):
        yield from _fields(target)
    elif isinstance(target, list) and target:
        address = all(isinstance(part, int) for part in target)  # (replica,) or (replica, position)
        for part in target[:1] if address else target:
            yield from _replicas(part)


def _named(target: str) -> Iterator[int]:
    if "store" in target or "consensus" in target:
        yield STORE
        return
    for part in target.split("-"):
        if match := re.fullmatch(r"(?:replica|rank)?[ :]?(\d+)(?:[/.:]\d+)?", part.strip()):
            yield int(match.group(1))


class Faults:
    """The faults in effect, and when each replica was last touched by one."""

    def __init__(self) -> None:
        self.active: list[Active] = []
        self._until: dict[int, float] = {}
        self.last = NEVER  # time of the last fault or heal
        self.seen = 0

    def begin(self, t: float, fault: dict[str, Any]) -> None:
        """``fault`` takes effect; one that strikes once leaves its mark and is over."""
        kind, who = str(fault.get("kind", "")), touched(fault)
        around = any(word in kind for word in SURROUNDINGS) or EVERYONE in who
        if kind not in ONCE:
            self.active.append(Active(fault, who, not around))
        self.last = t
        self.seen += 1
        self._mark(t, who)
        if kind in CONTENT_LOST:  # lives that the store forgot have to begin anew
            self._mark(t, (EVERYONE,))

    def heal(self, t: float, fault: dict[str, Any]) -> None:
        self._end(t, [a for a in self.active if _same(a.fault, fault)][:1])
        self.last = t

    def life_over(self, t: float, replica: int) -> None:
        """The life of ``replica`` is over, and the faults of its processes with it."""
        self._end(t, [a for a in self.active if a.bound and replica in a.who])

    def new_epoch(self, t: float) -> None:
        """The store has a head again."""
        lost = [a for a in self.active if a.fault.get("kind") in CONTENT_LOST]
        self._end(t, lost)
        if lost:
            self._mark(t, (EVERYONE,))

    def _end(self, t: float, over: list[Active]) -> None:
        for fault in over:
            self.active.remove(fault)
            self._mark(t, fault.who)

    def _mark(self, t: float, who: Iterable[int]) -> None:
        for replica in who:
            self._until[replica] = t

    def on(self, replica: int) -> bool:
        """Whether a fault is in effect on ``replica`` or on the whole job."""
        return any(replica in a.who or EVERYONE in a.who for a in self.active)

    def store_away(self) -> bool:
        return any(STORE in a.who or EVERYONE in a.who for a in self.active)

    def touched_since(self, replica: int, t: float) -> bool:
        """Whether a fault touched ``replica`` (or the whole job) at ``t`` or later."""
        return self.on(replica) or max(self._until.get(who, NEVER) for who in (replica, EVERYONE)) >= t

    def clean_since(self, replica: int, t: float) -> bool:
        """Whether nothing has touched ``replica`` or the store from ``t`` until now."""
        last = max(self._until.get(who, NEVER) for who in (replica, STORE, EVERYONE))
        return last < t and not self.on(replica) and not self.store_away()


def _same(active: dict[str, Any], healed: dict[str, Any]) -> bool:
    """A heal may carry less than the fault did: what both carry must be the same."""
    return active.get("kind") == healed.get("kind") and all(
        active[key] == value for key, value in healed.items() if key in active
    )
