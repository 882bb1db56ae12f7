"""The donor's side of a fetch, alone and together with catchers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftruntime.protocol.donor import Donor
from ftruntime.protocol.effects import Effect, Freeze, Release, Send, SendRange, Stage
from ftruntime.protocol.fetch import Fetch
from ftruntime.protocol.ids import MemberId
from ftruntime.protocol.messages import NotHere, RangeData, RangeRequest
from ftruntime.protocol.plan import Target

ME = MemberId(5, 3)
POSITION = 2
RANGES = 4
X, Y = Target(7, "x"), Target(8, "y")
CATCHER, ZOMBIE, OTHER = MemberId(0, 2), MemberId(0, 1), MemberId(1, 1)
FOR_X = {"x": frozenset({CATCHER})}
FOR_Y = {"y": frozenset({CATCHER})}


def make(max_frozen: int = 2, max_waiting: int = 3) -> Donor:
    return Donor(ME, POSITION, RANGES, max_frozen=max_frozen, max_waiting=max_waiting)


def ask(member: MemberId, lineage: str = "x", index: int = 0) -> RangeRequest:
    return RangeRequest(lineage, index, member.replica, member.incarnation)


def request(donor: Donor, message: RangeRequest, position: int = POSITION) -> list[Effect]:
    out: list[Effect] = []
    donor.request((message.replica, position), message, out)
    return out


def planned(donor: Donor, wanted, held: Target | None) -> list[Effect]:
    out: list[Effect] = []
    donor.plan(wanted, held, out)
    return out


def refusal(replica: int, lineage: str = "x", position: int = POSITION) -> Send:
    return Send((replica, position), NotHere(lineage, ME.replica, ME.incarnation))


def serve(replica: int, lineage: str = "x", index: int = 0) -> SendRange:
    return SendRange((replica, POSITION), lineage, index)


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        (X, FOR_X, [Freeze(7, "x")]),
        (X, FOR_Y, []),
        (X, {}, []),
        (None, FOR_X, []),
    ],
    ids=["held-and-wanted", "another-is-wanted", "nothing-wanted", "nothing-held"],
)
def test_a_plan_freezes_exactly_what_is_held_and_wanted(held, wanted, expected):
    donor = make()
    assert planned(donor, wanted, held) == expected
    assert donor.frozen == tuple(f.lineage for f in expected)


def test_a_frozen_copy_stays_while_it_is_wanted_and_goes_after():
    donor = make()
    planned(donor, FOR_X, X)
    assert planned(donor, FOR_X, X) == [], "frozen once"
    assert planned(donor, {**FOR_X, **FOR_Y}, Y) == [Freeze(8, "y")]
    assert donor.frozen == ("x", "y")
    assert request(donor, ask(CATCHER, "x", 3)) == [serve(0, "x", 3)], "though the state has moved on"
    assert planned(donor, FOR_Y, Y) == [Release("x")]
    assert request(donor, ask(CATCHER, "y")) == [serve(0, "y")]


def test_never_more_copies_than_memory_allows():
    donor = make(max_frozen=1)
    planned(donor, FOR_X, X)
    assert planned(donor, {**FOR_X, **FOR_Y}, Y) == [] and donor.frozen == ("x",)
    assert request(donor, ask(CATCHER, "y")) == [refusal(0, "y")]
    assert planned(donor, FOR_Y, Y) == [Release("x"), Freeze(8, "y")], "room is made first"


@pytest.mark.parametrize(
    ("message", "position", "expected"),
    [
        (ask(CATCHER), POSITION, [serve(0)]),
        (ask(CATCHER, index=RANGES - 1), POSITION, [serve(0, index=RANGES - 1)]),
        (ask(ZOMBIE), POSITION, [refusal(0)]),
        (ask(CATCHER, index=RANGES), POSITION, [refusal(0)]),
        (ask(CATCHER, index=-1), POSITION, [refusal(0)]),
        (ask(CATCHER), POSITION + 1, [refusal(0, position=POSITION + 1)]),
        (ask(OTHER, index=RANGES), POSITION, [refusal(1)]),
        (ask(OTHER), POSITION + 1, [refusal(1, position=POSITION + 1)]),
        (ask(OTHER), POSITION, []),
        (ask(MemberId(0, 3)), POSITION, []),
        (ask(CATCHER, "unheard-of"), POSITION, []),
    ],
    ids=[
        "named",
        "last-range",
        "stale-incarnation",
        "beyond-the-last",
        "negative",
        "another-position",
        "not-named-yet-and-beyond",
        "not-named-yet-and-another-position",
        "not-named-yet",
        "later-life-not-named-yet",
        "lineage-not-named-yet",
    ],
)
def test_the_table_of_requests(message, position, expected):
    donor = make()
    planned(donor, FOR_X, X)
    assert request(donor, message, position) == expected
    assert donor.waiting == (0 if expected else 1)


def test_wanted_but_not_here_is_refused_at_once():
    donor = make()
    planned(donor, FOR_Y, X)
    assert request(donor, ask(CATCHER, "y")) == [refusal(0, "y")]


def test_an_early_request_is_served_by_the_plan_that_names_it_after_the_freeze():
    donor = make()
    assert request(donor, ask(CATCHER, index=1)) == []
    assert request(donor, ask(CATCHER, index=2)) == []
    assert planned(donor, FOR_X, X) == [Freeze(7, "x"), serve(0, index=1), serve(0, index=2)]
    assert donor.waiting == 0


def test_an_early_request_is_refused_by_the_plan_that_does_not_name_it():
    donor = make()
    request(donor, ask(OTHER))
    request(donor, ask(ZOMBIE))
    request(donor, ask(CATCHER, "y"))
    assert planned(donor, FOR_X, X) == [Freeze(7, "x"), refusal(1), refusal(0), refusal(0, "y")]


def test_early_requests_are_bounded_and_repeats_take_no_room():
    donor = make(max_waiting=2)
    for _ in range(3):
        for index in range(2):
            assert request(donor, ask(CATCHER, index=index)) == []
    assert donor.waiting == 2
    assert request(donor, ask(CATCHER, index=2)) == [refusal(0)]
    assert planned(donor, FOR_X, X) == [Freeze(7, "x"), serve(0, index=0), serve(0, index=1)]


def test_a_plan_that_wants_nothing_releases_and_refuses_everything():
    donor = make()
    planned(donor, FOR_X, X)
    planned(donor, {**FOR_X, **FOR_Y}, Y)
    request(donor, ask(OTHER))
    assert planned(donor, {}, None) == [Release("x"), Release("y"), refusal(1)]
    assert donor.frozen == () and donor.waiting == 0
    assert planned(donor, {}, None) == []


def test_a_clone_is_independent():
    donor = make()
    planned(donor, FOR_X, X)
    twin = donor.clone()
    request(donor, ask(OTHER))
    planned(donor, FOR_Y, Y)
    assert twin.frozen == ("x",) and twin.waiting == 0
    assert request(twin, ask(CATCHER)) == [serve(0)]


# -- donors and a catcher together ----------------------------------------------------------


class Network:
    """One catcher and real donors over FIFO links; the donors hear of the plan in any order."""

    def __init__(self, donors: int, ranges: int, window: int) -> None:
        self.members = tuple(MemberId(replica, 1) for replica in range(1, donors + 1))
        self.donors = {
            m.replica: Donor(m, POSITION, ranges, max_frozen=1, max_waiting=window) for m in self.members
        }
        self.fetch = Fetch(
            X,
            POSITION,
            CATCHER,
            ranges,
            self.members,
            window=window,
            range_timeout=1.0,
            max_strikes=2,
            tag=0,
        )
        self.links: dict[tuple[int, int], list[object]] = {}
        self.staged: list[int] = []
        self.frozen: set[int] = set()
        out: list[Effect] = []
        self.fetch.start(0.0, out)
        self.carry(CATCHER.replica, out)

    def carry(self, replica: int, out: list[Effect]) -> None:
        for effect in out:
            if isinstance(effect, Send):
                self.links.setdefault((replica, effect.to[0]), []).append(effect.message)
            elif isinstance(effect, SendRange):
                assert replica in self.frozen, "sent from a copy that is not there"
                data = RangeData(effect.lineage, effect.index, replica, 1)
                self.links.setdefault((replica, effect.to[0]), []).append(data)
            elif isinstance(effect, Freeze):
                self.frozen.add(replica)
            elif isinstance(effect, Release):
                self.frozen.remove(replica)
            elif isinstance(effect, Stage):
                self.staged.append(effect.index)

    def deliver(self, link: tuple[int, int]) -> None:
        out: list[Effect] = []
        message = self.links[link].pop(0)
        if isinstance(message, RangeRequest):
            self.donors[link[1]].request((link[0], POSITION), message, out)
        elif isinstance(message, RangeData):
            self.fetch.data(message, 0.0, out)
        else:
            self.fetch.not_here(message, 0.0, out)
        self.carry(link[1], out)

    def plan(self, replica: int, holds: bool) -> None:
        out: list[Effect] = []
        self.donors[replica].plan(FOR_X, X if holds else Y, out)
        self.carry(replica, out)

    def ready(self) -> list[tuple[int, int]]:
        return sorted(link for link, queue in self.links.items() if queue)


@given(
    donors=st.integers(1, 3),
    ranges=st.integers(1, 12),
    window=st.integers(1, 3),
    holders=st.lists(st.booleans(), min_size=3, max_size=3),
    data=st.data(),
)
def test_whoever_hears_first_the_fetch_ends_well_if_anyone_holds_the_state(
    donors, ranges, window, holders, data
):
    net = Network(donors, ranges, window)
    deaf = list(range(1, donors + 1))
    while net.ready() or deaf:
        choice = data.draw(st.sampled_from([*net.ready(), *deaf]))
        if isinstance(choice, tuple):
            net.deliver(choice)
        else:
            deaf.remove(choice)
            net.plan(choice, holders[choice - 1])
    if any(holders[:donors]):
        assert net.fetch.complete and sorted(net.staged) == list(range(ranges))
    else:
        assert net.fetch.starved and net.staged == []
