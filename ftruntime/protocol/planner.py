"""Makes plans: a pure function of the head, the records and the leases (design 3.2).

Everyone may run it and all get the same plan; the compare-and-set picks whose copy stands.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from .config import JobConfig
from .head import Head
from .ids import MemberId, Round
from .ledger import assign
from .plan import Base, Catcher, Durations, Kind, Plan, Target, lineage_after
from .record import Record, Stance

MAX_DOUBLINGS = 6


class Members(msgspec.Struct, frozen=True):
    """What the store says of the members beside the head. Read after the head (design 3.2)."""

    records: tuple[Record, ...]
    leased: frozenset[MemberId]

    def live(self, head: Head, member: MemberId) -> bool:
        """Leased, and not succeeded by a later life."""
        return member in self.leased and head.current(member)

    def record(self, member: MemberId) -> Record | None:
        for record in self.records:
            if record.member == member:
                return record
        return None

    def live_records(self, head: Head) -> list[Record]:
        """Records of live members, in member order."""
        found = [r for r in self.records if self.live(head, r.member)]
        return sorted(found, key=lambda r: r.member)

    def unreadable(self, head: Head) -> frozenset[str]:
        """Checkpoints that a live member could not restore: as good as lost."""
        return frozenset(name for r in self.live_records(head) for name in r.unreadable)

    def leaving(self, member: MemberId) -> bool:
        record = self.record(member)
        return record is not None and record.leaving

    def said_no(self, member: MemberId, round: Round) -> bool:
        record = self.record(member)
        return record is not None and record.round == round and record.stance is Stance.NO


def durations(config: JobConfig, closes: int) -> Durations:
    """How long observers wait: doubled for each consecutive close of a step (!)."""
    return Durations(close_after=config.timeouts.close * (1 << min(closes, MAX_DOUBLINGS)))


def make_plan(
    config: JobConfig,
    head: Head,
    base: Base,
    holders: Collection[MemberId],
    members: Members,
    restore: str = "",
    tapping: Collection[MemberId] = (),
) -> Plan:
    """The plan of ``head.round``, whose chain, round, closes and penalties are already set.

    holders:  live members presumed to hold ``base``
    restore:  what catchers load when nobody holds the base: a checkpoint's name, or "initial"
    tapping:  live catchers that hold the reduced gradients that lead to ``base``: they need no fetch
    """
    able = sorted(m for m in holders if _able(m, head, members))
    staying = _without_leaving(config, able, members)
    contributors = _without_penalised(config, head, staying)
    if head.finished or len(contributors) < config.min_replicas:
        return _catch_up_plan(config, head, base, sorted(holders), members, restore)
    owned = assign(
        base.ledger,
        [m.replica for m in contributors],
        config.replicas,
        config.samples_per_step,
        config.max_stream_lag,
    )
    ranges = tuple(owned[m.replica] for m in contributors)
    divisor = _divisor(config, len(contributors))
    lr_factor = _lr_factor(config, len(contributors))
    others = _others(head, members, contributors)
    catchers = tuple(_joining(config, head, base, r, contributors, tapping) for r in others)
    zeros = tuple(c.member for c in catchers if c.zeros)
    after = lineage_after(base.lineage, head.round, contributors, ranges, divisor, lr_factor, zeros)
    return Plan(
        round=head.round,
        kind=Kind.TRAIN,
        base=base,
        contributors=contributors,
        ranges=ranges,
        catchers=catchers,
        divisor=divisor,
        lr_factor=lr_factor,
        durations=durations(config, head.closes),
        lineage_after=after,
        reason=_reason(config, head, contributors, catchers),
    )


def _penalised(head: Head) -> set[MemberId]:
    return {p.member for p in head.penalties if p.until > head.round}


def _able(member: MemberId, head: Head, members: Members) -> bool:
    """A contributor of the last plan is ready by having been one; others say so in their record."""
    if member in head.plan.contributors:
        return True
    record = members.record(member)
    return record is not None and record.ready


def _without_leaving(config: JobConfig, able: list[MemberId], members: Members) -> list[MemberId]:
    """Leave out whom its operator takes out, unless too few would be left to train: then it stays for now."""
    kept = [m for m in able if not members.leaving(m)]
    return kept if len(kept) >= config.min_replicas else able


def _without_penalised(config: JobConfig, head: Head, able: list[MemberId]) -> tuple[MemberId, ...]:
    """Leave out whom others could not talk to, unless too few would be left to train at all."""
    out = _penalised(head)
    kept = tuple(m for m in able if m not in out)
    return kept if len(kept) >= config.min_replicas else tuple(able)


def _others(head: Head, members: Members, contributors: Collection[MemberId]) -> list[Record]:
    return [r for r in members.live_records(head) if r.member not in contributors and not r.leaving]


def _catch_up_plan(
    config: JobConfig,
    head: Head,
    base: Base,
    holders: list[MemberId],
    members: Members,
    restore: str,
) -> Plan:
    """Too few to train (!), or nothing left to: those who hold the base hand it to those who do not."""
    if not restore and not holders:
        restore = head.stored(base.lineage)
    why = "is the last" if head.finished else f"needs {config.min_replicas} replicas"
    needy = [r for r in members.live_records(head) if r.member not in holders]
    catchers = tuple(_catcher(config, head, base, r, tuple(holders), (), ()) for r in needy)
    names = ", ".join(str(m) for m in holders) or restore or "nobody"
    return Plan(
        round=head.round,
        kind=Kind.CATCH_UP,
        base=base,
        contributors=(),
        ranges=(),
        catchers=catchers,
        divisor=0,
        lr_factor=0.0,
        durations=durations(config, 0),
        restore=restore,
        reason=f"step {base.step} {why}; held by {names}",
    )


def _joining(
    config: JobConfig,
    head: Head,
    base: Base,
    record: Record,
    contributors: tuple[MemberId, ...],
    tapping: Collection[MemberId],
) -> Catcher:
    """A catcher beside a round of training: by a tap, or as a member of the ring that sends zeros.

    One that is not warm yet, or that others could not talk to, has no place in the ring: it waits.
    """
    if config.catch_up.mode == "tap":
        return _catcher(config, head, base, record, contributors, tapping, contributors)
    if not record.ready or record.member in _penalised(head):
        return Catcher(record.member)
    catcher = _catcher(config, head, base, record, contributors, tapping, ())
    return msgspec.structs.replace(catcher, zeros=True)


def _catcher(
    config: JobConfig,
    head: Head,
    base: Base,
    record: Record,
    sources: tuple[MemberId, ...],
    tapping: Collection[MemberId],
    taps: tuple[MemberId, ...],
) -> Catcher:
    """How ``record.member`` comes level: nothing to fetch, a fetch that goes on, or a new one."""
    member = record.member
    tap = _tap(head, record, taps)
    if record.holds(base.lineage) or member in tapping:
        return Catcher(member, None, (), tap)
    going_on = _going_on(config, head, base, record, sources)
    if going_on is not None:
        return Catcher(member, going_on.fetch, going_on.donors, tap)
    count = min(config.catch_up.donors, len(sources))
    donors = tuple(sorted(sources[(member.replica + i) % len(sources)] for i in range(count)))
    return Catcher(member, Target(base.step, base.lineage), donors, tap)


def _tap(head: Head, record: Record, taps: tuple[MemberId, ...]) -> MemberId | None:
    """The tap of the last plan as long as it serves; another one after a round that the catcher missed."""
    if not taps:
        return None
    last = head.plan.catcher(record.member)
    if last is None or last.tap not in taps:
        return taps[record.member.replica % len(taps)]
    missed = record.round == head.plan.round and record.stance is Stance.NO
    return taps[(taps.index(last.tap) + missed) % len(taps)]


def _going_on(
    config: JobConfig, head: Head, base: Base, record: Record, sources: tuple[MemberId, ...]
) -> Catcher | None:
    """The catcher's entry in the last plan, if what it fetches is still good and still served."""
    fetching, last = record.fetching, head.plan.catcher(record.member)
    if fetching is None or not head.on_chain(fetching.lineage):
        return None
    if base.step - fetching.step > config.catch_up.window:
        return None
    if fetching.lineage == record.held.lineage:
        return Catcher(record.member, fetching, ())
    if last is None or last.fetch != fetching:
        return None
    donors = tuple(d for d in last.donors if d in sources)
    if not donors and (last.donors or not head.stored(fetching.lineage)):
        return None
    return Catcher(record.member, fetching, donors)


def _divisor(config: JobConfig, contributors: int) -> int:
    """Samples that the sum of gradients is divided by."""
    count = contributors if config.divisor == "contributors" else config.replicas
    return count * config.samples_per_step


def _lr_factor(config: JobConfig, contributors: int) -> float:
    share = contributors / config.replicas
    factors: dict[str, float] = {"none": 1.0, "linear": share, "sqrt": math.sqrt(share)}
    return factors[config.lr_scaling]


def _reason(
    config: JobConfig,
    head: Head,
    contributors: tuple[MemberId, ...],
    catchers: tuple[Catcher, ...],
) -> str:
    text = f"{len(contributors)} of {config.replicas} replicas hold step {head.end.step}"
    if head.closes:
        text += f", try {head.closes + 1}"
    if catchers:
        text += ", catching up: " + ", ".join(str(c.member) for c in catchers)
    return text
