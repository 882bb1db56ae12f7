"""From a state, a fair continuation without further faults: it must come to a commit by all replicas.

Everything under way is delivered, round robin, before devices finish: a job whose messages never catch up
with its steps would not be the job's fault. From time to time, and when nothing is left, those who wait learn
that connections are reset, leases of the dead end, what the dead still had under way is lost, and launchers
start them again. When nothing is left at all, time passes: timers fire. A job that comes to rest for good, or
runs on without such a commit, is stuck.
"""

from __future__ import annotations

from .job import Job, Move, Row
from .nodes import BREAKDOWN_TIMERS

LIMIT = 2000  # moves of one continuation
REPAIR = 8  # every so many moves launchers and leases get their turn, if others go on
POLL = 50  # and every so many a leader reads the head anew, in case its view of the store fell behind
PATIENCE = 3  # times that every leader looks at the store anew without anything changing
LOOKS = ("poll", "renew")


class Liveness:
    """``continued`` counts the states that were followed to a commit by all, or to a state that was."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._live: set[Row] = set()
        self.continued = 0

    def check(self, row: Row) -> tuple[str, tuple[Move, ...]]:
        """("", ()) if ``row`` is live, else what is wrong, and the moves that lead there."""
        seen: list[Row] = []
        moves: list[Move] = []
        looks = 0
        while row not in self._live:
            if len(moves) >= LIMIT:
                return f"no commit by all replicas within {LIMIT} moves without faults", tuple(moves)
            seen.append(row)
            move = self._choose(row, len(moves), looks)
            if move is None:
                return "deadlock: the job is at rest, without faults, and no commit by all follows", tuple(
                    moves
                )
            looks = looks + 1 if move[0] == "timer" and move[2] in LOOKS else looks
            after, wrong = self._job.do(row, move, free=True)
            moves.append(move)
            if wrong or (wrong := self._job.invariants.state(after)):
                return wrong[0], tuple(moves)
            if self._all_committed(row, after):
                break
            looks = 0 if self._register(after) != self._register(row) else looks
            row = after
        self._live.update(seen)
        self.continued += 1
        return "", ()

    def _choose(self, row: Row, turn: int, looks: int) -> Move | None:
        job = self._job
        moves = job.progress(row)
        moves = [m for m in moves if m[0] != "device"] or moves
        leader = turn // POLL % job.replicas * job.width
        if turn % POLL == POLL - 1 and row[leader]:
            return ("timer", leader, "poll", 0)
        if moves and turn % REPAIR:
            return moves[turn % len(moves)]
        return self._repair(row) or (moves[turn % len(moves)] if moves else self._time(row, looks))

    def _repair(self, row: Row) -> Move | None:
        """What becomes of the dead, whether or not the others go on meanwhile."""
        job = self._job
        for i in range(job.size):
            if row[i] and row[job.resets + i]:
                return ("reset", i)
        for member in job.lapsed(row):
            return ("expire", member.replica, member.incarnation)
        for r in range(job.replicas):
            if row[r * job.width] == 0:
                return ("restart", r)
        return next((move for move in job.leases(row) if move[0] == "timer"), None)

    def _time(self, row: Row, looks: int) -> Move | None:
        job = self._job
        for i in range(job.size):
            for name, tag in job.nodes.table[row[i]].timers:
                if name not in BREAKDOWN_TIMERS:
                    return ("timer", i, name, tag)
        if looks >= 2 * PATIENCE * job.replicas:
            return None
        return ("timer", (looks // 2 % job.replicas) * job.width, LOOKS[looks % 2], 0)

    def _register(self, row: Row) -> int:
        return row[self._job.register]

    def _all_committed(self, before: Row, after: Row) -> bool:
        registers = self._job.registers.table
        old, new = registers[self._register(before)].head, registers[self._register(after)].head
        assert old is not None and new is not None
        return new.end.round > old.end.round and len(new.end.contributors) == self._job.replicas
