"""A clock that goes back makes nobody wait longer than one more time-out."""

from __future__ import annotations

from ftruntime.protocol.congestion import Tier, fresh_window
from ftruntime.protocol.effects import Send, SetTimer
from ftruntime.protocol.geometry import geometry
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import Probe
from ftruntime.protocol.ring import Ring

from .test_fetch import A, B, asked, make

TIMEOUT = 60.0


def test_a_range_is_late_although_the_clock_went_back():
    fetch, out = make(donors=(A, B), ranges=4, window=2), []
    fetch.start(1000.0, out)
    out.clear()
    fetch.timer(9, 10.0, out)
    assert asked(out), "what was asked for at 1000 is not waited for until 1005 comes again"
    assert [e for e in out if isinstance(e, SetTimer)]


def ring():
    shape = geometry((8,), 3, 1, 4)
    me, left, right = (MemberId(replica, 1) for replica in (1, 0, 2))
    return Ring(
        shape,
        me,
        left,
        right,
        position=0,
        round=5,
        window=fresh_window(Tier.RACK, 4),
        contributing=True,
        chunk_timeout=TIMEOUT,
        max_retries=2,
    )


def test_a_ring_asks_after_one_time_out_although_the_clock_went_back():
    late, out = ring(), []
    late.start(3600.0, out)
    late.bucket_ready(0, 3600.0, out)
    out.clear()
    late.timer(0.0, out)
    assert [e.after for e in out if isinstance(e, SetTimer)] == [TIMEOUT], "not an hour and a minute"
    late.timer(TIMEOUT, out)
    assert [e for e in out if isinstance(e, Send) and isinstance(e.message, Probe)]


def test_a_late_ring_accuses_although_the_clock_went_back():
    late, out = ring(), []
    late.start(3600.0, out)
    late.bucket_ready(0, 3600.0, out)
    late.timer(3600.0 + TIMEOUT, out)
    out.clear()
    late.timer(0.0, out)
    late.timer(TIMEOUT, out)
    late.timer(2 * TIMEOUT, out)
    assert late.failure is not None
