"""A log of a correct run, made by a tiny job of its own: three replicas of two ranks, a crash in
mid-round, a catch-up, a lost commit with its rollback. Tests take it and plant a fault.

Its arithmetic is written from the log's schema, not taken from the checker.
"""

from __future__ import annotations

import copy
import hashlib
import struct
from typing import Any

M = 2**64 - 1
G = 0x9E3779B97F4A7C15
D = 0xD1B54A32D192ED03
Entry = list[Any]
Member = tuple[int, int]


def mix(x: int) -> int:
    x = x & M
    x = x ^ (x >> 30)
    x = (x * 0xBF58476D1CE4E5B9) & M
    x = x ^ (x >> 27)
    x = (x * 0x94D049BB133111EB) & M
    return x ^ (x >> 31)


def bits(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def digest(*what: object, size: int = 16) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=size).hexdigest()


CONFIG = {
    "schema": 1,
    "job": "test",
    "replicas": 3,
    "ranks_per_replica": 2,
    "buckets": 2,
    "min_replicas": 1,
    "streams": 6,
    "samples_per_step": 4,
    "max_stream_lag": 1000,
    "seed": 7,
    "fidelity": "fingerprint",
    "catch_up": "tap",
    "lineage_root": digest("root"),
    "convergence_bound_s": 20.0,
    "progress_bound_s": 10.0,
    "stall_bound_s": 3.0,
    "divisor": "contributors",
    "lr_scaling": "sqrt",
    "consensus_faults": False,
    "store_epoch": 0,
}


