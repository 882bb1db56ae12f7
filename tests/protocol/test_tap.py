"""Both ends of the tap: tables, every order of a small one, random big ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.effects import Effect, PostTap, Send, StoreTap
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import Tap, TapAck, TapEnd
from ftruntime.protocol.tap import TapSink, TapSource

ROUND = 12
POSITION = 4
SOURCE = MemberId(6, 3)
L, M = MemberId(0, 2), MemberId(1, 5)
TO_L, TO_M, TO_SOURCE = (0, POSITION), (1, POSITION), (6, POSITION)


def make_source(learners: tuple[MemberId, ...] = (L,), window: int = 2, total: int = 5) -> TapSource:
    return TapSource(ROUND, SOURCE.incarnation, learners, POSITION, window=window, total=total)


def make_sink(me: MemberId = L, window: int = 2, total: int = 5) -> TapSink:
    return TapSink(ROUND, SOURCE, me, POSITION, total=total, window=window)


def ack(learner: MemberId, count: int, round: int = ROUND) -> TapAck:
    return TapAck(round, learner.replica, learner.incarnation, count)


def tap(index: int, round: int = ROUND, incarnation: int = SOURCE.incarnation) -> Tap:
    return Tap(round, incarnation, index)


END = TapEnd(ROUND, SOURCE.incarnation)


def finished(source: TapSource, count: int) -> list[Effect]:
    out: list[Effect] = []
    source.finished(count, out)
    return out


def acked(source: TapSource, message: TapAck) -> list[Effect]:
    out: list[Effect] = []
    source.ack(message, out)
    return out


def ended(source: TapSource) -> list[Effect]:
    out: list[Effect] = []
    source.end(out)
    return out


def posts(to, *indices: int) -> list[Effect]:
    return [PostTap(to, ROUND, index) for index in indices]


# -- source ---------------------------------------------------------------------------------


def test_nothing_is_posted_to_a_learner_that_has_not_opened():
    source = make_source()
    assert finished(source, 5) == []


def test_open_first_then_chunks_flow_within_the_window():
    source = make_source()
    assert acked(source, ack(L, 0)) == []
    assert finished(source, 1) == posts(TO_L, 0)
    assert finished(source, 4) == posts(TO_L, 1)
    assert acked(source, ack(L, 1)) == posts(TO_L, 2)
    assert acked(source, ack(L, 3)) == posts(TO_L, 3)
    assert finished(source, 5) == posts(TO_L, 4)


def test_a_late_opener_gets_everything_from_the_first_chunk():
    source = make_source(window=9)
    finished(source, 3)
    assert acked(source, ack(L, 0)) == posts(TO_L, 0, 1, 2)


def test_learners_do_not_wait_for_each_other():
    source = make_source((L, M))
    acked(source, ack(L, 0))
    acked(source, ack(M, 0))
    assert finished(source, 5) == posts(TO_L, 0, 1) + posts(TO_M, 0, 1)
    assert acked(source, ack(M, 2)) == posts(TO_M, 2, 3)


@pytest.mark.parametrize(
    "message",
    [ack(L, 0, round=ROUND - 1), ack(MemberId(0, 1), 0), ack(MemberId(0, 3), 0), ack(M, 0), ack(L, 1)],
    ids=["round", "earlier-life", "later-life", "unknown", "more-than-posted"],
)
def test_stale_or_senseless_acks_have_no_effect(message):
    source = make_source()
    finished(source, 5)
    assert acked(source, message) == []
    assert acked(source, ack(L, 0)) == posts(TO_L, 0, 1), "nothing was opened or counted by it"


def test_a_repeated_ack_grants_nothing():
    source = make_source()
    acked(source, ack(L, 0))
    finished(source, 3)
    assert acked(source, ack(L, 2)) == posts(TO_L, 2)
    assert acked(source, ack(L, 1)) == [] and acked(source, ack(L, 2)) == []
    acked(source, ack(L, 1))
    assert finished(source, 5) == posts(TO_L, 3), "and takes nothing back"


def test_the_end_is_told_to_those_that_miss_something_and_to_nobody_else():
    source = make_source((L, M, MemberId(2, 1)), window=5)
    acked(source, ack(L, 0))
    finished(source, 5)
    acked(source, ack(M, 0))
    source.learner_lost(2, 1)
    assert ended(source) == [] and ended(source) == []
    slow = make_source((L, M, MemberId(2, 1)), window=2)
    acked(slow, ack(L, 0))
    finished(slow, 5)
    assert ended(slow) == [Send(TO_L, END), Send(TO_M, END), Send((2, POSITION), END)]
    assert ended(slow) == [], "told once"


def test_a_round_that_is_dropped_half_way_ends_even_a_fast_learner():
    source = make_source(window=9)
    acked(source, ack(L, 0))
    finished(source, 3)
    assert ended(source) == [Send(TO_L, END)]


def test_after_the_end_nothing_is_posted_and_an_opener_is_told():
    source = make_source()
    finished(source, 5)
    ended(source)
    assert acked(source, ack(L, 0)) == [Send(TO_L, END)]
    half = make_source()
    acked(half, ack(L, 0))
    finished(half, 5)
    ended(half)
    assert acked(half, ack(L, 2)) == []


def test_a_lost_learner_is_forgotten_and_a_stale_loss_is_not_believed():
    source = make_source((L, M))
    acked(source, ack(L, 0))
    source.learner_lost(L.replica, L.incarnation - 1)
    assert source.learners == (L, M)
    source.learner_lost(L.replica, L.incarnation)
    assert source.learners == (M,)
    assert finished(source, 5) == [] and acked(source, ack(L, 0)) == []
    assert ended(source) == [Send(TO_M, END)]


def test_a_round_without_chunks_ends_silently():
    source = make_source(total=0)
    assert finished(source, 0) == [] and ended(source) == []


@pytest.mark.parametrize("counts", [(2, 1), (6,)], ids=["backwards", "beyond-the-total"])
def test_the_count_of_finished_chunks_only_grows_to_the_total(counts):
    source = make_source()
    with pytest.raises(AssertionError):
        for count in counts:
            finished(source, count)


# -- sink -----------------------------------------------------------------------------------


def received(sink: TapSink, *messages: Tap, source: int = SOURCE.replica) -> list[Effect]:
    out: list[Effect] = []
    for message in messages:
        sink.chunk(source, message, out)
    return out


def test_a_sink_opens_stores_in_order_and_acknowledges_twice_in_a_window_and_at_the_end():
    sink = make_sink(window=4)
    out: list[Effect] = []
    sink.start(out)
    assert out == [Send(TO_SOURCE, ack(L, 0))]
    assert received(sink, tap(0)) == [StoreTap(ROUND, 0)]
    assert received(sink, tap(1)) == [StoreTap(ROUND, 1), Send(TO_SOURCE, ack(L, 2))]
    received(sink, tap(2), tap(3))
    assert not sink.complete
    assert received(sink, tap(4)) == [StoreTap(ROUND, 4), Send(TO_SOURCE, ack(L, 5))]
    assert sink.complete and sink.broken is None and sink.stored == 5


def test_a_window_of_one_acknowledges_every_chunk():
    sink = make_sink(window=1)
    assert received(sink, tap(0)) == [StoreTap(ROUND, 0), Send(TO_SOURCE, ack(L, 1))]


def test_a_round_without_chunks_is_complete_at_once():
    sink, out = make_sink(total=0), []
    sink.start(out)
    sink.end(SOURCE.replica, END)
    assert sink.complete and sink.broken is None and out == []


@pytest.mark.parametrize(
    ("message", "source"),
    [
        (tap(0, round=ROUND + 1), SOURCE.replica),
        (tap(0, incarnation=SOURCE.incarnation - 1), SOURCE.replica),
        (tap(0, incarnation=SOURCE.incarnation + 1), SOURCE.replica),
        (tap(0), SOURCE.replica + 1),
        (tap(3, round=ROUND - 1), SOURCE.replica),
    ],
    ids=["round", "earlier-life", "later-life", "another-replica", "gap-of-another-round"],
)
def test_stale_chunks_have_no_effect(message, source):
    sink = make_sink()
    assert received(sink, message, source=source) == [] and sink.broken is None and sink.stored == 0


def test_duplicates_are_ignored_and_a_gap_breaks():
    sink = make_sink(window=8)
    assert received(sink, tap(0), tap(0), tap(1)) == [StoreTap(ROUND, 0), StoreTap(ROUND, 1)]
    assert received(sink, tap(3)) == []
    assert sink.broken == "round 12 from 6.3: chunk 3 came where 2 was next (2 of 5)"
    assert received(sink, tap(2)) == [], "broken is for good"


BREAKS = {
    "end": lambda sink: sink.end(SOURCE.replica, END),
    "lost": lambda sink: sink.source_lost(SOURCE.replica, SOURCE.incarnation),
}
STALE = {
    "end-of-another-round": lambda sink: sink.end(SOURCE.replica, TapEnd(ROUND - 1, SOURCE.incarnation)),
    "end-of-another-life": lambda sink: sink.end(SOURCE.replica, TapEnd(ROUND, SOURCE.incarnation + 1)),
    "end-of-another-replica": lambda sink: sink.end(SOURCE.replica + 1, END),
    "loss-of-another-life": lambda sink: sink.source_lost(SOURCE.replica, SOURCE.incarnation + 1),
    "loss-of-another-replica": lambda sink: sink.source_lost(L.replica, SOURCE.incarnation),
}


@pytest.mark.parametrize("event", BREAKS)
@pytest.mark.parametrize("chunks", range(6))
def test_end_and_loss_break_whatever_is_not_complete(event, chunks):
    sink = make_sink()
    received(sink, *(tap(index) for index in range(chunks)))
    BREAKS[event](sink)
    assert sink.complete == (chunks == 5)
    assert (sink.broken is None) == (chunks == 5)


@pytest.mark.parametrize("event", STALE)
def test_stale_ends_and_losses_break_nothing(event):
    sink = make_sink()
    received(sink, tap(0))
    STALE[event](sink)
    assert sink.broken is None and received(sink, tap(1))[0] == StoreTap(ROUND, 1)


def test_clones_are_independent():
    source, sink = make_source(), make_sink()
    acked(source, ack(L, 0))
    twin_source, twin_sink = source.clone(), sink.clone()
    finished(source, 5)
    received(sink, tap(0), tap(2))
    assert finished(twin_source, 1) == posts(TO_L, 0)
    assert twin_sink.broken is None and twin_sink.stored == 0


# -- both ends ------------------------------------------------------------------------------


@dataclass
class World:
    """A source and its learners over FIFO links. ``done``: chunks that the ring has finished."""

    source: TapSource
    sinks: dict[MemberId, TapSink]
    window: int
    total: int
    done: int = 0
    over: bool = False
    down: dict[MemberId, list[Tap | TapEnd]] = field(default_factory=dict)
    up: dict[MemberId, list[TapAck]] = field(default_factory=dict)
    unopened: set[MemberId] = field(default_factory=set)

    def clone(self) -> World:
        return World(
            self.source.clone(),
            {m: s.clone() for m, s in self.sinks.items()},
            self.window,
            self.total,
            self.done,
            self.over,
            {m: list(q) for m, q in self.down.items()},
            {m: list(q) for m, q in self.up.items()},
            set(self.unopened),
        )

    def carry(self, out: list[Effect]) -> None:
        by_replica = {m.replica: m for m in self.sinks}
        for effect in out:
            if isinstance(effect, PostTap):
                assert not self.over and effect.index < self.done, "posted from a buffer without it"
                learner = by_replica[effect.to[0]]
                self.down[learner].append(tap(effect.index))
                assert effect.index + 1 - self.sinks[learner].stored <= self.window
            elif isinstance(effect, Send) and isinstance(effect.message, TapEnd):
                self.down[by_replica[effect.to[0]]].append(effect.message)

    def moves(self) -> list[tuple[str, MemberId | None]]:
        found: list[tuple[str, MemberId | None]] = []
        if not self.over:
            found.append(("end", None))
            if self.done < self.total:
                found.append(("finish", None))
        for m in sorted(self.sinks):
            if m in self.unopened:
                found.append(("open", m))
            if self.down[m] and m not in self.unopened:
                found.append(("down", m))
            if self.up[m]:
                found.append(("up", m))
        return found

    def step(self, move: str, learner: MemberId | None) -> None:
        out: list[Effect] = []
        if move == "end":
            self.over = True
            self.source.end(out)
        elif move == "finish":
            self.done += 1
            self.source.finished(self.done, out)
        elif move == "up":
            self.source.ack(self.up[learner].pop(0), out)
        else:
            self.hear(move, learner)
        self.carry(out)

    def hear(self, move: str, learner: MemberId) -> None:
        """A learner opens, or takes the next message of its link."""
        sink, out, before = self.sinks[learner], [], self.sinks[learner].stored
        if move == "open":
            self.unopened.remove(learner)
            sink.start(out)
        else:
            message = self.down[learner].pop(0)
            if isinstance(message, Tap):
                sink.chunk(SOURCE.replica, message, out)
            else:
                sink.end(SOURCE.replica, message)
        assert [e.index for e in out if isinstance(e, StoreTap)] == list(range(before, sink.stored))
        self.up[learner] += [e.message for e in out if isinstance(e, Send)]

    def check_end(self) -> None:
        """Nothing is on its way and the buffer is reused: every learner knows where it stands."""
        for sink in self.sinks.values():
            assert sink.complete != (sink.broken is not None), "a learner that waits for ever"
            assert not sink.complete or self.done == self.total


def new_world(learners: tuple[MemberId, ...], window: int, total: int) -> World:
    return World(
        make_source(learners, window, total),
        {m: make_sink(m, window, total) for m in learners},
        window,
        total,
        down={m: [] for m in learners},
        up={m: [] for m in learners},
        unopened=set(learners),
    )


@pytest.mark.parametrize(("window", "total"), [(1, 2), (2, 2), (2, 3), (3, 1)])
def test_every_order_of_a_small_round_leaves_no_learner_in_doubt(window, total):
    """Late opening, slow learner, and the end of the buffer at every point."""
    todo, complete, broken = [new_world((L,), window, total)], 0, 0
    while todo:
        world = todo.pop()
        moves = world.moves()
        for move in moves:
            todo.append(twin := world.clone())
            twin.step(*move)
        if not moves:
            world.check_end()
            complete += world.sinks[L].complete
            broken += not world.sinks[L].complete
    assert complete > 0 and broken > 0


@given(
    learners=st.integers(1, 3),
    window=st.integers(1, 6),
    total=st.integers(0, 20),
    patient=st.booleans(),
    data=st.data(),
)
def test_random_orders(learners, window, total, patient, data):
    """With a patient ring, which reuses its buffer last, every learner completes."""
    world = new_world(tuple(MemberId(replica, 1) for replica in range(learners)), window, total)
    while moves := world.moves():
        if patient and len(moves) > 1:
            moves = [move for move in moves if move != ("end", None)]
        world.step(*data.draw(st.sampled_from(moves)))
    world.check_end()
    if patient:
        assert all(sink.complete for sink in world.sinks.values())
