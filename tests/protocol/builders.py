"""Small builders of heads, plans and records, made by hand: what the code under test makes is not used here.

A state has the name ``L<step>`` after step 0, so a failing test reads as a story. Every replica
contributes to every step unless said otherwise: stream r of replica r is ``step * SAMPLES`` far.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ftruntime.protocol.config import JobConfig, load
from ftruntime.protocol.head import Checkpoint, Commit, Head, Status
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.ledger import Ledger, SampleRange
from ftruntime.protocol.plan import Base, Catcher, Durations, Kind, Plan, Target, lineage_root
from ftruntime.protocol.planner import Members
from ftruntime.protocol.record import Held, Record, Stance

SAMPLES = 4


def job(replicas: int = 3, **changes: Any) -> JobConfig:
    """A small job: W = 2 ranks, one bucket of four chunks."""
    values: dict[str, Any] = {
        "replicas": replicas,
        "ranks_per_replica": 2,
        "streams": 2 * replicas,
        "samples_per_step": SAMPLES,
        "fan_out": 2,
        "ftar": {"buckets": [64], "chunk_bytes": 16, "slots": 4},
        "catch_up": {"window": 4, "donors": 2, "ranges": 2, "fruitless": 2},
        "chain_limit": 16,
    }
    return load(values | changes)


def life(replica: int, incarnation: int = 1) -> MemberId:
    return MemberId(replica, incarnation)


def lives(*replicas: int) -> tuple[MemberId, ...]:
    return tuple(life(r) for r in replicas)


def everyone(config: JobConfig) -> tuple[MemberId, ...]:
    return lives(*range(config.replicas))


def name(config: JobConfig, step: int) -> str:
    """The lineage of the state before ``step``."""
    return f"L{step}" if step else lineage_root(config.job, config.initial_digest)


def ledger(config: JobConfig, step: int) -> Ledger:
    return tuple(step * SAMPLES if s < config.replicas else 0 for s in range(config.stream_count))


def base(config: JobConfig, step: int) -> Base:
    return Base(step, name(config, step), ledger(config, step))


def held(config: JobConfig, step: int) -> Held:
    return Held(step, name(config, step), ledger(config, step))


def target(config: JobConfig, step: int) -> Target:
    return Target(step, name(config, step))


def train_plan(
    config: JobConfig,
    step: int,
    contributors: tuple[MemberId, ...] | None = None,
    catchers: tuple[Catcher, ...] = (),
    zeros: bool | None = None,
    **changes: Any,
) -> Plan:
    """Round ``step + 2`` on the state of ``step``: round 1 was the job's beginning.

    zeros: catchers are members of the ring; None: as the configuration says
    """
    if config.catch_up.mode == "zeros" if zeros is None else zeros:
        catchers = tuple(msgspec.structs.replace(c, tap=None, zeros=True) for c in catchers)
    who = everyone(config) if contributors is None else contributors
    cursors = ledger(config, step)
    plan = Plan(
        round=step + 2,
        kind=Kind.TRAIN,
        base=base(config, step),
        contributors=who,
        ranges=tuple((SampleRange(m.replica, cursors[m.replica], SAMPLES),) for m in who),
        catchers=catchers,
        divisor=SAMPLES * len(who),
        lr_factor=1.0,
        durations=Durations(config.timeouts.close),
        lineage_after=name(config, step + 1),
        reason="made by hand",
    )
    return msgspec.structs.replace(plan, **changes)


def catch_up_plan(config: JobConfig, step: int, catchers: tuple[Catcher, ...] = (), **changes: Any) -> Plan:
    """A round in which nobody trains."""
    plan = msgspec.structs.replace(
        train_plan(config, step, (), catchers), kind=Kind.CATCH_UP, divisor=0, lr_factor=0.0, lineage_after=""
    )
    return msgspec.structs.replace(plan, **changes)


def chain(config: JobConfig, step: int, by: tuple[MemberId, ...] | None = None) -> tuple[Commit, ...]:
    """Commits up to ``step``; step s was committed by round s + 1."""
    who = everyone(config) if by is None else by
    links = [Commit(0, name(config, 0), 0, ())]
    links += [Commit(s, name(config, s), s + 1, who) for s in range(1, step + 1)]
    return tuple(links)


def head_of(config: JobConfig, plan: Plan, **changes: Any) -> Head:
    """The running head in which ``plan`` is open."""
    head = Head(
        version=10 + plan.round,
        epoch=1,
        round=plan.round,
        status=Status.RUNNING,
        plan=plan,
        chain=chain(config, plan.base.step),
        incarnations=tuple((1, nonce(r)) for r in range(config.replicas)),
        job=config.digest(),
    )
    return msgspec.structs.replace(head, **changes)


def head_at(config: JobConfig, step: int, **changes: Any) -> Head:
    """The running head in which all replicas train on the state of ``step``."""
    return head_of(config, train_plan(config, step), **changes)


def after(head: Head, **changes: Any) -> Head:
    """A later head of the same store."""
    return msgspec.structs.replace(head, **({"version": head.version + 1} | changes))


def closed(head: Head, **plan_changes: Any) -> Head:
    """The head after the open round of ``head`` was closed, and the next one opened with the same plan."""
    plan = msgspec.structs.replace(head.plan, **({"round": head.round + 1} | plan_changes))
    return after(head, round=head.round + 1, plan=plan)


def committed(config: JobConfig, head: Head, plan: Plan | None = None, **changes: Any) -> Head:
    """The head after the open round of ``head`` was committed, and ``plan`` opened."""
    link = Commit(head.plan.base.step + 1, head.plan.lineage_after, head.round, head.plan.contributors)
    opened = plan or train_plan(config, link.step, head.plan.contributors)
    opened = msgspec.structs.replace(opened, round=head.round + 1)
    return after(head, round=head.round + 1, plan=opened, chain=(*head.chain, link), **changes)


def recovering(head: Head, **changes: Any) -> Head:
    return after(head, round=head.round + 1, status=Status.RECOVERING, **changes)


def nonce(replica: int, incarnation: int = 1) -> str:
    return f"process {incarnation} of replica {replica}"


def succeeded(head: Head, replica: int) -> Head:
    """``head`` after a later life of ``replica`` has registered."""
    known = list(head.incarnations)
    incarnation = known[replica][0] + 1
    known[replica] = (incarnation, nonce(replica, incarnation))
    return after(head, incarnations=tuple(known))


def word(config: JobConfig, member: MemberId, step: int, round: int, **changes: Any) -> Record:
    """The record of a member that holds ``step``, written in ``round``."""
    record = Record(member, held(config, step), round, round, Stance.RUNNING, ready=True)
    return msgspec.structs.replace(record, **changes)


def no(config: JobConfig, member: MemberId, step: int, round: int, **changes: Any) -> Record:
    return word(config, member, step, round, **({"stance": Stance.NO} | changes))


def said(*records: Record, leased: tuple[MemberId, ...] | None = None) -> Members:
    """What the store says: by default everyone who wrote a record has a lease."""
    who = tuple(r.member for r in records) if leased is None else leased
    return Members(records, frozenset(who))


def stored(config: JobConfig, step: int) -> Checkpoint:
    return Checkpoint(f"step-{step}", step, name(config, step), ledger(config, step))
