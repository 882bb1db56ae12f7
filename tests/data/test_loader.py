"""Reading ahead is only speculation: right, wrong, failed or late, the plan is what is read."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ftruntime.protocol.errors import ProtocolError
from ftruntime.protocol.ledger import SampleRange, advance
from tests.data.jobs import STREAMS, ToldSource, make_loader, make_plan, sample_of

START = (0,) * STREAMS


def first_round(contributors=(0, 1, 2), **options):
    """(source, loader of replica 0 that has read round 1 and speculated, ledger after round 1)"""
    source = ToldSource()
    loader = make_loader(0, source, **options)
    plan = make_plan(1, 0, START, list(contributors))
    loader.read(plan.ranges[0])
    loader.speculate(plan)
    return source, loader, advance(START, plan.ranges_by_replica())


def test_a_right_guess_is_read_once_and_ahead_of_need():
    source, loader, after = first_round()
    loader.follow(after)
    plan = make_plan(2, 1, after, [0, 1, 2])
    before = list(source.reads)
    assert [sample_of(t) for t in loader.read(plan.ranges[0])] == [(3, 0), (3, 1)]
    assert source.reads == before and before[-2:] == [(3, 0), (3, 1)]
    assert loader.ahead == frozenset()


def test_a_closed_round_is_read_again_and_the_guess_for_the_next_still_serves():
    source, loader, after = first_round()
    again = make_plan(2, 0, START, [0, 1, 2])
    assert [sample_of(t) for t in loader.read(again.ranges[0])] == [(0, 0), (0, 1)]
    loader.speculate(again)
    loader.follow(after)
    loader.read(make_plan(3, 1, after, [0, 1, 2]).ranges[0])
    assert source.reads.count((3, 0)) == 1


def test_a_wrong_guess_is_thrown_away_unseen():
    _, loader, _ = first_round()
    assert loader.ahead == {(3, 0), (3, 1)}
    loader.follow((2, 0, 0, 2, 0, 0, 0, 0, 0))
    plan = make_plan(5, 4, (2, 0, 0, 2, 0, 0, 0, 0, 0), [0, 1, 2])
    assert [sample_of(t) for t in loader.read(plan.ranges[0])] == [(6, 0), (6, 1)]
    loader.speculate(plan)
    assert loader.ahead == {(0, 2), (0, 3)}


def test_a_guess_that_could_not_be_read_is_no_error_until_it_is_asked_for():
    source = ToldSource()
    source.broken = {(3, 0)}
    loader = make_loader(0, source)
    plan = make_plan(1, 0, START, [0, 1, 2])
    loader.speculate(plan)
    loader.follow(advance(START, plan.ranges_by_replica()))
    source.broken.clear()
    assert [sample_of(t) for t in loader.read([SampleRange(3, 0, 2)])] == [(3, 0), (3, 1)]


def test_a_sample_that_cannot_be_read_is_an_error_each_time_it_is_asked_for():
    source = ToldSource()
    source.broken = {(0, 1)}
    loader = make_loader(0, source)
    for _ in range(2):
        with pytest.raises(OSError, match="0/1"):
            loader.read([SampleRange(0, 0, 2)])


def test_one_who_will_not_contribute_reads_nothing_ahead():
    source = ToldSource()
    loader = make_loader(0, source)
    loader.speculate(make_plan(1, 0, START, [1, 2]))
    assert (loader.ahead, source.reads) == (frozenset(), [])


@pytest.mark.parametrize(("most", "kept"), [(0, set()), (1, {(3, 0)})])
def test_reading_ahead_is_bounded(most, kept):
    _, loader, _ = first_round(max_ahead=most)
    assert loader.ahead == kept


def test_closing_throws_everything_away():
    _, loader, _ = first_round()
    loader.close()
    assert loader.ahead == frozenset()


def test_a_range_off_the_cursor_is_refused_even_if_it_was_read_ahead():
    _, loader, _ = first_round()
    with pytest.raises(ProtocolError):
        loader.read([SampleRange(3, 1, 1)])


def test_the_position_survives_json_and_leaves_the_speculation_behind():
    source, loader, after = first_round()
    loader.follow(after)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state == {"ledger": list(after)}
    other = make_loader(1, source)
    other.speculate(make_plan(1, 0, START, [0, 1, 2]))
    other.load_state_dict(state)
    assert other.ahead == frozenset() and other.state_dict() == state
    plan = make_plan(2, 1, after, [0, 1, 2])
    assert [sample_of(t) for t in other.read(plan.ranges[1])] == [(4, 0), (4, 1)]


class GatedSource(ToldSource):
    """Holds each read until the gate opens."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()

    def tokens(self, stream, index):
        self.gate.wait()
        return super().tokens(stream, index)


def test_reading_ahead_in_a_thread_waits_for_what_runs_and_cancels_what_does_not():
    source = GatedSource()
    plan = make_plan(1, 0, START, [0, 1, 2])
    after = advance(START, plan.ranges_by_replica())
    with ThreadPoolExecutor(max_workers=1) as executor:
        loader = make_loader(0, source, executor=executor)
        loader.speculate(plan)  # (3, 0) runs, (3, 1) waits for the only worker
        loader.follow(after)
        threading.Timer(0.05, source.gate.set).start()
        tokens = loader.read(make_plan(2, 1, after, [0, 1, 2]).ranges[0])
    assert [sample_of(t) for t in tokens] == [(3, 0), (3, 1)]
    assert sorted(source.reads) == [(3, 0), (3, 1)]


def test_a_guess_that_waits_for_a_worker_is_cancelled_when_it_is_wrong():
    source = GatedSource()
    with ThreadPoolExecutor(max_workers=1) as executor:
        loader = make_loader(0, source, executor=executor)
        blocker = executor.submit(source.gate.wait)
        loader.speculate(make_plan(1, 0, START, [0, 1, 2]))
        loader.close()
        source.gate.set()
        blocker.result()
    assert source.reads == []
