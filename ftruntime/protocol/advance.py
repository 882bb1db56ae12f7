"""``advance``: closes a round and opens the next with its plan, in one compare-and-set (design 3.2).

Pure functions from (head, what the store says of the members) to the head to write. A round
commits once or is closed for ever, so no two replicas carry different updates of one step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

import msgspec

from .blame import accusations, blamed, punish
from .config import JobConfig
from .ending import readable
from .head import Commit, Fate, Head, Status, successor
from .ids import MemberId, Replica, Round
from .plan import Base, Kind, Plan
from .planner import Members, make_plan
from .record import Record

MIN_CHAIN = 8  # commits kept for people to look at, whatever the targets


class Next(msgspec.Struct, frozen=True):
    """Write this head."""

    head: Head


class Settled(msgspec.Struct, frozen=True):
    """The round is not open: this is what became of it, and never a refusal (!)."""

    fate: Fate


class NotYet(msgspec.Struct, frozen=True):
    """Nothing to write now; ``reason`` says what must happen first."""

    reason: str


Advance: TypeAlias = Next | Settled | NotYet


def advance(
    config: JobConfig, head: Head, round: Round, fate: Fate, by: MemberId, members: Members
) -> Advance:
    """End ``round`` as ``fate`` (COMMITTED or CLOSED) and plan the next one.

    A retry after a failed compare-and-set keeps ``round`` (!): whoever advanced it in between is
    answered by what became of it, never by committing a later round that nobody reduced.
    """
    if round != head.round:
        assert round < head.round, "a round that no head has opened cannot end"
        return Settled(head.fate(round))
    if not head.current(by):
        return NotYet(f"{by} was succeeded by a later life")
    if fate is Fate.COMMITTED and by not in head.plan.contributors:
        return NotYet(f"{by} does not contribute to round {round} as it stands")
    if head.status is not Status.RUNNING:
        return NotYet(f"round {round} is {head.status.name.lower()}: only recovery leads out of it")
    return (_commit if fate is Fate.COMMITTED else _close)(config, head, by, members)


def _commit(config: JobConfig, head: Head, by: MemberId, members: Members) -> Advance:
    plan, base = head.plan, head.plan.result()
    commit = Commit(base.step, base.lineage, plan.round, plan.contributors)
    unhappy = [m for m in plan.contributors if m != by and members.said_no(m, plan.round)]
    opened = successor(
        head,
        round=head.round + 1,
        chain=_trim(config, head, members, (*head.chain, commit)),
        penalties=punish(head.penalties, _accusers_among(unhappy, members), plan.round),
        closes=0,
        fruitless=0,
        by=by,
    )
    tapping = _tapping(head, members)
    holders = (
        {by} | _still_in(head, members, plan) | {m for m in tapping if _ready_and_level(m, plan, members)}
    )
    return _open(config, opened, base, holders, members, tapping)


def _still_in(head: Head, members: Members, plan: Plan) -> set[MemberId]:
    """Contributors that are presumed to be where the round leaves them: live, and did not say no."""
    return {m for m in plan.contributors if members.live(head, m) and not members.said_no(m, plan.round)}


def _tapping(head: Head, members: Members) -> frozenset[MemberId]:
    """Level catchers of the open round: with its reduced gradients they come to its result."""
    plan = head.plan
    found = set()
    for catcher in plan.catchers:
        record = members.record(catcher.member)
        if record is None or not catcher.holds or not members.live(head, catcher.member):
            continue
        if record.holds(plan.base.lineage) and not members.said_no(catcher.member, plan.round):
            found.add(catcher.member)
    return frozenset(found)


def _ready_and_level(member: MemberId, plan: Plan, members: Members) -> bool:
    record = members.record(member)
    return record is not None and record.ready and record.holds(plan.base.lineage)


def _accusers_among(unhappy: Iterable[MemberId], members: Members) -> list[MemberId]:
    """Who failed a round that others completed, because of a peer: it waits before it tries again."""
    found = []
    for member in unhappy:
        record = members.record(member)
        if record is not None and record.accuses:
            found.append(member)
    return found


def _close(config: JobConfig, head: Head, by: MemberId, members: Members) -> Advance:
    plan = head.plan
    training = plan.kind is Kind.TRAIN
    holders = _still_in(head, members, plan) | _recorded(head, members, plan.base.lineage)
    unreachable = _all_accused(config, head, members, holders)
    # Nobody needs to hold what a checkpoint holds, and a restore may be slow; unless it cannot be read.
    restoring = bool(plan.restore) and plan.restore not in members.unreadable(head)
    if head.finished:
        if not holders and not readable(head, members):
            return NotYet(f"the job is over at step {head.end.step}, and nobody has that state")
    elif unreachable or not (holders or restoring):
        return _recover(head, by, members, unreachable)
    guilty = _guilty(head, members) if training else ()
    closed = successor(
        head,
        round=head.round + 1,
        penalties=punish(head.penalties, guilty, plan.round),
        closes=head.closes + 1 if training else head.closes,
        by=by,
    )
    opened = _open(config, closed, plan.base, holders, members, ()).head
    fruitless = 0 if training else _fruitless(head, opened.plan)
    return Next(msgspec.structs.replace(opened, fruitless=fruitless))


def _recorded(head: Head, members: Members, lineage: str) -> set[MemberId]:
    return {r.member for r in members.live_records(head) if r.holds(lineage)}


def _guilty(head: Head, members: Members) -> list[MemberId]:
    """Whom contributors could not talk to; whom a catcher cannot reach is its own business (design 3.5)."""
    contributors = [r for r in members.live_records(head) if r.member in head.plan.contributors]
    accused_by = accusations(contributors, head.round)
    out = blamed(accused_by)
    return [m for m in head.plan.ring() if m.replica in out]


def _fruitless(head: Head, opened: Plan) -> int:
    """One more when a whole round's time brought nobody nearer: the next plan asks for just the same."""
    if opened.gist() != head.plan.gist():
        return head.fruitless if opened.kind is Kind.CATCH_UP else 0
    return head.fruitless + 1 if head.plan.catchers else 0


