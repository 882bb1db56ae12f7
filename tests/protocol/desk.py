"""The session of replica 1 at a desk: the test is the store."""

from __future__ import annotations

from ftruntime.protocol import store
from ftruntime.protocol.effects import Exit, StoreCall
from ftruntime.protocol.intent import Intent, Want
from ftruntime.protocol.session import Session

from .builders import (
    everyone,
    head_at,
    job,
    life,
    nonce,
    word,
)

CONFIG = job()
HEAD = head_at(CONFIG, 2)
GONE = "a later life of this replica has registered"


class Desk:
    """The session of replica 1; the test is the store."""

    def __init__(self, attempt=0, incarnation=1, config=CONFIG):
        self.session = Session(config, 1, nonce(1, incarnation), attempt)
        self.out, self.past = [], []

    def fresh(self):
        """From here on ``out`` shows what is new."""
        self.past += self.out
        self.out.clear()

    def start(self):
        self.session.start(0, self.out)
        return self

    def asked(self, kind):
        """The requests of ``kind`` in flight, newest last."""
        waits = self.session.client.waits_for
        calls = [e for e in self.past + self.out if isinstance(e, StoreCall) and waits(e.call)]
        return [c for c in calls if isinstance(c.request, kind)]

    def answer(self, kind, answer):
        """Answer the newest request of ``kind``."""
        call = self.asked(kind)[-1]
        self.fresh()
        self.session.answered(call.call, answer, self.out)
        return call.request

    def read(self, head, *records, leased=()):
        self.answer(store.Read, store.View(head, records, leased))

    def unanswered(self, kind):
        call = self.asked(kind)[-1]
        self.fresh()
        self.session.unanswered(call.call, self.out)

    def watch(self, change):
        self.fresh()
        self.session.watched(change, self.out)

    def see(self, head):
        self.watch(store.HeadChanged(head))

    def pursue(self, intent):
        self.fresh()
        self.session.pursue(intent, self.out)

    def publish(self, record):
        self.fresh()
        self.session.publish(record, self.out)

    def requests(self):
        return [e.request for e in self.out if isinstance(e, StoreCall)]

    def exits(self):
        return [e for e in self.out if isinstance(e, Exit)]

    @property
    def phase(self):
        return self.session.phase


def active(head=HEAD, said=True):
    """A session whose registration is in ``head``, that has a lease and has written a record."""
    desk = Desk().start()
    desk.read(head, *(word(CONFIG, m, 2, 4) for m in everyone(CONFIG)), leased=everyone(CONFIG))
    desk.answer(store.Renew, store.Renewed(False))
    if said:
        desk.publish(word(CONFIG, life(1), 2, 4))
        desk.answer(store.Put, store.PutDone(False))
    desk.fresh()
    return desk


def bereft(standing=None, seen=HEAD):
    """The store came back with ``standing``."""
    desk = active(seen)
    desk.session.poll(desk.out)
    desk.read(standing)
    return desk


COMMIT, CLOSE = Intent(Want.COMMIT, HEAD.round), Intent(Want.CLOSE, HEAD.round)
