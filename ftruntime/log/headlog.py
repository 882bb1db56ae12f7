"""What the event log says of the head: who registered, what became of rounds, which plan is next."""

from __future__ import annotations

from collections.abc import Iterable

from ftruntime.protocol.head import Fate, Head, Rollback, Status, descends
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.plan import Kind, Plan
from ftruntime.protocol.record import Record

Fields = list[object]


class HeadLog:
    """Turns accepted heads into entries. After a store came back empty or older, the next epoch's head is
    compared with the newest one that was logged: what happened since then was logged already."""

    def __init__(self) -> None:
        self._last: Head | None = None  # the newest that was logged
        self._final = False  # whether that was the end of the job
        self._lives: dict[int, tuple[int, str]] = {}  # the last life of each replica that was logged

    def entries(self, before: Head | None, after: Head, live: Iterable[Record], now: float) -> list[Fields]:
        """Entries for the head ``after``. ``live``: the records of leased members."""
        last = self._last
        found = self._registered(after, now)
        if last is not None and (after.known < last.known or not descends(after, last)):
            return found  # what a store that went back is made to say counts for nobody who knows more
        if last is not None and (after.epoch > last.epoch or before is None):
            before = last
        self._last = after
        if before is None or after.round != before.round or after.chain != before.chain:
            found.append(_head(before, after, live, now))
        return found + self._ended(after, now)

    def _ended(self, after: Head, now: float) -> list[Fields]:
        """The job is over with this head, or is to go on after all."""
        was, self._final = self._final, after.finished
        if after.finished and not was:
            return [["final", now, after.end.step, after.end.lineage]]
        return [["goes_on", now, after.until]] if was and not after.finished else []

    def _registered(self, after: Head, now: float) -> list[Fields]:
        """New lives. One whose registration the store forgot registers again, and is none."""
        found: list[Fields] = []
        for replica, life in enumerate(after.incarnations):
            known = self._lives.get(replica, (0, ""))
            if life[0] >= known[0] and life != known:
                self._lives[replica] = life
                found.append(["register", now, replica, life[0]])
        return found


def _head(before: Head | None, after: Head, live: Iterable[Record], now: float) -> Fields:
    running = after.status is Status.RUNNING
    rolled = after.rollback if before is not None and after.rollback != before.rollback else None
    return [
        "head",
        now,
        after.version,
        after.epoch,
        after.round,
        "running" if running else "recovering",
        _member(after.by) if after.by else None,
        _closed(before, after),
        _plan(after.plan) if running else None,
        _rollback(rolled, live) if rolled else None,
    ]


def _closed(before: Head | None, after: Head) -> dict[str, object] | None:
    if before is None or after.round <= before.round:
        return None
    committed = after.fate(before.round) is Fate.COMMITTED
    end = after.commit_of(before.round) or after.end
    return {
        "round": before.round,
        "outcome": "committed" if committed else "closed",
        "step_after": end.step,
        "lineage_after": end.lineage,
    }


def _plan(plan: Plan) -> dict[str, object]:
    return {
        "kind": "train" if plan.kind is Kind.TRAIN else "catch_up",
        "base_step": plan.base.step,
        "base_lineage": plan.base.lineage,
        "base_ledger": list(plan.base.ledger),
        "contributors": [_member(m) for m in plan.contributors],
        "ranges": [[[r.stream, r.start, r.count] for r in owned] for owned in plan.ranges],
        "catchers": [
            [*_member(c.member), c.fetch.step if c.fetch else -1, [d.replica for d in c.donors]]
            for c in plan.catchers
        ],
        "divisor": plan.divisor,
        "lr_factor": plan.lr_factor,
        "reason": plan.reason,
    }


def _rollback(rollback: Rollback, live: Iterable[Record]) -> dict[str, object]:
    source = rollback.source if rollback.source in ("live", "initial") else "checkpoint"
    return {
        "to_step": rollback.to_step,
        "to_lineage": rollback.to_lineage,
        "lost_steps": rollback.from_step - rollback.to_step,
        "from_step": rollback.from_step,
        "live": [[*_member(r.member), r.held.step, r.held.lineage] for r in live],
        "source": source,
    }


def _member(member: MemberId) -> list[int]:
    return [member.replica, member.incarnation]
