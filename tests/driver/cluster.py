"""A job of real processes: a store, ranks, a launcher, and the one event log that all have written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from conformance.checker import check
from conformance.checker.reader import LogReader
from ftruntime.driver import Settings
from ftruntime.driver.journal import Journal
from ftruntime.launch import Launcher
from ftruntime.log import HeadLog
from ftruntime.protocol import store as s
from ftruntime.protocol.config import CatchUp, Ftar, JobConfig, Timeouts
from ftruntime.protocol.plan import lineage_root
from ftruntime.store import Register
from ftruntime.stores import EmbeddedClient, history_of
from ftruntime.wire import Loop, Who
from tests.stores.served import ROOT, TOKEN, start_store
from tests.wire.pair import turn_until

from .toy import ELEMENTS

# Long enough for a busy machine, short enough for a test that waits for one of them.
TIMEOUTS = Timeouts(
    chunk=1.5, round=6.0, seal=2.0, close=8.0, lease=6.5, store=0.5, poll=1.0, range=2.0,
    start_grace=30.0, rollback_grace=10.0, linger=60.0,
)  # fmt: skip
CONFIG = JobConfig(
    replicas=3,
    ranks_per_replica=2,
    min_replicas=1,
    streams=6,
    samples_per_step=4,
    lr_scaling="none",
    ftar=Ftar(buckets=(4 * ELEMENTS, 4 * ELEMENTS), chunk_bytes=64, slots=4),
    catch_up=CatchUp(ranges=4),
    timeouts=TIMEOUTS,
)


class Cluster:
    """Runs ``config`` in ``folder`` until the test has seen enough. ``pause``: seconds a gradient takes;
    ``until``: the last step that ranks are asked for, 0: none; its update
    takes ``slow_s`` seconds. ``more``: what a replica's settings have besides."""

    def __init__(
        self, folder, config=CONFIG, pause=0.02, rest_s=0.2, until=0, slow_s=0.0, more=lambda replica: {}
    ):
        self.more = more
        self.folder, self.config, self.pause, self.asked = Path(folder), config, pause, (until, slow_s)
        self.journals = self.folder / "journals"
        self.journals.mkdir()
        self.loop, self.head, self.leased, self.began = Loop(), None, set(), time.monotonic()
        self.store, self.endpoint = start_store(self.folder / "store")
        self.journal = Journal(self.journals / "test.log")
        self._client = EmbeddedClient(
            self.loop, self.endpoint, TOKEN.encode(), Who("launcher", config.job),
            lambda call, answer: None, self._watched, lambda seats: None,
        )  # fmt: skip
        self.launcher = Launcher(
            self.loop, list(range(config.replicas)), config.ranks_per_replica, self._spawn, self.endpoint,
            TOKEN.encode(), config.job, self.folder / "lives", rest_s=rest_s, journal=self.journal,
        )  # fmt: skip

    def _watched(self, change):
        if isinstance(change, s.HeadChanged):
            self.head = change.head
        elif isinstance(change, s.LeaseChanged):
            self.leased.discard(change.member.replica)
            self.leased.update([change.member.replica] if change.live else [])

    def _spawn(self, replica, position, life):
        name = f"{replica}-{position}-{life}"
        settings = Settings(
            self.config, replica, position, life, self.endpoint, TOKEN, "lo",
            journal=self.journals / f"{name}.log", audit=True, **self.more(replica),
        )  # fmt: skip
        file = self.folder / f"{name}.json"
        file.write_bytes(msgspec.json.encode(settings, enc_hook=str))
        command = [sys.executable, "-m", "tests.driver.rank", str(file), str(self.pause)]
        command += [str(word) for word in self.asked]
        with open(self.folder / f"{name}.err", "wb") as errors:
            return subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=errors
            )

    # -- what tests do -------------------------------------------------------------------------

    @property
    def step(self):
        return 0 if self.head is None else self.head.end.step

    def until(self, done, seconds=90.0):
        try:
            turn_until(self.loop, done, seconds)
        except AssertionError:
            raise AssertionError(self.story()) from None

    def steps(self, count):
        """Let ``count`` more steps be committed."""
        goal = self.step + count
        self.until(lambda: self.step >= goal)

    def everyone(self, count=1):
        """Let ``count`` steps be committed by all replicas."""
        for _ in range(count):
            before = self.step
            self.until(lambda before=before: self.step > before and self._all_contribute())

    def _all_contribute(self):
        return (
            len(self.head.plan.contributors) == self.config.replicas
            and len(self.head.end.contributors) == self.config.replicas
        )

    def fault(self, kind, replica, position=0, **more):
        """Note what is about to be done, so that the checker knows whose fault the rest is."""
        self.journal(["fault", time.monotonic(), {"kind": kind, "rank": [replica, position], **more}])

    def heal(self, kind, replica, position=0):
        self.journal(["heal", time.monotonic(), {"kind": kind, "rank": [replica, position]}])

    def kill(self, replica, position, number):
        self.fault("crash", replica, position)
        os.kill(self.launcher.pid(replica, position), number)

    def lost_lease(self, replica):
        return replica not in self.leased

    def restart_store(self, away_s):
        """SIGKILL, and again at the same port ``away_s`` later."""
        self.journal(["fault", time.monotonic(), {"kind": "store_away"}])
        self.store.kill()
        self.store.wait()
        self.store.stdout.close()
        over = []
        self.loop.after(away_s, lambda: over.append(True))
        self.until(lambda: over)
        self.store, _ = start_store(self.folder / "store", self.endpoint.port)
        self.journal(["heal", time.monotonic(), {"kind": "store_away"}])

    def story(self):
        """What is known when a test fails: the head, and the last words of every process."""
        words = [f"step {self.step}, plan {None if self.head is None else self.head.plan}"]
        for path in sorted(self.folder.glob("*.err")):
            said = path.read_text(errors="replace").strip().splitlines()[-12:]
            words += [f"-- {path.name}", *said] if said else []
        return "\n".join(words)

    def close(self):
        self.launcher.close()
        self.store.kill()
        self.store.wait()
        self.store.stdout.close()
        self._client.close()

    # -- the verdict ---------------------------------------------------------------------------

    def entries(self):
        """The one log: what all have written, by time, from the beginning to now."""
        found = [entry for path in sorted(self.journals.glob("*.log")) for entry in LogReader(path)]
        found += heads(self.folder / "store")
        found.sort(key=lambda entry: entry[1])
        for entry in found:
            entry[1] -= self.began
        return found

    def verdict(self):
        """Stop everything, and let the checker judge."""
        states = [self._standing(replica) for replica in range(self.config.replicas)]
        self.close()
        entries = self.entries()
        end = time.monotonic() - self.began
        last = max((e[1] for e in entries if e[0] in ("fault", "heal", "crash")), default=0.0)
        standing = [state for state in states if state[1]]
        for state in standing:
            state[2:4] = _state_of(entries, *state[:2])
        log = [["meta", 0.0, self._meta()], *entries, ["last_fault", last], ["end", end, standing, "enough"]]
        return check(log), log

    def _standing(self, replica):
        return [
            replica,
            self.launcher.incarnation(replica),
            0,
            "",
            self.launcher.state(replica).value == "running",
        ]

    def _meta(self):
        c, t = self.config, self.config.timeouts
        stall = 2 * t.close + t.lease + t.rollback_grace
        return {
            "schema": 1, "job": c.job, "replicas": c.replicas, "ranks_per_replica": c.ranks_per_replica,
            "buckets": len(c.ftar.buckets), "min_replicas": c.min_replicas, "streams": c.stream_count,
            "samples_per_step": c.samples_per_step, "max_stream_lag": c.max_stream_lag, "seed": 0,
            "fidelity": "tensor", "catch_up": c.catch_up.mode,
            "lineage_root": lineage_root(c.job, c.initial_digest), "divisor": c.divisor,
            "lr_scaling": c.lr_scaling, "consensus_faults": False, "store_epoch": 1,
            "convergence_bound_s": 60.0 + stall, "progress_bound_s": 60.0 + stall, "stall_bound_s": stall,
        }  # fmt: skip


def heads(folder):
    """What the log says of the head, from the store's own write-ahead log."""
    register, log, found = Register(), HeadLog(), []
    for carried in history_of(folder):
        before = register.head
        register.execute(carried.request, carried.time)
        if isinstance(carried.request, s.Cas):
            live = [register.records[m] for m in sorted(register.leases) if m in register.records]
            found += log.entries(before, carried.request.head, live, carried.time)
    return [msgspec.msgpack.decode(msgspec.msgpack.encode(entry)) for entry in found]


def _state_of(entries, replica, life):
    """(step, lineage) that the leader's own rank last had."""
    at = {"applied": (13, 14), "installed": (5, 6), "initial": (5, 6)}
    found = (0, "")
    for e in entries:
        if e[0] in at and tuple(e[2:5]) == (replica, life, 0):
            found = (e[at[e[0]][0]], e[at[e[0]][1]])
    return found
