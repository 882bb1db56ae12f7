"""Exactly once along the surviving chain, whatever failed (design 3.6)."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ftruntime.protocol.ledger import advance
from tests.data.jobs import REPLICAS, STREAMS, ToldSource, make_loader, make_plan, sample_of

contributors = st.sets(st.integers(0, REPLICAS - 1), min_size=1).map(sorted)


class Job(RuleBasedStateMachine):
    """Replicas with a loader each, and the chain of what has been committed.

    Each replica reads ahead on the last plan that it saw, which later rules prove right or wrong.
    """

    @initialize()
    def begin(self):
        self.source = ToldSource()
        self.chain = [((0,) * STREAMS, ())]  # (ledger after, samples trained) of each commit
        self.round = 0
        self.loaders = [make_loader(r, self.source) for r in range(REPLICAS)]

    @property
    def ledger(self):
        return self.chain[-1][0]

    def run_round(self, present):
        """Everyone in ``present`` computes one round; (its plan, the samples really read)."""
        self.round += 1
        plan = make_plan(self.round, len(self.chain) - 1, self.ledger, present)
        read = []
        for member, ranges in zip(plan.contributors, plan.ranges, strict=True):
            read += [sample_of(t) for t in self.loaders[member.replica].read(ranges)]
            self.loaders[member.replica].speculate(plan)
        return plan, tuple(read)

    def follow(self):
        for loader in self.loaders:
            loader.follow(self.ledger)

    @rule(present=contributors)
    def commit(self, present):
        plan, read = self.run_round(present)
        self.chain.append((advance(self.ledger, plan.ranges_by_replica()), read))
        self.follow()

    @rule(present=contributors)
    def abort(self, present):
        self.run_round(present)

    @rule(depth=st.integers(1, 6))
    def roll_back(self, depth):
        del self.chain[max(1, len(self.chain) - depth) :]
        self.follow()

    @rule(lost=st.integers(0, REPLICAS - 1), donor=st.integers(0, REPLICAS - 1))
    def restart(self, lost, donor):
        state = json.dumps(self.loaders[donor].state_dict())
        self.loaders[lost] = make_loader(lost, self.source)
        self.loaders[lost].load_state_dict(json.loads(state))

    @invariant()
    def each_sample_below_its_cursor_was_trained_once(self):
        trained = Counter(sample for _, read in self.chain for sample in read)
        below = {(s, i) for s, cursor in enumerate(self.ledger) for i in range(cursor)}
        assert trained == dict.fromkeys(below, 1)

    @invariant()
    def every_replica_stands_at_the_ledger(self):
        assert all(loader.state_dict() == {"ledger": list(self.ledger)} for loader in self.loaders)


TestJob = Job.TestCase
TestJob.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