class Job:
    """Writes ``log`` as a correct job would. ``held``: life -> (step, lineage, [digest per rank])."""

    def __init__(self, **changed: object) -> None:
        self.config = {**CONFIG, **changed}
        self.t = 0.0
        self.log: list[Entry] = [["meta", 0.0, self.config]]
        self.version = 0
        self.round = 0
        self.plan: dict[str, Any] | None = None
        self.closed: dict[str, Any] | None = None
        root = self.config["lineage_root"]
        self.chain = [(0, root, [0] * self.config["streams"])]
        self.held: dict[Member, tuple[int, str, list[int]]] = {}
        self.made: dict[tuple[Member, str], dict[int, list[int]]] = {}
        self.width = self.config["ranks_per_replica"]

    def put(self, kind: str, *fields: object) -> None:
        self.log.append([kind, round(self.t, 6), *copy.deepcopy(list(fields))])

    # -- lives --------------------------------------------------------------------------------

    def start(self, *members: Member) -> None:
        for member in members:
            self.put("start", *member, "launch")
            self.put("register", *member)
            states = [mix(self.config["seed"] * G + p + 1) for p in range(self.width)]
            self.held[member] = (0, self.config["lineage_root"], states)
            for p in range(self.width):
                self.put("initial", *member, p, *self.held[member][:2], states[p])

    def crash(self, member: Member, position: int = 0) -> None:
        fault = {"kind": "crash", "target": [member[0], position], "cause": "hbm"}
        self.put("fault", fault)
        self.put("crash", *member, position, "hbm")

    def exit(self, member: Member, reason: str = "rank lost", restart: bool = True) -> None:
        self.put("exit", *member, reason, restart)
        del self.held[member]

    # -- heads --------------------------------------------------------------------------------

    def head(
        self, by: Member | None, contributors: list[Member], catchers: list[Any] = (), rollback: Any = None
    ) -> None:
        self.round += 1
        self.version += 1
        self.plan = self.planned(contributors, list(catchers))
        self.put(
            "head", self.version, 0, self.round, "running", by and list(by), self.closed, self.plan, rollback
        )
        self.closed = None

    def recovering(self, by: Member) -> None:
        self.round += 1
        self.version += 1
        self.put("head", self.version, 0, self.round, "recovering", list(by), self.closed, None, None)
        self.closed = {"round": self.round, "outcome": "closed", "step_after": None, "lineage_after": None}

    def planned(self, contributors: list[Member], catchers: list[Any]) -> dict[str, Any]:
        step, lineage, ledger = self.chain[-1]
        ranges = []
        for replica, _ in contributors:
            own = [s for s in range(self.config["streams"]) if s % self.config["replicas"] == replica]
            stream = min(own, key=lambda s: (ledger[s], s))
            ranges.append([[stream, ledger[stream], self.config["samples_per_step"]]])
        n = len(contributors)
        return {
            "kind": "train" if n else "catch_up",
            "base_step": step,
            "base_lineage": lineage,
            "base_ledger": list(ledger),
            "contributors": [list(m) for m in contributors],
            "ranges": ranges,
            "catchers": catchers,
            "divisor": n * self.config["samples_per_step"],
            "lr_factor": (n / self.config["replicas"]) ** 0.5,
            "reason": "test",
        }

    def close(self) -> None:
        self.closed = {"round": self.round, "outcome": "closed", "step_after": None, "lineage_after": None}

    def commit(self) -> None:
        step, lineage, ledger = self.chain[-1]
        after = list(ledger)
        for owned in self.plan["ranges"]:
            for stream, _, count in owned:
                after[stream] += count
        new = digest(lineage, self.round)
        self.chain.append((step + 1, new, after))
        self.closed = {
            "round": self.round,
            "outcome": "committed",
            "step_after": step + 1,
            "lineage_after": new,
        }

    # -- work -----------------------------------------------------------------------------------

    def compute(self, member: Member) -> None:
        """Every rank of ``member`` computes its part of the open round, or reuses what it has."""
        ranges = self.plan["ranges"][self.plan["contributors"].index(list(member))]
        key = (member, repr((self.plan["base_lineage"], ranges)))
        corpus = int(digest("tokens", repr(ranges), size=8), 16)
        for p in range(self.width):
            if key in self.made:
                self.put("reused", *member, p, self.round, ranges, self.made[key][p])
                continue
            _, lineage, states = self.held[member]
            grads = [mix(states[p] ^ mix(corpus + p * G + b * D + 1)) for b in range(self.config["buckets"])]
            self.put("computed", *member, p, self.round, lineage, states[p], ranges, corpus, grads)
            self.made.setdefault((member, "now"), {})[p] = grads
        if key not in self.made:
            self.made[key] = self.made.pop((member, "now"))

    def sums(self, plan: dict[str, Any]) -> list[list[int]]:
        result = []
        for p in range(self.width):
            row = [0] * self.config["buckets"]
            for member, ranges in zip(plan["contributors"], plan["ranges"], strict=True):
                grads = self.made[(tuple(member), repr((plan["base_lineage"], ranges)))][p]
                row = [(a + b) & M for a, b in zip(row, grads, strict=True)]
            result.append(row)
        return result

    def apply(self, member: Member, plan: dict[str, Any], round: int, closed: dict[str, Any]) -> None:
        sums = self.sums(plan)
        scalars = [float(sum(row[-1] >> 40 for row in sums))]
        _, lineage, states = self.held[member]
        after = []
        for p, row in enumerate(sums):
            total = sum(v * (2 * b + 1) for b, v in enumerate(row))
            total += plan["divisor"] * G + bits(plan["lr_factor"]) + bits(scalars[0])
            after.append(mix(states[p] ^ mix(total)))
            contributing = list(member) in plan["contributors"]
            numbers = (scalars, plan["divisor"], plan["lr_factor"])
            state = (closed["step_after"], closed["lineage_after"], after[p])
            what = (round, contributing, lineage, states[p], row, *numbers, *state)
            self.put("applied", *member, p, *what)
        self.held[member] = (closed["step_after"], closed["lineage_after"], after)

    def install(self, member: Member, donor: Member) -> None:
        self.restore(member, self.held[donor], "donors")

    def restore(self, member: Member, held: tuple[int, str, list[int]], source: str) -> None:
        self.held[member] = held
        step, lineage, states = self.held[member]
        for p in range(self.width):
            self.put("installed", *member, p, step, lineage, states[p], source)

    def drop(self, *members: Member) -> None:
        for member in members:
            for p in range(self.width):
                self.put("dropped", *member, p, self.round)

    def resources(self, *members: Member) -> None:
        for member in members:
            step = self.held[member][0]
            for p in range(self.width):
                counters = {"buffers": 4, "timers": 2 + int(self.t) % 2, "held": 0}
                self.put("resources", *member, p, step, 1, counters)

    def save(self, member: Member, name: str) -> None:
        step, lineage, states = self.held[member]
        for p in range(self.width):
            self.put("shard", *member, p, name, step, lineage, states[p])
        self.put("checkpoint", name, step, lineage)

    # -- steps ------------------------------------------------------------------------------------

    def step(
        self, then: list[Member] | None = None, catchers: list[Any] = (), also: list[Member] = ()
    ) -> None:
        """The open round runs and commits; all its contributors and ``also`` apply it."""
        members = [tuple(m) for m in self.plan["contributors"]]
        self.t += 0.6
        for member in members:
            self.compute(member)
        self.t += 0.4
        plan, number = self.plan, self.round
        self.commit()
        closed = self.closed
        self.head(members[0], members if then is None else then, catchers)
        for member in [*members, *also]:
            self.apply(member, plan, number, closed)
        self.resources(*members)


