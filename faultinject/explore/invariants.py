"""What must hold in every state of a job, judged by devices and the register, not by what leaders believe.

The rest is judged where it happens: sums and bases at a device (``WorldDevice.wrong``), promises and records
at a rank (``nodes.py``), what may follow a head (``registers.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import Lineage, MemberId, Replica
from ftruntime.protocol.plan import Plan

if TYPE_CHECKING:
    from .job import Job, Row


class Invariants:
    """Over rows of ``job``."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._agreed: set[tuple[int, int, int]] = set()
        self._whole: dict[tuple[int, int], bool] = {}

    def state(self, row: Row) -> tuple[str, ...]:
        """Agreement: whatever a device holds was at some time the end of the chain."""
        job, register, cut = self._job, row[self._job.register], row[self._job.cut]
        wrong: tuple[str, ...] = ()
        for number in row[: job.size]:
            if number and (number, register, cut) not in self._agreed:
                wrong += self._agrees(number, register, cut)
                self._agreed.add((number, register, cut))
        return wrong

    def _agrees(self, number: int, register: int, cut: int) -> tuple[str, ...]:
        node, head = self._job.nodes.table[number], self._job.registers.table[register].head
        lineage = node.device.state[1]
        if head is None or head.on_chain(lineage) or lineage in self._job.queues.items[cut]:
            return ()
        return (f"{node.at} holds {node.device.state}, which was never committed",)

    # -- a commit ------------------------------------------------------------------------------------

    def committed(self, row: Row) -> tuple[str, ...]:
        """The open round is being committed: the committer and its right neighbour have all of it.

        So one death after a commit never loses it (design 3.3, rule 3). Of the dead nothing is asked.
        """
        job = self._job
        head = job.registers.table[row[job.register]].head
        assert head is not None
        plan, wrong = head.plan, []
        having = [m for m in plan.contributors if self._has(row, m, plan)]
        living = [m for m in plan.contributors if job.leader(row, m) is not None]
        if not having and living:
            wrong.append(f"round {plan.round} is committed, and nobody alive has all of it")
        if len(living) == len(plan.contributors) and len(having) < min(2, len(living)):
            names = ", ".join(str(m) for m in having)
            wrong.append(f"round {plan.round} is committed, and only {names} has all of it")
        return tuple(wrong)

    def _has(self, row: Row, member: MemberId, plan: Plan) -> bool:
        """Whether every rank of ``member`` has every chunk of the round, or its result."""
        job = self._job
        if job.leader(row, member) is None:
            return False
        return all(self._rank_has(row[i], plan) for i in self._ranks(member.replica))

    def _ranks(self, replica: Replica) -> range:
        return range(replica * self._job.width, (replica + 1) * self._job.width)

    def _rank_has(self, number: int, plan: Plan) -> bool:
        found = self._whole.get((number, plan.round))
        if found is None:
            device = self._job.nodes.table[number].device
            buffer = device.buffers.get(plan.round)
            found = device.state[1] == plan.lineage_after
            if buffer is not None and buffer.plan.lineage_after == plan.lineage_after:
                found = found or buffer.reduced == [_sum(plan)] * self._chunks(plan)
            self._whole[number, plan.round] = found
        return found

    def _chunks(self, plan: Plan) -> int:
        ftar = self._job.config.ftar
        return geometry(ftar.buckets, len(plan.ring()), ftar.chunk_bytes, ftar.slots).finished_total

    # -- a rollback ----------------------------------------------------------------------------------

    def cut(self, row: Row, lineages: tuple[Lineage, ...]) -> tuple[str, ...]:
        """Durability: ``lineages`` are being cut off, so no live member has them or can have them.

        And of two contributors that committed together, one death alone loses nothing.
        """
        job = self._job
        register = job.registers.table[row[job.register]]
        head, dead = register.head, job.queues.items[row[job.dead]]
        assert head is not None
        wrong = []
        for member in register.leases:
            if head.current(member) and job.leader(row, member) is not None:
                wrong += [
                    f"{member} has {lin}, which is rolled back"
                    for lin in lineages
                    if self._holds(row, member, lin)
                ]
        for commit in head.chain:
            died = [m for m in commit.contributors if m in dead or m not in register.leases]
            if commit.lineage in lineages and len(commit.contributors) > 1 and len(died) < 2:
                wrong.append(f"step {commit.step} is rolled back, of {commit.contributors} only {died} died")
        return tuple(wrong)

    def _holds(self, row: Row, member: MemberId, lineage: Lineage) -> bool:
        """Every rank has ``lineage``, or all that is needed to come to it from where it is."""
        job = self._job
        for i in self._ranks(member.replica):
            device = job.nodes.table[row[i]].device
            plans = [b.plan for b in device.buffers.values() if b.plan.lineage_after == lineage]
            ready = any(p.base.lineage == device.state[1] and self._rank_has(row[i], p) for p in plans)
            if device.state[1] != lineage and not ready:
                return False
        return True


def _sum(plan: Plan) -> tuple[object, ...]:
    """What each finished chunk of the round must be: every contribution, once, from the base."""
    pairs = zip(plan.contributors, plan.ranges, strict=True)
    return tuple(sorted((m.replica, plan.base.lineage, r) for m, r in pairs))
