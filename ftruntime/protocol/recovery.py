"""``recover``: the second step of a rollback, checkpoints on record, and the loss of the store.

A rollback is two compare-and-sets (design 3.2): ``advance`` has set the head to ``recovering``
with a new round; ``recover`` then plans from promises alone, which are records as of that round.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .advance import Advance, Next, NotYet, Settled, unreachable_holders
from .config import JobConfig
from .ending import readable
from .head import Checkpoint, Fate, Head, Rollback, Status, successor
from .ids import MemberId, Round
from .plan import Base
from .planner import Members, make_plan
from .record import Record


def recover(
    config: JobConfig,
    head: Head,
    round: Round,
    by: MemberId,
    members: Members,
    grace_over: bool,
) -> Advance:
    """Leave ``recovering`` with a plan made of promises, one from every leased member.

    Targets are live states on the chain and recorded checkpoints; the highest step wins, a live
    one before a stored one. Cutting the chain deletes later checkpoints and is put on record.
    """
    if head.round != round or head.status is not Status.RECOVERING:
        return Settled(head.fate(round) if round < head.round else Fate.OPEN)
    if not head.current(by):
        return NotYet(f"{by} was succeeded by a later life")
    waiting = _waiting_for(config, head, members, grace_over)
    if waiting:
        return NotYet(waiting)
    promises = [r for r in members.live_records(head) if r.as_of >= head.round]
    usable = _reachable(config, head, members, promises)
    if head.finished:  # the store had lost its head: what is over is not cut
        base, source = head.plan.base, readable(head, members)
    else:
        base, source = _target(config, head, usable, members.unreadable(head))
    opened = _cut(head, base, source, by)
    holders = [r.member for r in usable if r.holds(base.lineage)]
    restore = "" if holders else source
    plan = make_plan(config, opened, base, holders, members, restore)
    return Next(msgspec.structs.replace(opened, plan=plan))


def _waiting_for(config: JobConfig, head: Head, members: Members, grace_over: bool) -> str:
    """Whose promise is missing, or "" if none is."""
    leased = sorted(m for m in members.leased if head.current(m))
    for member in leased:
        record = members.record(member)
        if record is None or record.as_of < head.round:
            return f"{member} has not promised in round {head.round}"
    if len(leased) < config.replicas and not grace_over:
        return f"{len(leased)} of {config.replicas} replicas have promised; waiting for the rest"
    return "" if leased else "nobody is there"


def _reachable(config: JobConfig, head: Head, members: Members, promises: list[Record]) -> list[Record]:
    """Without the holders that no peer can reach, once catch-up has been fruitless for long enough.

    Those who are left must reach each other: of any that accuse one another the most accused go.
    """
    if head.fruitless < config.catch_up.fruitless:
        return promises
    holders = {r.member.replica for r in promises if r.holds(head.end.lineage)}
    out = unreachable_holders(head, members, holders)
    if not out:
        return promises
    rest = [r for r in promises if r.member.replica not in out]
    while accused := _most_accused(rest):
        rest = [r for r in rest if r.member != accused]
    return rest if len(rest) >= config.min_replicas else promises


def _most_accused(records: list[Record]) -> MemberId | None:
    """Whom most of the others accuse; None if they can all talk to each other."""
    count = {r.member: sum(r.member.replica in o.accuses for o in records) for r in records}
    worst = max(count, key=lambda m: (count[m], m), default=None)
    return worst if worst is not None and count[worst] else None


def _target(
    config: JobConfig, head: Head, promises: list[Record], unreadable: frozenset[str]
) -> tuple[Base, str]:
    """The state to go on from, and where it is: "live", "initial", or a checkpoint's name."""
    genesis = head.chain[0]
    zero = Base(0, genesis.lineage, (0,) * config.stream_count)
    found: list[tuple[int, int, Base, str]] = [(0, 0, zero, "initial")]
    for c in head.checkpoints:
        if head.on_chain(c.lineage) and c.name not in unreadable:
            found.append((c.step, 1, Base(c.step, c.lineage, c.ledger), c.name))
    for r in promises:
        if head.on_chain(r.held.lineage):
            base = Base(r.held.step, r.held.lineage, r.held.ledger)
            found.append((r.held.step, 2, base, "live"))
    _, _, base, source = max(found, key=lambda t: t[:2])
    return base, source


