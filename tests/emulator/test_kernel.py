"""The event kernel: order, generations, bounds."""

from __future__ import annotations

import gc
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.kernel import Kernel, KernelError, settled_heap


def _recorder(kernel, seen):
    def handler(event, now):
        assert now == kernel.now
        seen.append((now, event))

    return handler


@given(st.lists(st.floats(0.0, 4.0).map(lambda t: round(t, 1)), max_size=50))
def test_events_run_by_time_then_by_order_of_scheduling(times):
    kernel, seen = Kernel(), []
    for number, time in enumerate(times):
        kernel.at(time, _recorder(kernel, seen), number)
    assert kernel.pending == len(times)
    kernel.run()
    assert seen == sorted((time, number) for number, time in enumerate(times))
    assert (kernel.events, kernel.pending, kernel.next_time) == (len(times), 0, math.inf)


def test_what_is_scheduled_for_the_same_time_runs_after_all_that_was_there():
    kernel, seen = Kernel(), []
    record = _recorder(kernel, seen)

    def beget(event, now):
        record(event, now)
        kernel.at(now, record, event + "'")

    for event in "ab":
        kernel.at(1.0, beget, event)
    kernel.at(2.0, record, "c")
    kernel.run()
    assert seen == [(1.0, "a"), (1.0, "b"), (1.0, "a'"), (1.0, "b'"), (2.0, "c")]


def test_a_run_until_leaves_what_is_due_then_and_can_go_on():
    kernel, seen = Kernel(), []
    for time in (1.0, 2.0, 3.0):
        kernel.at(time, _recorder(kernel, seen), None)
    kernel.run(until=2.0)
    assert (kernel.now, kernel.events, kernel.pending, kernel.next_time) == (1.0, 1, 2, 2.0)
    kernel.at(1.5, _recorder(kernel, seen), None)  # from outside, as a worker's window does
    kernel.run()
    assert [time for time, _ in seen] == [1.0, 1.5, 2.0, 3.0]


def test_a_run_can_be_cut_short_while_it_runs():
    kernel, seen = Kernel(), []
    kernel.at(1.0, lambda event, now: kernel.end_by(2.0), None)
    for time in (1.0, 1.5, 2.0):
        kernel.at(time, _recorder(kernel, seen), None)
    kernel.run(until=3.0)
    assert [time for time, _ in seen] == [1.0, 1.5], "strictly before, as until says"
    kernel.run()
    assert len(seen) == 3


def test_what_comes_in_order_comes_last_and_by_key():
    kernel, seen = Kernel(), []
    record = _recorder(kernel, seen)
    for key in (3, 1, 2, 1):
        kernel.in_order(1.0, key, record, f"{key}, number {len(kernel._ordered)}")
    kernel.in_order(1.0, 1, record, "1, the last")
    kernel.at(1.0, record, "first")
    assert kernel.pending == 6
    kernel.run()
    assert [event[0] for _, event in seen] == ["f", "1", "1", "1", "2", "3"]
    assert seen[3][1] == "1, the last" and kernel.pending == 0


@pytest.mark.parametrize("time", [0.5, -1.0, math.nan])
def test_the_past_is_refused_with_both_times(time):
    kernel = Kernel()
    kernel.at(1.0, lambda event, now: kernel.at(time, _recorder(kernel, []), None), None)
    with pytest.raises(KernelError, match=rf"{time!r} s.*1\.0 s"):
        kernel.run()


def test_what_never_comes_is_not_pending():
    kernel = Kernel()
    kernel.at(math.inf, _recorder(kernel, []), None)
    assert kernel.pending == 0
    kernel.run()
    assert kernel.events == 0


def test_an_instant_that_never_ends_is_an_error():
    kernel = Kernel()

    def again(event, now):
        kernel.at(now, again, None)

    kernel.at(7.0, again, None)
    with pytest.raises(KernelError, match=r"7\.0 s never ends"):
        kernel.run()


def test_the_collector_is_as_before_after_a_run():
    before = gc.get_threshold(), gc.get_freeze_count()
    with settled_heap():
        assert gc.get_freeze_count() > 0 and gc.isenabled()
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_what_was_due_while_a_process_stood_still_happens_in_its_order_when_it_goes_on():
    kernel, seen = Kernel(lookahead=1.0), []
    record = _recorder(kernel, seen)
    lane = kernel.lane(0)
    kernel.at(2.0, record, "second")
    kernel.at(1.0, record, "first")
    kernel.in_order(1.0, "key", record, "ordered")
    lane.at(1.5, record, "lane")
    kernel.at(5.0, record, "at five")
    lane.at(9.0, record, "lane at nine")
    kernel.at(9.0, record, "at nine")
    kernel.postpone(5.0)
    assert (kernel.pending, kernel.next_time) == (7, 5.0)
    kernel.run()
    outside = [event for event in seen if not event[1].startswith("lane")]
    assert outside == [(5.0, "first"), (5.0, "second"), (5.0, "at five"), (5.0, "ordered"), (9.0, "at nine")]
    assert [event for event in seen if event[1].startswith("lane")] == [(5.0, "lane"), (9.0, "lane at nine")]
