"""The sampler obeys the ledger, and refuses what would skip or repeat."""

from __future__ import annotations

import json

import pytest

from ftruntime.data import LedgerSampler
from ftruntime.protocol.errors import ProtocolError
from ftruntime.protocol.ledger import SampleRange, assign


def sampler(ledger=(8, 3, 0, 9), replica=0):
    return LedgerSampler(ledger, replica=replica, replicas=2, samples_per_step=2, max_stream_lag=8)


def test_ids_come_in_the_order_of_the_ranges():
    ids = sampler().take([SampleRange(3, 9, 2), SampleRange(0, 8, 1)])
    assert ids == ((3, 9), (3, 10), (0, 8))


def test_taking_does_not_move_the_position():
    one = sampler()
    assert one.take([SampleRange(0, 8, 2)]) == one.take([SampleRange(0, 8, 2)])
    assert one.ledger == (8, 3, 0, 9)


def test_two_ranges_of_one_stream_must_follow_each_other():
    assert sampler().take([SampleRange(1, 3, 1), SampleRange(1, 4, 1)]) == ((1, 3), (1, 4))
    with pytest.raises(ProtocolError, match="begins at 3, its cursor is 4"):
        sampler().take([SampleRange(1, 3, 1), SampleRange(1, 3, 1)])


@pytest.mark.parametrize("start", [7, 9])
def test_a_range_off_the_cursor_is_refused(start):
    with pytest.raises(ProtocolError, match=f"begins at {start}, its cursor is 8"):
        sampler().take([SampleRange(0, start, 2)])


@pytest.mark.parametrize("stream", [-1, 4])
def test_a_stream_that_is_not_there_is_refused(stream):
    with pytest.raises(ProtocolError, match=f"stream {stream}, the ledger has 4"):
        sampler().take([SampleRange(stream, 0, 1)])


def test_following_goes_forward_and_back():
    one = sampler()
    one.follow((10, 3, 0, 9))
    assert one.take([SampleRange(0, 10, 1)]) == ((0, 10),)
    one.follow((4, 3, 0, 9))
    assert one.take([SampleRange(0, 4, 1)]) == ((0, 4),)


def test_a_ledger_of_another_job_is_refused():
    with pytest.raises(ProtocolError, match="ledger has 3 streams, this job has 4"):
        sampler().follow((1, 2, 3))


def test_state_survives_json_and_fits_any_replica():
    state = json.loads(json.dumps(sampler().state_dict()))
    other = sampler(ledger=(0, 0, 0, 0), replica=1)
    other.load_state_dict(state)
    assert other.ledger == (8, 3, 0, 9)
    assert other.state_dict() == state


def test_a_guess_is_what_a_plan_would_say():
    ledger = (8, 3, 0, 9)
    for replica in (0, 1):
        expected = assign(ledger, [0, 1], 2, 2, 8)[replica]
        assert sampler(replica=replica).guess(ledger, [0, 1]) == expected
    assert sampler(replica=1).guess(ledger, [0]) == ()
