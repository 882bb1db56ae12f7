"""Strikes at the consensus store (``emulator/store.py`` has what they do)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultinject import Fault
from faultinject import vocabulary as v
from ftruntime.protocol.store import Cas

if TYPE_CHECKING:
    from ..inject import Injector

STORE_RESTART_S = 1.0


def store_slow(i: Injector, fault: v.StoreSlow, now: float) -> None:
    i.hub.store.slow_down(fault.factor)
    i.later(fault.duration, fault, lambda now: i.hub.store.slow_down(1.0))


def store_away(i: Injector, fault: v.StoreAway, now: float) -> None:
    i.hub.store.unavailable(fault.duration)
    i.later(fault.duration, fault)


def store_restart(i: Injector, fault: v.StoreRestart, now: float) -> None:
    i.hub.store.restart(fault.duration)
    i.later(fault.duration, fault)


def store_lost_answer(i: Injector, fault: v.StoreLostAnswer, now: float) -> None:
    i.hub.store.lose_answers(fault.count, lambda request: isinstance(request, Cas))


def store_leader_change(i: Injector, fault: v.StoreLeaderChange, now: float) -> None:
    i.hub.store.change_leader(fault.duration, 2.0 * fault.duration)
    i.later(fault.duration, fault)


def store_empty(i: Injector, fault: v.StoreEmpty, now: float) -> None:
    if i.hub.store.head is None:  # there was nothing to lose
        i.later(STORE_RESTART_S, fault)
    i.hub.store.restart_empty(STORE_RESTART_S)


def store_restored_old(i: Injector, fault: v.StoreRestoredOld, now: float) -> None:
    """As far back as there are backups, if the schedule asks for more."""
    versions = min(fault.versions, i.hub.store.backups)
    if versions:
        i.hub.store.restart_older(versions, STORE_RESTART_S)
    else:
        i.later(STORE_RESTART_S, fault)


DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    v.StoreSlow: store_slow,
    v.StoreAway: store_away,
    v.StoreRestart: store_restart,
    v.StoreLostAnswer: store_lost_answer,
    v.StoreLeaderChange: store_leader_change,
    v.StoreEmpty: store_empty,
    v.StoreRestoredOld: store_restored_old,
}
