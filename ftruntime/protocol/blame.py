"""Accusations: whom the next plan leaves out, and for how long (design 3.2).

An accusation never decides what is true of a round. It only keeps a pair that cannot talk from
failing round after round.
"""

from __future__ import annotations

from collections.abc import Iterable

from .head import Penalty
from .ids import MemberId, Replica, Round
from .record import Record, Stance

FORGET = 32  # rounds after which a served penalty is forgotten
MAX_STRIKES = 6


def accusations(records: Iterable[Record], round: Round) -> dict[Replica, frozenset[Replica]]:
    """Who accuses whom in ``round``: only the word of members that said no counts."""
    return {
        r.member.replica: frozenset(r.accuses) - {r.member.replica}
        for r in records
        if r.round == round and r.stance is Stance.NO and r.accuses
    }


def blamed(accused_by: dict[Replica, frozenset[Replica]]) -> frozenset[Replica]:
    """The replicas that go.

    An accused that itself accuses a third passes on a stall that it suffers, and is excused. Of
    two that accuse each other the one with more distinct accusers goes, on a tie the higher id.
    If everyone is excused (a ring of accusations) the same rule picks one of them all.
    """
    accusers = _accusers(accused_by)
    guilty: set[Replica] = set()
    for accuser, accused in accused_by.items():
        for peer in accused:
            theirs = accused_by.get(peer, frozenset())
            if accuser in theirs:
                guilty.add(_worse(accusers, (accuser, peer)))
            elif not theirs:
                guilty.add(peer)
    if not guilty and accusers:
        guilty.add(_worse(accusers, accusers))
    return frozenset(guilty)


def punish(penalties: tuple[Penalty, ...], guilty: Iterable[MemberId], round: Round) -> tuple[Penalty, ...]:
    """Penalties after ``guilty`` get one strike more in ``round``; served ones are forgotten in time."""
    strikes = {p.member: p for p in penalties if p.until + FORGET > round}
    for member in guilty:
        old = strikes.get(member)
        count = min((old.strikes if old else 0) + 1, MAX_STRIKES)
        strikes[member] = Penalty(member, round + (1 << count), count)
    return tuple(strikes[member] for member in sorted(strikes))


def _accusers(accused_by: dict[Replica, frozenset[Replica]]) -> dict[Replica, int]:
    count: dict[Replica, int] = {}
    for accused in accused_by.values():
        for peer in accused:
            count[peer] = count.get(peer, 0) + 1
    return count


def _worse(accusers: dict[Replica, int], among: Iterable[Replica]) -> Replica:
    return max(among, key=lambda replica: (accusers.get(replica, 0), replica))