def _all_accused(config: JobConfig, head: Head, members: Members, holders: Collection[MemberId]) -> bool:
    """Holders that reach the store but no peer, for ``fruitless`` rounds (design 3.2)."""
    if head.fruitless < config.catch_up.fruitless or not holders:
        return False
    out = unreachable_holders(head, members, {m.replica for m in holders})
    return len(out) == len({m.replica for m in holders})


def unreachable_holders(head: Head, members: Members, holders: Collection[Replica]) -> frozenset[Replica]:
    """Holders that every other live member accuses in its latest word."""
    others = [r for r in members.live_records(head) if r.member.replica not in holders]
    if not others:
        return frozenset()
    return frozenset(h for h in holders if all(h in r.accuses for r in others))


def _recover(head: Head, by: MemberId, members: Members, unreachable: bool) -> Advance:
    """First step of a rollback: nobody can hold the end of the chain, as far as the records say."""
    if not unreachable:
        for member in head.end.contributors:
            record = members.record(member)
            if members.live(head, member) and (record is None or record.as_of <= head.end.round):
                return NotYet(f"{member} has not said what became of round {head.end.round} there")
    return Next(
        successor(
            head,
            round=head.round + 1,
            status=Status.RECOVERING,
            by=by,
        )
    )


def _open(
    config: JobConfig,
    head: Head,
    base: Base,
    holders: Collection[MemberId],
    members: Members,
    tapping: Collection[MemberId],
) -> Next:
    plan = make_plan(config, head, base, holders, members, tapping=tapping)
    return Next(msgspec.structs.replace(head, plan=plan))


def _trim(config: JobConfig, head: Head, members: Members, chain: tuple[Commit, ...]) -> tuple[Commit, ...]:
    """Forget commits older than every rollback target, and keep no more than the last ``chain_limit``.

    The genesis and recorded checkpoints stay, however old. A rollback may go back to what any current
    member holds or fetches, leased or not, so those stay too. ``chain_limit`` is at least twice the
    catch-up window: a member that falls off the chain is out of every fetch and every open round.
    """
    targets = [c.step for c in head.checkpoints]
    for record in members.records:
        if head.current(record.member):
            targets += [s for s in _steps_of(record) if s > 0]
    kept_from = min([*targets, chain[-1].step - MIN_CHAIN])
    recent = max(kept_from, chain[-1].step - config.chain_limit + 1)
    stored = {c.lineage for c in head.checkpoints}
    return (chain[0], *(c for c in chain[1:] if c.step >= recent or c.lineage in stored))


def _steps_of(record: Record) -> list[int]:
    return [record.held.step] + ([record.fetching.step] if record.fetching else [])
