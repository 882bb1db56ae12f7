"""Who may talk: tokens, jobs, replays, and peers that say nothing."""

from __future__ import annotations

import os
import socket

import pytest

from ftruntime.protocol.errors import ConfigError
from ftruntime.wire import Frame, checked_token, local_address, resolve
from ftruntime.wire import handshake as h
from ftruntime.wire.frames import HEADER

from .pair import TOKEN, Pair


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_both_ends_know_who_the_other_is(host):
    pair = Pair(host).up()
    assert (pair.who["near"].replica, pair.who["far"].replica) == (1, 0)
    assert pair.near.limit == h.MAX_BODY


def test_another_token_gets_nothing():
    pair = Pair(near_token=b"a token of somebody else")
    pair.until(lambda: pair.failed)
    assert pair.near is None and pair.far is None


def test_an_acceptor_without_the_token_is_not_believed():
    pair = Pair(far_token=b"a token of somebody else")
    pair.until(lambda: pair.failed)
    assert pair.near is None


def test_another_job_is_refused():
    pair = Pair(dialled_job="other")
    pair.until(lambda: pair.failed)
    assert pair.far is None


def test_a_proof_is_for_one_role_one_nonce_and_one_identity():
    who, a, b = h.Who("rank", "job", 1), os.urandom(16), os.urandom(16)
    proof = h.prove(TOKEN, "dialer", a, b, who)
    others = [
        h.prove(TOKEN, "acceptor", a, b, who),
        h.prove(TOKEN, "dialer", b, a, who),
        h.prove(TOKEN, "dialer", a, b, h.Who("rank", "job", 2)),
        h.prove(b"another token, as long", "dialer", a, b, who),
    ]
    assert proof not in others and len(set(others)) == 4


def test_a_peer_that_says_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(h, "PATIENCE_S", 0.05)
    pair = Pair().up()
    with socket.create_connection((pair.listener.endpoint.host, pair.listener.endpoint.port)) as silent:
        silent.setblocking(False)
        pair.until(lambda: _is_over(silent))


def test_before_the_proof_a_long_body_is_not_taken_in():
    pair = Pair().up()
    with socket.create_connection((pair.listener.endpoint.host, pair.listener.endpoint.port)) as liar:
        liar.sendall(HEADER.pack(h.LIMIT + 1, 0))
        liar.setblocking(False)
        pair.until(lambda: _is_over(liar))


def test_messages_before_the_proof_are_not_heard():
    pair = Pair().up()
    with socket.create_connection((pair.listener.endpoint.host, pair.listener.endpoint.port)) as liar:
        liar.sendall(bytes(Frame(h.Welcome(h.Who("rank", "job"), b"")).views[0]))
        liar.setblocking(False)
        pair.until(lambda: _is_over(liar))
    assert pair.heard["far"] == []


def _is_over(sock):
    try:
        while True:
            if not sock.recv(4096):
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("token", ["", "   ", "short"])
def test_a_token_that_could_be_guessed_is_refused(token):
    with pytest.raises(ConfigError, match="at least 16"):
        checked_token(token)


def test_the_interface_can_be_chosen():
    assert local_address("lo") in ("127.0.0.1", "::1")
    assert local_address("127.0.0.0/8") == local_address("127.0.0.1") == "127.0.0.1"
    assert local_address("", resolve("127.0.0.1", 80)) == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"fits no address of this machine; there are: .*lo"):
        local_address("eth-nowhere")
    with pytest.raises(ConfigError, match="has no address"):
        resolve("no-such-host.invalid", 1)
