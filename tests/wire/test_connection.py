"""Frames over real sockets: order, payloads, limits, and how the end of a connection is seen."""

from __future__ import annotations

import gc
import os
import random
import socket

import pytest

from ftruntime.protocol import messages as m
from ftruntime.wire import Frame, FrameError
from ftruntime.wire.connection import Connection

from .pair import DECODE, Pair


def _ack(count):
    return m.Ack(7, 1, count)


def test_messages_come_in_order_both_ways():
    pair = Pair().up()
    for count in range(500):
        pair.near.send(Frame(_ack(count)))
        pair.far.send(Frame(_ack(-count)))
    pair.until(lambda: len(pair.heard["far"]) == 500 == len(pair.heard["near"]))
    assert [message.count for message, _ in pair.heard["far"]] == list(range(500))
    assert [message.count for message, _ in pair.heard["near"]] == [-n for n in range(500)]


@pytest.mark.parametrize("size", [1, 8, 65_535, 65_536, 65_537, 9_000_001])
def test_a_payload_lands_where_the_receiver_says(size):
    pair, content = Pair().up(), random.Random(size).randbytes(size)
    memory = bytearray(size)
    pair.far.landing = lambda message, length: memoryview(memory)[:length]
    pair.near.send(Frame(_ack(1)))
    pair.near.send(Frame(m.Chunk(7, 1, 0, True), (content[: size // 2], content[size // 2 :])))
    pair.near.send(Frame(_ack(2)))
    pair.until(lambda: len(pair.heard["far"]) == 3)
    assert [type(message) for message, _ in pair.heard["far"]] == [m.Ack, m.Chunk, m.Ack]
    assert memory == content


def test_an_unwanted_payload_is_thrown_away_with_its_message():
    pair = Pair().up()
    pair.near.send(Frame(m.Chunk(7, 1, 0, True), (bytes(3_000_000),)))
    pair.near.send(Frame(_ack(2)))
    pair.until(lambda: pair.heard["far"])
    assert [message.count for message, _ in pair.heard["far"]] == [2]


def test_what_has_not_begun_can_be_withdrawn():
    pair = Pair().up()
    memory = bytearray(32 << 20)
    pair.far.landing = lambda message, length: memoryview(memory)[:length]
    done = []
    for seq in range(4):
        chunk = m.Chunk(7, 1, seq, False)
        pair.near.send(Frame(chunk, (bytes(32 << 20),), tag=7, done=lambda seq=seq: done.append(seq)))
    assert not pair.near.withdraw(7)  # the first is larger than any buffer of a socket: it has begun
    pair.near.send(Frame(_ack(5)))
    pair.until(lambda: len(pair.heard["far"]) == 2)
    assert [getattr(message, "seq", -1) for message, _ in pair.heard["far"]] == [0, -1]
    assert done == [0] and pair.near.queued == 0


def test_a_reset_is_seen_once_and_not_from_within_send():
    pair = Pair().up()
    pair.far.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.far.close()
    pair.near.send(Frame(_ack(1)))
    pair.near.send(Frame(_ack(2)))
    assert pair.lost["near"] == []
    pair.until(lambda: pair.lost["near"])
    pair.loop.call(lambda: None)
    pair.loop.turn()
    assert len(pair.lost["near"]) == 1 and not pair.near.open


def test_a_peer_that_ends_is_seen():
    pair = Pair().up()
    pair.far.close()
    pair.until(lambda: pair.lost["near"])
    assert pair.lost["near"] == ["closed by the peer"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xff\xff\xff\0\0\0\0", "longer than"),
        (b"\3\0\0\0\0\0\0\0\xc1\xc1\xc1", "no message"),
        (b"\1\0\0\0\0\0\0\0\x90", "no message"),
    ],
)
def test_bytes_that_make_no_sense_end_the_connection(content, reason):
    pair = Pair().up()
    pair.far.sock.sendall(content)
    pair.until(lambda: pair.lost["near"])
    assert reason in pair.lost["near"][0]


def test_random_bytes_never_raise():
    draw = random.Random(5)
    for _ in range(50):
        pair = Pair().up()
        pair.far.sock.sendall(draw.randbytes(draw.randrange(1, 400)))
        pair.far.close()
        pair.until(lambda pair=pair: pair.lost["near"])


def test_a_frame_that_is_too_large_is_refused_here():
    with pytest.raises(FrameError, match="larger than a frame can be"):
        Frame(m.Chunk(1, 1, 0, False, bytes(65 << 20)))


def test_connections_leave_no_descriptors_behind():
    pair = Pair().up()
    gc.collect()  # the loops of earlier tests
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        ends = []
        for sock in _tcp_pair():
            ends.append(Connection(pair.loop, sock, DECODE))
        ends[0].send(Frame(_ack(1)))
        ends[0].close()
        ends[1].close()
    assert len(os.listdir("/proc/self/fd")) == before


def _tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far
