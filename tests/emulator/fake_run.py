"""A stand-in for the driver of emulated ranks, for tests of what lies around it."""

from __future__ import annotations

import itertools
import time

from faultinject import Schedule
from faultinject.vocabulary import Crash
from tests.conformance.log_builder import good_log

ARGS = ["--replicas", "3", "--ranks-per-replica", "2", "--steps", "30", "--min-replicas", "1"]


class FakeEmulation:
    """Same interface as the driver, and a log made by hand. Class attributes say what happens on the way."""

    entries = staticmethod(good_log)
    interrupted_at: int | None = None
    fails_at: int | None = None
    waits = False  # for a real Ctrl-C

    def __init__(self, settings, faults, log, on_span=None, crossing=None):
        self.settings, self.log, self.on_span = settings, log, on_span
        self.now, self.steps_committed, self.rounds, self.messages = 0.0, 0, 0, 0
        self.effective_training_time = 0.0
        self.replica_states = ["up"] * settings.replicas
        self.faults_injected = []
        self.folded = None
        self._told = self._faults(faults)

    @staticmethod
    def _faults(faults):
        if isinstance(faults, Schedule):
            return list(faults.faults)
        return [fault for group in itertools.islice(faults, 2) for fault in group]

    def run(self, on_progress=None):
        self.faults_injected = self._told
        entries = self.entries()
        if self._told:  # a fault changes the trace
            crash = [f for f in self._told if isinstance(f, Crash)]
            entries.insert(1, ["fault", 0.0, {"kind": "crash", "rank": [0, 0], "number": len(crash)}])
        for number, entry in enumerate(entries):
            self._progress(entry, on_progress)
            if self.waits and number == len(entries) // 2:
                print("running", flush=True)
                time.sleep(60)
            if number == self.interrupted_at:
                self.log(["end", self.now, [], "interrupted"])
                raise KeyboardInterrupt
            if number == self.fails_at:
                raise AssertionError("a buffer is in two rounds")
            self.log(entry)

    def _progress(self, entry, on_progress):
        self.now = max(self.now, entry[1])
        if entry[0] != "head":
            return
        self.rounds += 1
        closed = entry[7]
        if closed and closed["outcome"] == "committed":
            self.steps_committed = closed["step_after"]
            if self.on_span:
                self.on_span(0, "compute", self.now - 1, self.now, {"round": self.rounds})
        if on_progress:
            on_progress(self)


def entries_with_a_wrong_sum():
    """A log in which one rank applied something that is not the sum."""
    entries = good_log()
    entry = next(e for e in entries if e[0] == "applied")
    entry[9][0] ^= 1
    return entries