def good_log(**changed: object) -> list[Entry]:
    """Eight clean steps, a crash and a catch-up, clean steps, a rollback and two catch-ups, clean steps."""
    job = Job(**changed)
    a, b, c = (0, 1), (1, 1), (2, 1)
    job.start(a, b, c)
    job.head(a, [a, b, c])
    for _ in range(8):
        job.step()
    job.save(a, "first")
    _crash_and_catch_up(job)
    for _ in range(7):
        job.step()
    _lose_a_commit(job)
    for _ in range(8):
        job.step()
    states = [[*m, *held[:2], True] for m, held in sorted(job.held.items())]
    last = max(e[1] for e in job.log if e[0] in ("fault", "heal"))
    job.t += 14.0 - 0.5 - 4.0
    job.log.append(["last_fault", last])
    job.put("end", states, "steps done")
    return job.log


def _crash_and_catch_up(job: Job) -> None:
    """1.1 dies in mid-round; 0.1 and 2.1 train the round again; 1.2 comes and is level two steps later."""
    a, b, c, new = (0, 1), (1, 1), (2, 1), (1, 2)
    job.t += 0.6
    job.compute(a)
    job.compute(c)
    job.crash(b)
    job.exit(b)
    job.t += 2.0
    job.close()
    job.drop(a, c)
    job.head(a, [a, c])
    job.step()
    job.start(new)
    job.step(catchers=[[*new, 11, [0, 2]]])
    job.install(new, a)
    job.step(also=[new], then=[a, new, c])


def _lose_a_commit(job: Job) -> None:
    """0.1 commits; 2.1 lacks a chunk and gives up; 0.1 and its neighbour 1.2 die with the commit."""
    a, b, c = (0, 1), (1, 2), (2, 1)
    job.t += 1.0
    for member in (a, b, c):
        job.compute(member)
    lost_round = job.round
    job.commit()
    job.head(a, [a, b, c])
    job.round, opened = lost_round, job.round
    job.drop(c)
    job.round = opened
    for member in (a, b):
        job.crash(member)
        job.exit(member)
    job.t += 1.0
    job.close()
    job.recovering(c)
    job.t += 1.0
    job.chain.pop()
    step, lineage, _ = job.held[c]
    live = [[*c, step, lineage]]
    said = {"to_step": step, "to_lineage": lineage, "lost_steps": [step + 1], "from_step": step + 1}
    job.head(c, [c], rollback={**said, "live": live, "source": "live"})
    job.step()
    job.start((0, 2), (1, 3))
    job.step(catchers=[[0, 2, step + 2, [2]], [1, 3, step + 2, [2]]])
    job.install((0, 2), c)
    job.install((1, 3), c)
    job.step(also=[(0, 2), (1, 3)], then=[(0, 2), (1, 3), c])
