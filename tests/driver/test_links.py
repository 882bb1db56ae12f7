"""Connections of ranks: a death is told as a loss, a reset as a transient, and nothing twice."""

from __future__ import annotations

import socket

from ftruntime.driver.links import Links
from ftruntime.protocol import messages as m
from ftruntime.stores import Seat
from ftruntime.wire import Frame, Loop, Who
from tests.wire.pair import TOKEN, turn_until


class Rank:
    """The connections of one rank, and all that they have told it."""

    def __init__(self, loop, replica, position=0, life=0, incarnation=1):
        self.loop, self.heard, self.lost, self.mended = loop, [], [], []
        self.replica, self.position, self.life, self.incarnation = replica, position, life, incarnation
        self.links = Links(
            loop, "127.0.0.1", TOKEN, self.who, lambda source, message, size: None,
            lambda source, message, payload: self.heard.append((source, message)),
            lambda *told: self.lost.append(told), lambda peer, reason: self.mended.append(peer), lambda: None,
        )  # fmt: skip

    def who(self):
        return Who("rank", "job", self.replica, self.position, self.life, self.incarnation)

    @property
    def seat(self):
        return Seat(self.replica, self.position, self.life, self.links.endpoint)

    @property
    def address(self):
        return self.replica, self.position


def meet(*ranks):
    for rank in ranks:
        rank.links.seated([other.seat for other in ranks if other is not rank])
        rank.links.connect([other.address for other in ranks if other is not rank])
    loop = ranks[0].loop
    turn_until(loop, lambda: all(a.links.up(b.address) for a in ranks for b in ranks if a is not b))


def reset(rank, peer):
    """The connection that ``rank`` owns to ``peer`` is reset, as by a box in between."""
    connection = rank.links._links[peer.address, "ring"]._connection
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.sock.shutdown(socket.SHUT_RDWR)


def test_messages_come_in_order():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1)
    meet(a, b)
    for count in range(100):
        a.links.send(b.address, m.Ack(1, 1, count))
    turn_until(loop, lambda: len(b.heard) == 100)
    assert [(source, x.count) for source, x in b.heard] == [((0, 0), n) for n in range(100)]


def test_a_process_that_died_is_lost_under_its_own_name():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1, incarnation=5)
    meet(a, b)
    b.links.close()
    turn_until(loop, lambda: a.lost)
    (peer, incarnation, reason), *_ = a.lost
    assert (peer, incarnation) == ((1, 0), 5) and "refused" in reason
    assert a.mended == []


def test_a_connection_that_was_reset_is_mended():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1)
    meet(a, b)
    reset(a, b)
    turn_until(loop, lambda: a.mended)
    a.links.send(b.address, m.Ack(1, 1, 7))
    turn_until(loop, lambda: b.heard)
    assert a.mended == [(1, 0)] and a.lost == b.lost == []


def test_a_fresh_connection_can_be_asked_for():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1)
    meet(a, b)
    a.links.renew(b.address)
    turn_until(loop, lambda: a.mended)
    assert a.links.up(b.address) and a.lost == []


def test_a_later_life_takes_the_place_of_an_earlier_one():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1)
    meet(a, b)
    later = Rank(loop, 1, life=1, incarnation=2)
    a.links.seated([later.seat])
    turn_until(loop, lambda: a.lost and a.links.up(later.address))
    assert set(a.lost) == {((1, 0), 1, "a later life of it has begun")}  # said by each lane
    a.links.seated([b.seat])  # late news of the earlier one
    a.links.send(later.address, m.Ack(1, 2, 1))
    turn_until(loop, lambda: later.heard)
    assert b.heard == []


def test_the_name_is_learned_after_the_connection():
    loop = Loop()
    a, joiner = Rank(loop, 0), Rank(loop, 1, incarnation=0)
    meet(a, joiner)
    joiner.incarnation = 3
    joiner.links.name(3)
    turn_until(loop, lambda: a.links.lives.of(1, 0) == 3)
    joiner.links.close()
    turn_until(loop, lambda: a.lost)
    assert a.lost[0][:2] == ((1, 0), 3)


def test_what_is_sent_to_nobody_is_refused_once():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1)
    b.links.close()
    a.links.seated([b.seat])
    for count in range(3):
        a.links.send(b.address, m.Ack(1, 1, count))
    turn_until(loop, lambda: a.lost)
    over = []
    loop.after(0.05, lambda: over.append(True))
    turn_until(loop, lambda: over)
    assert len(a.lost) == 1


def test_a_mate_that_ends_is_lost_at_once_whoever_owns_the_connection():
    loop = Loop()
    leader, mate = Rank(loop, 0), Rank(loop, 0, position=1)
    leader.links.seated([mate.seat])
    leader.links.send(mate.address, m.RollCall(1))
    turn_until(loop, lambda: mate.heard)
    leader.links.close()
    turn_until(loop, lambda: mate.lost)
    assert mate.lost[0][0] == (0, 0)


def test_strangers_are_not_let_in():
    """Neither a rank of another position, nor a mate of another life."""
    loop = Loop()
    a = Rank(loop, 0)
    for stranger in (Rank(loop, 1, position=1), Rank(loop, 0, position=1, life=4)):
        link = stranger.links
        link._link(a.address, "ring").aim(a.seat, "127.0.0.1")
        link.send(a.address, m.Ack(1, 1, 1))
        turn_until(loop, lambda stranger=stranger: stranger.lost or stranger.mended)
    assert a.heard == []


def test_withdrawn_frames_do_not_leave():
    loop = Loop()
    a, b = Rank(loop, 0), Rank(loop, 1)
    a.links.seated([b.seat])
    a.links.transfer(b.address, Frame(m.Ack(1, 1, 1), (), 9))
    a.links.send(b.address, m.Ack(1, 1, 2))
    a.links.withdraw(9)
    turn_until(loop, lambda: b.heard)
    assert [message.count for _, message in b.heard] == [2]
