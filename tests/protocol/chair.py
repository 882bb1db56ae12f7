"""A leader without ranks and without a store: the test plays both, by hand-made heads and answers."""

from __future__ import annotations

from ftruntime.protocol import messages as m
from ftruntime.protocol import store
from ftruntime.protocol.effects import Exit, Note, SetTimer, StoreCall
from ftruntime.protocol.errors import ErrorClass, ErrorReport
from ftruntime.protocol.leader import Leader

from .builders import closed, committed, everyone, head_at, held, job, life, nonce

LOST = ErrorReport(ErrorClass.PEER_LOST, "reset", (2,))


class Chair:
    """The leader of ``replica``, which holds ``step`` when it reads ``head`` first; the others have leases.

    ``out`` and ``down`` show what is new since the last thing that happened.
    """

    def __init__(self, config, head, *, step=None, replica=0, records=(), leased=None, until=0):
        self.config, self.replica = config, replica
        self.leader = Leader(config, replica, nonce(replica), 0)
        self.leader.held = held(config, head.plan.base.step if step is None else step)
        self.out, self.past, self.down, self.past_down = [], [], [], []
        leased = everyone(config) if leased is None else leased
        self._happens(self.leader.started, until)
        self.answer(store.Read, store.View(head, tuple(records), leased))
        self.first = [*self.down], self.puts()

    def _happens(self, act, *args):
        self.past += self.out
        self.out = []
        act(*args, self.out)
        self.past_down += self.down
        self.down, self.leader.down = self.leader.down, []

    # -- what happens --------------------------------------------------------------------------

    def answer(self, kind, answer):
        waits = self.leader.session.client.waits_for
        calls = [e for e in self.past + self.out if isinstance(e, StoreCall) and waits(e.call)]
        call = [c for c in calls if isinstance(c.request, kind)][-1]
        self._happens(self.leader.answered, call.call, answer)

    def see(self, head):
        self._happens(self.leader.watched, store.HeadChanged(head))

    def hear(self, record):
        self._happens(self.leader.watched, store.RecordChanged(record))

    def lease(self, member, live):
        self._happens(self.leader.watched, store.LeaseChanged(member, live))

    def timer(self, name, tag):
        self._happens(self.leader.timer, name, tag)

    def yes(self, round, scalars=(7.0,)):
        self._happens(self.leader.vote, m.Vote(round, True, scalars))

    def no(self, round, report=LOST):
        self._happens(self.leader.vote, m.Vote(round, False, (), report))

    def sealed(self, round, complete, scalars=(5.0,)):
        self._happens(self.leader.sealed, m.Sealed(round, complete, scalars if complete else ()))

    def done(self, number=None):
        """The ranks have carried out an order: the newest, unless said."""
        number = self.leader._next_order if number is None else number
        self._happens(self.leader.done, number)

    def fetched(self, number, ok=True, reason="", accused=()):
        self._happens(self.leader.fetched, m.Fetched(number, ok, reason, accused))

    def prepared(self):
        self._happens(self.leader.prepared)

    # -- what can be seen ----------------------------------------------------------------------

    @property
    def me(self):
        return life(self.replica)

    @property
    def run(self):
        return self.leader.run

    @property
    def state(self):
        return None if self.leader.run is None else self.leader.run.state.name

    def requests(self, kind=object):
        found = [e.request for e in self.out if isinstance(e, StoreCall)]
        return [r for r in found if isinstance(r, kind)]

    def puts(self):
        """The records that were just written."""
        return [r.record for r in self.requests(store.Put)]

    def said(self):
        """(as_of, stance, step) of the last record."""
        record = self.leader.session.said
        return record.as_of, record.stance.name, record.held.step

    def asked(self, kind):
        """Orders to the ranks that were just given."""
        return [x for x in self.down if isinstance(x, kind)]

    def timers(self):
        return [e for e in self.out if isinstance(e, SetTimer)]

    def notes(self):
        return [(e.what, e.round, e.detail) for e in self.out if isinstance(e, Note)]

    def exits(self):
        return [e for e in self.out if isinstance(e, Exit)]


CONFIG = job()
HEAD = head_at(CONFIG, 2)
ROUND = HEAD.round  # 4
APPLY, DROP = m.Verdict.APPLY, m.Verdict.DROP


def chair(state="RUNNING"):
    """A contributor whose run is in ``state``."""
    made = Chair(CONFIG, HEAD)
    for step in PATHS[state]:
        step(made)
    assert made.state == state
    return made


PATHS = {
    "RUNNING": [],
    "COMPLETE": [lambda c: c.yes(ROUND)],
    "SEALING": [lambda c: c.no(ROUND)],
    "KEPT": [lambda c: c.no(ROUND), lambda c: c.sealed(ROUND, True)],
    "DROPPED": [lambda c: c.no(ROUND), lambda c: c.sealed(ROUND, False)],
    "APPLYING": [lambda c: c.yes(ROUND), lambda c: c.see(committed(CONFIG, HEAD))],
    "DROPPING": [lambda c: c.see(closed(HEAD))],
}
WITHOUT_ORDER = ["RUNNING", "COMPLETE", "SEALING", "KEPT"]
