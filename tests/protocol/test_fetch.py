"""The catcher's side of a fetch: table of the machine, every order of a small one, random big ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.effects import Effect, Send, SetTimer, Stage, Unstage
from ftruntime.protocol.fetch import MOVES, Fetch, State
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import NotHere, RangeData, RangeRequest
from ftruntime.protocol.plan import Target

TARGET = Target(7, "lineage-7")
POSITION = 3
ME = MemberId(0, 2)
A, B, C = MemberId(1, 1), MemberId(2, 4), MemberId(3, 1)
TIMEOUT = 5.0
TAG = 9


def make(
    donors: tuple[MemberId, ...] = (A, B), ranges: int = 6, window: int = 2, max_strikes: int = 3
) -> Fetch:
    limits = {"window": window, "range_timeout": TIMEOUT, "max_strikes": max_strikes}
    return Fetch(TARGET, POSITION, ME, ranges, donors, **limits, tag=TAG)


def started(**options) -> tuple[Fetch, list[Effect]]:
    fetch, out = make(**options), []
    fetch.start(0.0, out)
    return fetch, out


def answer(donor: MemberId, index: int, intact: bool = True, lineage: str = TARGET.lineage) -> RangeData:
    return RangeData(lineage, index, donor.replica, donor.incarnation, intact)


def gone(donor: MemberId) -> NotHere:
    return NotHere(TARGET.lineage, donor.replica, donor.incarnation)


def asked(out: list[Effect]) -> list[tuple[int, int]]:
    """(replica, index) of every request among the effects."""
    pairs = []
    for effect in out:
        if isinstance(effect, Send):
            assert isinstance(effect.message, RangeRequest) and effect.to[1] == POSITION
            assert effect.message.lineage == TARGET.lineage
            assert (effect.message.replica, effect.message.incarnation) == (ME.replica, ME.incarnation)
            pairs.append((effect.to[0], effect.message.index))
    return pairs


def staged(out: list[Effect]) -> list[int]:
    return [effect.index for effect in out if isinstance(effect, Stage)]


def test_start_spreads_ranges_in_order_and_sets_one_timer():
    fetch, out = started()
    assert asked(out) == [(1, 0), (2, 1), (1, 2), (2, 3)]
    assert [e for e in out if isinstance(e, SetTimer)] == [SetTimer("range", TAG, TIMEOUT)]
    assert fetch.outstanding() == {A: 2, B: 2}
    assert fetch.donors == (A, B) and fetch.fetched == 0 and not fetch.complete


def test_a_faster_donor_gets_more():
    fetch, _ = started(ranges=8)
    out: list[Effect] = []
    for index in (0, 2, 4, 5):
        fetch.data(answer(A, index), 1.0, out)
    assert [replica for replica, _ in asked(out)] == [1, 1, 1, 1]
    assert fetch.outstanding() == {A: 2, B: 2}


def test_all_ranges_complete_it_and_later_data_has_no_effect():
    fetch, _ = started(donors=(A,), ranges=3)
    out: list[Effect] = []
    for index in range(3):
        assert not fetch.complete
        fetch.data(answer(A, index), 1.0, out)
    assert fetch.complete and staged(out) == [0, 1, 2] and fetch.outstanding() == {A: 0}
    rest: list[Effect] = []
    fetch.data(answer(A, 1), 1.0, rest)
    fetch.timer(TAG, 5.0, rest)
    fetch.donor_lost(A.replica, A.incarnation, 6.0, rest)
    fetch.donors_changed((B,), 7.0, rest)
    assert rest == [] and fetch.complete


@pytest.mark.parametrize(
    "message",
    [
        answer(A, 0, lineage="another"),
        answer(MemberId(A.replica, A.incarnation + 1), 0),
        answer(MemberId(B.replica, B.incarnation - 1), 1),
        answer(C, 0),
        answer(A, 6),
        answer(A, -1),
        answer(A, 0, intact=False, lineage="another"),
    ],
    ids=["lineage", "later-life", "earlier-life", "unknown", "beyond", "negative", "corrupt-lineage"],
)
def test_stale_or_senseless_data_has_no_effect(message):
    fetch, _ = started()
    before, out = fetch.outstanding(), []
    fetch.data(message, 1.0, out)
    assert out == [] and fetch.fetched == 0 and fetch.outstanding() == before


def test_stale_refusal_and_stale_loss_have_no_effect():
    fetch, _ = started()
    out: list[Effect] = []
    fetch.not_here(NotHere("another", A.replica, A.incarnation), 1.0, out)
    fetch.not_here(gone(MemberId(A.replica, A.incarnation + 1)), 1.0, out)
    fetch.donor_lost(A.replica, A.incarnation + 1, 1.0, out)
    assert out == [] and fetch.outstanding() == {A: 2, B: 2}


def test_a_duplicate_is_staged_once():
    fetch, _ = started()
    out: list[Effect] = []
    fetch.data(answer(A, 0), 1.0, out)
    fetch.data(answer(B, 0), 1.0, out)
    fetch.data(answer(A, 0, intact=False), 1.0, out)
    assert staged(out) == [0] and fetch.fetched == 1


def test_a_corrupt_range_is_asked_from_another_donor():
    fetch, _ = started(ranges=4)
    out: list[Effect] = []
    fetch.data(answer(A, 0, intact=False), 1.0, out)
    assert out == [], "the other donor's window is full, and the same donor does not get it again"
    fetch.data(answer(B, 1), 1.0, out)
    assert asked(out) == [(2, 0)] and staged(out) == [1]


def test_a_corrupt_range_is_asked_again_from_a_donor_that_is_alone():
    fetch, _ = started(donors=(A,), ranges=2)
    out: list[Effect] = []
    fetch.data(answer(A, 0, intact=False), 1.0, out)
    fetch.data(answer(A, 1), 1.0, out)
    assert asked(out) == [(1, 0)] and staged(out) == [1]


def test_the_window_is_halved_by_a_strike_and_opened_again_by_an_intact_range():
    fetch, _ = started(donors=(A,), ranges=20, window=4)
    fetch.data(answer(A, 0, intact=False), 1.0, [])
    assert fetch.outstanding() == {A: 3}, "allowance is 2 now: nothing new"
    fetch.data(answer(A, 1), 1.0, [])
    assert fetch.outstanding() == {A: 4}


def test_strikes_put_a_donor_out_and_its_ranges_move():
    fetch, _ = started(ranges=40, window=8, max_strikes=2)
    fetch.data(answer(A, 0, intact=False), 1.0, [])
    fetch.data(answer(A, 2, intact=False), 1.0, [])
    assert fetch.outstanding() == {A: 0, B: 8}
    out: list[Effect] = []
    for index in range(1, 16, 2):
        fetch.data(answer(B, index), 1.0, out)
    assert asked(out) == [(2, index) for index in range(0, 16, 2)], "first the ranges that A owed"


def test_refusal_makes_a_donor_unusable_until_a_plan_names_it_again():
    fetch, _ = started()
    fetch.not_here(gone(A), 1.0, [])
    assert fetch.outstanding() == {A: 0, B: 2} and not fetch.starved
    fetch.not_here(gone(B), 1.0, [])
    assert fetch.starved
    out: list[Effect] = []
    fetch.donors_changed((A, B), 2.0, out)
    assert not fetch.starved and fetch.outstanding() == {A: 2, B: 2}
    assert sorted(index for _, index in asked(out)) == [0, 1, 2, 3]


def test_all_donors_lost_starves_and_a_new_plan_revives_without_asking_again():
    fetch, _ = started()
    fetch.data(answer(A, 0), 1.0, [])
    fetch.donor_lost(A.replica, A.incarnation, 1.0, [])
    assert not fetch.starved
    fetch.donor_lost(B.replica, B.incarnation, 1.0, [])
    assert fetch.starved and fetch.donors == () and fetch.fetched == 1
    out: list[Effect] = []
    fetch.donors_changed((C,), 2.0, out)
    for index in range(1, 6):
        fetch.data(answer(C, index), 3.0, out)
    assert fetch.complete and asked(out) == [(3, index) for index in range(1, 6)]
    assert staged(out) == [1, 2, 3, 4, 5]


def test_a_donor_left_out_by_the_plan_has_no_effect_any_more():
    fetch, _ = started()
    out: list[Effect] = []
    fetch.donors_changed((B, C), 1.0, out)
    assert asked(out) == [(3, 0), (3, 2)], "what A owed moves to the one with room"
    rest: list[Effect] = []
    fetch.data(answer(A, 0), 1.0, rest)
    assert rest == [] and fetch.fetched == 0


def test_strikes_outlive_a_plan_unless_nobody_else_is_left():
    fetch, _ = started(ranges=40, max_strikes=1)
    fetch.data(answer(A, 0, intact=False), 1.0, [])
    fetch.donors_changed((A, B), 2.0, [])
    assert fetch.outstanding()[A] == 0
    fetch.donors_changed((A,), 3.0, [])
    assert fetch.outstanding() == {A: 2}


def test_no_donor_at_all_is_starved_from_the_start():
    fetch, out = started(donors=())
    assert fetch.starved and out == []


def test_late_ranges_move_and_only_late_ones():
    fetch, _ = started(ranges=8, window=3)
    for index in (1, 3, 5):
        fetch.data(answer(B, index), 4.0, [])
    out: list[Effect] = []
    fetch.timer(TAG, TIMEOUT, out)
    fetch.data(answer(B, 6), 5.0, out)
    fetch.data(answer(B, 7), 5.0, out)
    # 6 and 7 were asked for at 4.0, so they are not late at 5.0.
    assert asked(out) == [(2, 0), (2, 2), (2, 4)] and SetTimer("range", TAG, TIMEOUT) in out


def test_a_late_answer_of_the_slow_donor_still_counts():
    fetch, _ = started(ranges=2, window=1)
    fetch.data(answer(B, 1), 1.0, [])
    out: list[Effect] = []
    fetch.timer(TAG, TIMEOUT, out)
    assert asked(out) == [(2, 0)]
    fetch.data(answer(A, 0), 6.0, out)
    assert staged(out) == [0] and fetch.complete


def test_a_late_and_corrupt_answer_does_not_ask_a_third_time():
    fetch, _ = started(donors=(A, B, C), ranges=3, window=2)
    fetch.data(answer(B, 1), 4.0, [])
    fetch.data(answer(C, 2), 4.0, [])
    out: list[Effect] = []
    fetch.timer(TAG, TIMEOUT, out)
    fetch.data(answer(A, 0, intact=False), 6.0, out)
    assert asked(out) == [(2, 0)] and fetch.outstanding() == {A: 0, B: 1, C: 0}


def test_a_slow_donor_that_is_alone_is_not_asked_twice():
    fetch, _ = started(donors=(A,), ranges=2, max_strikes=2)
    out: list[Effect] = []
    fetch.timer(TAG, TIMEOUT, out)
    assert asked(out) == [] and fetch.outstanding() == {A: 2}, "one strike, whatever the number of ranges"
    fetch.timer(TAG, 2 * TIMEOUT, out)
    assert fetch.starved
    late: list[Effect] = []
    fetch.data(answer(A, 0), 11.0, late)
    assert staged(late) == [0] and not fetch.starved, "an intact range makes up for a strike"
    assert asked(late) == [(1, 1)] and any(isinstance(e, SetTimer) for e in late)


def test_one_timer_at_a_time_and_only_ones_own():
    fetch, _ = started()
    out: list[Effect] = []
    fetch.timer(TAG - 1, TIMEOUT, out)
    assert out == [] and fetch.outstanding() == {A: 2, B: 2}
    fetch.donors_changed((A, B, C), 1.0, out)
    assert not any(isinstance(e, SetTimer) for e in out)
    fetch.timer(TAG, 2.0, out)
    assert out.count(SetTimer("range", TAG, TIMEOUT)) == 1


def test_a_starved_fetch_lets_its_timer_lapse_and_sets_it_again_when_revived():
    fetch, _ = started()
    out: list[Effect] = []
    fetch.donors_changed((), 1.0, out)
    fetch.timer(TAG, TIMEOUT, out)
    assert out == []
    fetch.donors_changed((A,), 6.0, out)
    assert SetTimer("range", TAG, TIMEOUT) in out


@pytest.mark.parametrize("state", [State.FETCHING, State.STARVED, State.COMPLETE])
def test_cancel_from_every_state_unstages_once(state):
    fetch, _ = started(donors=() if state is State.STARVED else (A,), ranges=1)
    if state is State.COMPLETE:
        fetch.data(answer(A, 0), 1.0, [])
    assert fetch.state is state and State.CANCELLED in MOVES[state]
    out: list[Effect] = []
    fetch.cancel(out)
    fetch.cancel(out)
    fetch.data(answer(A, 0), 1.0, out)
    fetch.donors_changed((A,), 1.0, out)
    fetch.timer(TAG, TIMEOUT, out)
    assert out == [Unstage(TARGET.lineage)] and fetch.state is State.CANCELLED


def test_a_catcher_is_not_its_own_donor():
    with pytest.raises(AssertionError, match="own donor"):
        make(donors=(A, ME))


def test_a_clone_is_independent():
    fetch, _ = started()
    twin = fetch.clone()
    fetch.data(answer(A, 0), 1.0, [])
    fetch.data(answer(B, 1, intact=False), 1.0, [])
    fetch.donor_lost(B.replica, B.incarnation, 1.0, [])
    assert twin.fetched == 0 and twin.outstanding() == {A: 2, B: 2}
    out: list[Effect] = []
    for index in range(6):
        twin.data(answer(A, index), 1.0, out)
    assert twin.complete and staged(out) == list(range(6)) and fetch.fetched == 1


# -- worlds ---------------------------------------------------------------------------------


@dataclass
class World:
    """A fetch and FIFO queues of the requests that each donor has yet to answer."""

    fetch: Fetch
    window: int
    queues: dict[MemberId, list[int]] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    timers: int = 0
    faults: int = 0

    def clone(self) -> World:
        queues = {donor: list(queue) for donor, queue in self.queues.items()}
        return World(self.fetch.clone(), self.window, queues, set(self.arrived), self.timers, self.faults)

    def absorb(self, out: list[Effect]) -> None:
        """Carry effects out in order, checking the promises that hold at every one of them."""
        by_replica = {donor.replica: donor for donor in self.fetch.donors}
        for effect in out:
            if isinstance(effect, Stage):
                assert effect.index not in self.arrived, "staged twice"
                self.arrived.add(effect.index)
            elif isinstance(effect, SetTimer):
                self.timers += 1
        for replica, index in asked(out):
            assert index not in self.arrived, "asked for what has arrived"
            self.queues.setdefault(by_replica[replica], []).append(index)
        assert self.timers <= 1, "one timer at a time"
        assert all(n <= self.window for n in self.fetch.outstanding().values())
        assert self.fetch.fetched == len(self.arrived)

    def answer(self, donor: MemberId, now: float, intact: bool = True) -> None:
        out: list[Effect] = []
        self.fetch.data(answer(donor, self.queues[donor].pop(0), intact), now, out)
        self.absorb(out)

    def lose(self, donor: MemberId, now: float) -> None:
        """The donor dies: what it had not sent will never come."""
        out: list[Effect] = []
        self.queues.pop(donor, None)
        self.fetch.donor_lost(donor.replica, donor.incarnation, now, out)
        self.absorb(out)

    def fire(self, now: float) -> None:
        out: list[Effect] = []
        self.timers -= 1
        self.fetch.timer(TAG, now, out)
        self.absorb(out)

    def replan(self, donors: tuple[MemberId, ...], now: float) -> None:
        out: list[Effect] = []
        self.fetch.donors_changed(donors, now, out)
        self.absorb(out)

    def busy(self) -> list[MemberId]:
        return sorted(donor for donor, queue in self.queues.items() if queue)

    def drain(self, now: float) -> None:
        """Every donor that still has requests answers them well."""
        while donors := self.busy():
            self.answer(donors[0], now)


def begin(donors: tuple[MemberId, ...], ranges: int, window: int, max_strikes: int = 3) -> World:
    fetch, out = started(donors=donors, ranges=ranges, window=window, max_strikes=max_strikes)
    world = World(fetch, window)
    world.absorb(out)
    return world


def successors(world: World, faults: int) -> list[World]:
    """Every next event: an answer of any donor, well or corrupt, or the death of any donor."""
    following = []
    for donor in world.busy():
        following.append(twin := world.clone())
        twin.answer(donor, 1.0)
        if world.faults < faults:
            following.append(twin := world.clone())
            twin.faults += 1
            twin.answer(donor, 1.0, intact=False)
    if world.faults < faults:
        for donor in world.fetch.donors if world.busy() else ():
            following.append(twin := world.clone())
            twin.faults += 1
            twin.lose(donor, 1.0)
    return following


@pytest.mark.parametrize(("donors", "faults"), [((A, B), 1), ((A, B), 2), ((A, B, C), 1), ((A,), 2)])
def test_every_order_of_a_small_fetch_completes_or_is_revived(donors, faults):
    """A donor dies or a range is corrupt at every point of every order."""
    todo, ends, starved = [begin(donors, ranges=3, window=1)], 0, 0
    while todo:
        world = todo.pop()
        following = successors(world, faults)
        todo += following
        if following:
            continue
        ends += 1
        if not world.fetch.complete:
            assert world.fetch.starved, "an end that is neither complete nor starved is a hang"
            starved += 1
            world.replan((MemberId(9, 1),), 2.0)
            world.drain(2.0)
        assert world.fetch.complete and world.arrived == {0, 1, 2}
    assert ends > 5
    assert (starved > 0) == (faults >= len(donors)), "it starves only when all donors can be lost"


MEMBERS = tuple(MemberId(replica, incarnation) for replica in (1, 2, 3, 4) for incarnation in (1, 2))


def plan_of(draw: st.DataObject) -> tuple[MemberId, ...]:
    """One life of each of some replicas."""
    chosen = draw.draw(st.lists(st.sampled_from(MEMBERS), max_size=4, unique_by=lambda m: m.replica))
    return tuple(chosen)


@given(ranges=st.integers(1, 40), window=st.integers(1, 6), max_strikes=st.integers(1, 4), data=st.data())
def test_random_faults_never_lose_or_repeat_a_range(ranges, window, max_strikes, data):
    world = begin(plan_of(data), ranges, window, max_strikes)
    now = 0.0
    kinds = ["answer", "answer", "answer", "corrupt", "lose", "refuse", "fire", "replan", "stray"]
    for kind in data.draw(st.lists(st.sampled_from(kinds), min_size=20, max_size=80)):
        now += data.draw(st.sampled_from([0.0, 1.0, TIMEOUT]))
        busy, named, out = world.busy(), sorted(world.fetch.donors), []
        if kind in ("answer", "corrupt") and busy:
            world.answer(data.draw(st.sampled_from(busy)), now, intact=kind == "answer")
        elif kind == "lose" and named:
            world.lose(data.draw(st.sampled_from(named)), now)
        elif kind == "refuse" and busy:
            donor = data.draw(st.sampled_from(busy))
            world.queues[donor].clear()
            world.fetch.not_here(gone(donor), now, out)
            world.absorb(out)
        elif kind == "fire" and world.timers:
            world.fire(now)
        elif kind == "replan":
            world.replan(plan_of(data), now)
        elif kind == "stray":
            message = answer(data.draw(st.sampled_from(MEMBERS)), data.draw(st.integers(-1, ranges)))
            world.fetch.data(message, now, out)
            world.absorb(out)
    heal(world, now)
    assert world.arrived == set(range(ranges))


def heal(world: World, now: float) -> None:
    """One good donor that nobody has seen before is enough."""
    good = MemberId(8, 1)
    world.queues = {}
    world.replan((good,), now)
    world.drain(now)
    assert world.fetch.complete


@given(speeds=st.lists(st.integers(1, 9), min_size=2, max_size=4), window=st.integers(1, 4))
def test_without_faults_every_range_is_asked_for_exactly_once(speeds, window):
    """Donors of unequal speed: nothing is asked for twice, and the faster gets at least as much."""
    donors = tuple(MemberId(replica, 1) for replica in range(1, len(speeds) + 1))
    world = begin(donors, ranges=60, window=window)
    served = dict.fromkeys(donors, 0)
    for tick in range(1, 2000):
        for donor, speed in zip(donors, speeds, strict=True):
            if tick % speed == 0 and world.queues.get(donor):
                served[donor] += 1
                world.answer(donor, float(tick))
    assert world.fetch.complete and sum(served.values()) == 60
    ranked = sorted(zip(speeds, donors, strict=True))
    fast, slow = served[ranked[0][1]], served[ranked[-1][1]]
    assert fast >= slow - 1