def _cut(head: Head, base: Base, source: str, by: MemberId) -> Head:
    """The running head of the next round, its chain ending at ``base``; the plan is still the old one."""
    chain = tuple(c for c in head.chain if c.step <= base.step)
    assert chain[-1].lineage == base.lineage, "a rollback target must be on the chain"
    rollback = head.rollback
    if len(chain) < len(head.chain):
        rollback = Rollback(head.round + 1, head.end.step, base.step, base.lineage, source)
    return successor(
        head,
        round=head.round + 1,
        status=Status.RUNNING,
        chain=chain,
        checkpoints=tuple(c for c in head.checkpoints if c.step <= base.step),
        closes=0,
        fruitless=0,
        rollback=rollback,
        by=by,
    )


def record_checkpoint(config: JobConfig, head: Head, checkpoint: Checkpoint, by: MemberId) -> Advance:
    """Put a checkpoint on record, if its state is still on the chain; the oldest ones go."""
    if any(c.name == checkpoint.name for c in head.checkpoints):
        return Settled(Fate.COMMITTED)
    if not head.on_chain(checkpoint.lineage) or not head.current(by):
        return Settled(Fate.CLOSED)
    kept = sorted((*head.checkpoints, checkpoint), key=lambda c: c.step)[-config.checkpoints_kept :]
    return Next(successor(head, checkpoints=tuple(kept), by=by))


def suspend(stands: Head) -> Head:
    """Stop a store that came back older than a member remembers (!): nothing moves in it any more."""
    return successor(stands, status=Status.LOST, by=None)


def newest_of(heads: Sequence[Head]) -> Head:
    """The head that knows of most, of those that were ever seen."""
    return max(heads, key=lambda h: (h.epoch, h.end.step, h.round, h.known))


def rebuild(config: JobConfig, records: Sequence[Record], stands: Head | None, confirmed: bool) -> Advance:
    """A head for a store that came back empty or older (!): from the records of all R replicas.

    Each record carries the newest head that its member has seen; a replica whose process was
    restarted by its launcher says so with incarnation 0 and no head: it holds nothing and its
    earlier life is certainly gone. The head with the most commits goes through ``recovering``, so the
    members say by promise what they hold. With fewer than all R only the operator's word (``confirmed``)
    opens the job again, if nobody has seen a head then with what the store holds now (``stands``). Version
    and round go beyond all that anyone has seen, on whatever branch: no number is used twice.

    A store that loses its head once more may bring words of the first loss back: a word counts if it knows
    of the newest epoch that any word knows of. Whoever is behind learns it from the others' words.
    """
    epoch = max((r.seen.epoch for r in records if r.seen is not None), default=0)
    word = [r for r in records if (r.seen.epoch == epoch if r.seen else r.member.incarnation == 0)]
    missing = sorted(set(range(config.replicas)) - {r.member.replica for r in word})
    if missing and not confirmed:
        return NotYet(f"the store lost its head; no record yet from replicas {missing}")
    heads = [r.seen for r in word if r.seen is not None]
    if not heads and confirmed and stands is not None:
        heads = [stands]
    if not heads:
        return NotYet("the store lost its head and no member has seen one: confirm to start anew")
    newest = newest_of(heads)
    seen = heads if stands is None else [*heads, stands]
    return Next(
        successor(
            newest,
            version=max(h.version for h in seen) + 1,
            epoch=max(h.epoch for h in seen) + 1,
            round=max(h.round for h in seen) + 1,
            status=Status.RECOVERING,
            by=None,
        )
    )
