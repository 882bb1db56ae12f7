"""Strikes at the network: links that fail, lose, delay, double, or carry less (``netfaults.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from faultinject import Fault
from faultinject import vocabulary as v
from faultinject.targets import ranks_of

from ..netfaults import Group, LinkFault, LinkFaultKind

if TYPE_CHECKING:
    from ..inject import Injector


def hinder(
    i: Injector, fault: v.AnyFault, kind: LinkFaultKind, amount: float, begin: float, end: float
) -> None:
    """Everything that the fault's target sends, or that passes between its ends or groups, meets ``kind``."""
    seed = int(begin * 1000.0)
    for source, target in _ways(i, fault):
        i.job.network.add(LinkFault(kind, begin, end, source, target, amount, seed))


def _ways(i: Injector, fault: v.AnyFault) -> Iterator[tuple[Group, Group]]:
    link, groups = getattr(fault, "link", None), getattr(fault, "groups", None)
    if link is not None:
        one, other = (Group(frozenset({r}), frozenset(), frozenset({p})) for r, p in link)
        yield from ((one, other), (other, one))
    elif groups is not None:
        sides = [Group(frozenset(group)) for group in groups]
        yield from ((a, b) for a in sides for b in sides if a is not b)
    elif getattr(fault, "building", None) is not None:
        yield Group(frozenset(i.job.shape.replicas_of_building(fault.building))), Group()  # type: ignore[union-attr]
    elif getattr(fault, "replica", None) is not None:
        yield Group(frozenset({fault.replica})), Group()  # type: ignore[union-attr]
    else:
        ranks = ranks_of(fault, i.job.shape)
        positions = frozenset(position for _, position in ranks)
        yield Group(frozenset({ranks[0][0]}), frozenset(), positions), Group()


def link_flap(i: Injector, fault: v.LinkFlap, now: float) -> None:
    _for_a_time(i, fault, LinkFaultKind.LOSSY, 1.0, now)


def message_loss(i: Injector, fault: v.MessageLoss, now: float) -> None:
    _for_a_time(i, fault, LinkFaultKind.LOSS, fault.share, now)


def message_delay(i: Injector, fault: v.MessageDelay, now: float) -> None:
    _for_a_time(i, fault, LinkFaultKind.DELAY, fault.seconds, now, fault.seconds)


def message_reorder(i: Injector, fault: v.MessageReorder, now: float) -> None:
    _for_a_time(i, fault, LinkFaultKind.JITTER, fault.seconds, now, fault.seconds)


def message_duplicate(i: Injector, fault: v.MessageDuplicate, now: float) -> None:
    _for_a_time(i, fault, LinkFaultKind.DOUBLE, fault.share, now)


def bandwidth_loss(i: Injector, fault: v.BandwidthLoss, now: float) -> None:
    _for_a_time(i, fault, LinkFaultKind.BANDWIDTH, max(1e-6, 1.0 / fault.factor), now)


def _for_a_time(
    i: Injector, fault: Any, kind: LinkFaultKind, amount: float, now: float, late: float = 0.0
) -> None:
    """``late``: seconds for which what was sent under the fault may be under way. It is over after that, or
    when connections that waited so long are reset."""
    hinder(i, fault, kind, amount, now, now + fault.duration)
    i.later(fault.duration + min(late, i.job.reset_after_s), fault)


def partition(i: Injector, fault: v.Partition, now: float) -> None:
    """Between every two groups, or from the first to the second; the store may be in a group."""
    sides = [frozenset(p for p in group if p != "store") for group in fault.groups]
    pairs = [(a, b) for a in range(len(sides)) for b in range(len(sides)) if a != b]
    for a, b in [(0, 1)] if fault.one_way else pairs:
        if sides[a] and sides[b]:
            down = LinkFaultKind.DOWN
            link = LinkFault(down, now, now + fault.duration, Group(sides[a]), Group(sides[b]))
            i.job.network.add(link)
    if i.job.hub is not None:
        _cut_store(i, fault, sides)
    i.later(fault.duration, fault)


def _cut_store(i: Injector, fault: v.Partition, sides: list[frozenset[Any]]) -> None:
    with_store = [n for n, group in enumerate(fault.groups) if "store" in group]
    for n, side in enumerate(sides):
        if not with_store or n in with_store or not side:
            continue
        asks = not fault.one_way or n == 0
        told = not fault.one_way or with_store[0] == 0
        i.hub.store.cut(side, fault.duration, requests=asks, answers=told)


DO: dict[type[Fault], Callable[[Injector, Any, float], None]] = {
    v.Partition: partition,
    v.LinkFlap: link_flap,
    v.MessageLoss: message_loss,
    v.MessageDelay: message_delay,
    v.MessageReorder: message_reorder,
    v.MessageDuplicate: message_duplicate,
    v.BandwidthLoss: bandwidth_loss,
}
