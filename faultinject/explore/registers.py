"""What the store does with one request: the real register, run once and remembered."""

from __future__ import annotations

from typing import NamedTuple

from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.head import Fate, Head, Status
from ftruntime.protocol.ids import Lineage, MemberId, Replica
from ftruntime.protocol.ledger import Ledger
from ftruntime.protocol.plan import Kind, Plan
from ftruntime.store import Register

from .keys import key
from .nodes import Nodes
from .tables import Table
from .world import Action, World


class Served(NamedTuple):
    """``changes``: what every leader is told. ``cut``: lineages that a rollback took off the chain."""

    register: int
    answer: int
    changes: tuple[int, ...]
    committed: bool = False
    cut: tuple[Lineage, ...] = ()
    wrong: tuple[str, ...] = ()


class Registers:
    """All contents of the store that were ever reached, and every request served between them."""

    def __init__(self, config: JobConfig, nodes: Nodes) -> None:
        self.config, self._nodes = config, nodes
        self.table: Table[Register] = Table()
        self.ledgers: dict[Lineage, Ledger] = {}  # of every base that a plan ever had
        self._served: dict[tuple[int, Replica, int], Served] = {}
        self._expired: dict[tuple[int, MemberId], Served] = {}

    def number(self, register: Register) -> int:
        register.backups.clear()  # what a store comes back with after a loss, which is not explored
        name = key((register.head, sorted(register.records.items()), sorted(register.leases)))
        if register.head is not None:
            base, genesis = register.head.plan.base, register.head.chain[0]
            self.ledgers.setdefault(genesis.lineage, (0,) * len(base.ledger))
            self.ledgers.setdefault(base.lineage, base.ledger)
        return self.table.number(register, name)

    def serve(self, register: int, replica: Replica, request: int) -> Served:
        """The store carries out ``request`` of the leader of ``replica``."""
        found = self._served.get((register, replica, request))
        if found is None:
            world = self._world(register, replica)
            world.requests = {replica: ((1, self._nodes.requests[request]),)}
            world.do(Action("request", (replica, 0)))
            answer = self._nodes.answers.number(world.answers[replica][0][1])
            found = self._served[register, replica, request] = self._harvest(register, world, replica, answer)
        return found

    def expire(self, register: int, member: MemberId) -> Served:
        """The lease of ``member`` ends."""
        found = self._expired.get((register, member))
        if found is None:
            world = self._world(register, 0)
            world.expire(member)
            found = self._expired[register, member] = self._harvest(register, world, 0, 0)
        return found

    def _world(self, register: int, replica: Replica) -> World:
        world = World(self.config)
        world.register = self.table[register].clone()
        world.answers, world.watches = {replica: ()}, {replica: ()}
        return world

    def _harvest(self, number: int, world: World, replica: Replica, answer: int) -> Served:
        before, after = self.table[number].head, world.register.head
        changes = tuple(self._nodes.changes.number(c) for c in world.watches[replica])
        wrong: list[str] = []
        committed = False
        cut: tuple[Lineage, ...] = ()
        if before is not None and after is not None and before is not after:
            committed = len(after.chain) > len(before.chain) or after.end.step > before.end.step
            cut = tuple(c.lineage for c in before.chain if c.step > after.end.step)
            wrong = self._judge(before, after)
        return Served(self.number(world.register), answer, changes, committed, cut, tuple(wrong))

    # -- what may become of a head ---------------------------------------------------------------

    def _judge(self, before: Head, after: Head) -> list[str]:
        """Why ``after`` may not follow ``before``."""
        wrong = []
        if after.order != (before.epoch, before.version + 1):
            wrong.append(f"head {before.order} was followed by {after.order}")
        if after.end == before.end:
            wrong += _unchanged(before, after)
        elif after.end.step == before.end.step + 1:
            wrong += _committed(before, after)
        else:
            wrong += _cut(before, after)
        if after.status is Status.RUNNING:
            wrong += self._judge_plan(before, after)
        return wrong

    def _judge_plan(self, before: Head, after: Head) -> list[str]:
        """The plan starts from the end of the chain, and its ledger is the sum of what was committed."""
        base, wrong = after.plan.base, []
        if (base.step, base.lineage) != (after.end.step, after.end.lineage):
            wrong.append(f"round {after.round} is based on {base}, the chain ends with {after.end}")
        if after.fate(before.round) is Fate.COMMITTED and after.round > before.round:
            expected = _add(before.plan)
        else:
            expected = self.ledgers.get(base.lineage, base.ledger)
        if base.ledger != expected:
            wrong.append(f"round {after.round} has ledger {base.ledger}, the chain comes to {expected}")
        return wrong


def _unchanged(before: Head, after: Head) -> list[str]:
    if after.chain[-len(before.chain) :] != before.chain[-len(after.chain) :]:
        return ["the chain was changed without a commit"]
    if not before.round <= after.round <= before.round + 1:
        return [f"round {before.round} was followed by round {after.round}"]
    return []


def _committed(before: Head, after: Head) -> list[str]:
    """One commit a step: of the open round, by one of its contributors, as its plan says."""
    plan, commit, wrong = before.plan, after.end, []
    if before.status is not Status.RUNNING or plan.kind is not Kind.TRAIN:
        wrong.append(f"round {before.round} was committed while {before.status.name}, {plan.kind.name}")
    if (commit.round, commit.lineage, commit.contributors) != (
        plan.round,
        plan.lineage_after,
        plan.contributors,
    ):
        wrong.append(f"{commit} was committed, but the plan is {plan}")
    if after.by not in plan.contributors or not before.current(after.by):
        wrong.append(f"round {plan.round} was committed by {after.by}")
    if after.round != before.round + 1 or before.end not in after.chain:
        wrong.append(f"the commit of round {plan.round} lost the chain before it")
    return wrong


def _cut(before: Head, after: Head) -> list[str]:
    """A rollback leaves a prefix of the chain, by way of ``recovering``, and is on record."""
    record, wrong = after.rollback, []
    if before.chain[: len(after.chain)] != after.chain:
        wrong.append(f"a chain that ends with {before.end} was followed by one that ends with {after.end}")
    if before.status is not Status.RECOVERING:
        wrong.append(f"a rollback of a head that is {before.status.name}")
    if record is None or (record.round, record.to_lineage) != (after.round, after.end.lineage):
        wrong.append(f"a rollback to {after.end} that is not on record")
    return wrong


def _add(plan: Plan) -> Ledger:
    """The plan's ledger with its ranges added, each of which must begin where its stream stands."""
    cursors = list(plan.base.ledger)
    for ranges in plan.ranges:
        for r in ranges:
            if cursors[r.stream] != r.start:
                return ()
            cursors[r.stream] += r.count
    return tuple(cursors)
