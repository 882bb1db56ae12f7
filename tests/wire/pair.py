"""Two ends of an authenticated connection in one process, on one loop that tests turn by hand."""

from __future__ import annotations

import time

from ftruntime.protocol import messages as m
from ftruntime.wire import Dial, Listener, Loop, Who, decoder

TOKEN = b"a token of the tests"
DECODE = decoder(m.Chunk, m.Ack, m.Join)


def turn_until(loop, done, seconds=20.0):
    """Turn the loop until ``done()``, which it must become."""
    end = time.monotonic() + seconds
    beat = [None]

    def again():
        beat[0] = loop.after(0.05, again)

    again()
    while not done():
        assert time.monotonic() < end, "what was waited for did not happen"
        loop.turn()
    beat[0].cancel()


class Pair:
    """``near`` dialled ``far``; each keeps what it heard, and why it was lost."""

    def __init__(self, host="127.0.0.1", near_token=TOKEN, far_token=TOKEN, job="job", dialled_job="job"):
        self.loop = Loop()
        self.near = self.far = None
        self.failed = []
        self.heard = {"near": [], "far": []}
        self.lost = {"near": [], "far": []}
        self.who = {}
        self.listener = Listener(
            self.loop, host, 0, far_token, lambda: Who("rank", job, 1, 0), DECODE, self._far
        )
        who = Who("rank", dialled_job, 0, 0)
        Dial(self.loop, self.listener.endpoint, near_token, who, DECODE, self._near, self.failed.append, host)

    def _near(self, connection, who):
        self.near = self._met("near", connection, who)

    def _far(self, connection, who):
        self.far = self._met("far", connection, who)

    def _met(self, name, connection, who):
        self.who[name] = who
        connection.on_message = lambda message, payload: self.heard[name].append((message, payload))
        connection.on_lost = self.lost[name].append
        return connection

    def up(self):
        turn_until(self.loop, lambda: self.near is not None and self.far is not None)
        return self

    def until(self, done):
        turn_until(self.loop, done)
