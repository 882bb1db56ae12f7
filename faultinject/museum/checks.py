"""What must hold in a ``World``, looked at after every action: the safety half of the museum's verdict."""

from __future__ import annotations

from typing import NamedTuple

from faultinject.explore.world import World
from ftruntime.protocol.head import Commit, Head, Status
from ftruntime.protocol.ids import Replica


class Violation(NamedTuple):
    """What went wrong, and where.

    lost step        a commit was rolled back though a live member holds it or took part in it
    two lineages     a step changed without a rollback on record, or training went on off the chain
    nothing reduced  a round was committed by a replica that lacks buckets of it
    wrong data       a device applied, installed, copied or staged something else than it was told
    samples          along the chain a sample was trained twice or never
    torn             the ranks of a replica rest in different states
    stuck            without further faults not all replicas come to train together
    assertion        the protocol stopped itself
    """

    kind: str
    text: str


class Watcher:
    """Collects violations in ``found``, each once. ``plans``: the plan that led to each committed lineage."""

    def __init__(self) -> None:
        self.found = []
        self.plans = {}
        self._head = None

    def look(self, world: World) -> None:
        """Call it after every action: a head that nobody looked at is not checked."""
        if world.head is not self._head:
            before, self._head = self._head, world.head
            if before is not None:
                self._moved(world, before, world.head)
        for at, device in world.devices.items():
            for text in device.wrong:
                self.report("wrong data", f"rank {at}: {text}")

    def report(self, kind: str, text: str) -> None:
        violation = Violation(kind, text)
        if violation not in self.found:
            self.found.append(violation)

    def _moved(self, world: World, before: Head, after: Head) -> None:
        commit = after.commit_of(before.round)
        if commit is not None and after.round > before.round:
            self.plans[commit.lineage] = before.plan
            self._committer(world, before, after)
            self._samples(after, commit)
        for gone in _gone(before, after):
            self._lost(world, gone, after)
        if after.status is Status.RUNNING and after.plan.base.lineage != after.end.lineage:
            self.report("two lineages", f"round {after.round} goes on from what is not the end of the chain")

    def _committer(self, world: World, before: Head, after: Head) -> None:
        """Who commits has every bucket, reduced under that plan, at every rank."""
        for at, device in world.devices.items():
            if at[0] == after.by.replica and not device.whole(before.round):
                self.report("nothing reduced", f"round {before.round} was committed, rank {at} lacks buckets")

    def _samples(self, head: Head, commit: Commit) -> None:
        """Along the chain each stream's samples 0 .. cursor-1 were trained once each (design 3.6)."""
        trained, lineage = [], commit.lineage
        while lineage in self.plans:
            plan = self.plans[lineage]
            trained += [r for owned in plan.ranges for r in owned]
            lineage = plan.base.lineage
        cursors = {}
        for r in sorted(trained):
            if r.start != cursors.get(r.stream, 0):
                self.report(
                    "samples", f"stream {r.stream} goes on at {r.start}, not {cursors.get(r.stream, 0)}"
                )
            cursors[r.stream] = r.start + r.count

    def _lost(self, world: World, gone: Commit, after: Head) -> None:
        """A commit left the chain: on record, and only if nobody who is there holds it or took part in it."""
        on_record = after.rollback is not None and after.rollback.round == after.round
        if not on_record or after.rollback.to_step >= gone.step:
            self.report("two lineages", f"step {gone.step} changed, and no rollback is on record")
        for replica in _living(world, after):
            if _took_part(world, replica, gone) or _holds(world, replica, gone):
                self.report(
                    "lost step", f"step {gone.step} was rolled back, though replica {replica} could have it"
                )


def _gone(before: Head, after: Head) -> list[Commit]:
    """Commits that the chain had and has no more; those trimmed at its old end do not count."""
    stands = {c.step: c.lineage for c in after.chain}
    return [c for c in before.chain if c.step > after.end.step or stands.get(c.step, c.lineage) != c.lineage]


def _living(world: World, head: Head) -> list[Replica]:
    """Replicas whose registered life is leased now. (A schedule must not renew a lease between the read of
    who plans a rollback and its compare-and-set: whoever was not leased at the read may be left out.)"""
    members = {r: world.member(r) for r in range(world.config.replicas)}
    return [r for r, m in members.items() if m and head.current(m) and m in world.register.leases]


def _took_part(world: World, replica: Replica, commit: Commit) -> bool:
    """A contributor that is not beyond the step has its buckets, or has applied it."""
    steps = [device.state[0] for at, device in world.devices.items() if at[0] == replica]
    return world.member(replica) in commit.contributors and min(steps) <= commit.step


def _holds(world: World, replica: Replica, commit: Commit) -> bool:
    return all(
        d.state == (commit.step, commit.lineage) for at, d in world.devices.items() if at[0] == replica
    )


def torn(world: World) -> list[Replica]:
    """Replicas whose ranks hold different states. At rest there are none."""
    states = {}
    for (replica, _), device in world.devices.items():
        states.setdefault(replica, set()).add(device.state)
    return [replica for replica, held in states.items() if len(held) > 1]


def level(world: World) -> bool:
    """Every rank of every replica holds the end of the chain, and its leader knows."""
    head = world.head
    assert head is not None
    end = (head.end.step, head.end.lineage)
    held = [world.ranks[r, 0].leader.held for r in range(world.config.replicas) if (r, 0) in world.ranks]
    states = [device.state for device in world.devices.values()]
    whole = len(held) == world.config.replicas
    return whole and all((h.step, h.lineage) == end for h in held) and all(s == end for s in states)
