"""Who is at the other end of a connection: both ends prove that they know the job's token.

    acceptor                     dialer
    Challenge(nonce)    ---->
                        <----    Hello(who it is, nonce, proof)
    Welcome(who, proof) ---->                                      then messages, both ways

A proof is an HMAC-SHA256, keyed with the token, of the role, both nonces and everything that the end says of
itself: it cannot be replayed, reflected, or used for another identity. Whoever fails is cut off without a
word, and an end that has proved nothing can make the other keep 4 KiB for five seconds. The token
authenticates connections; it does not encrypt them.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from typing import Final

import msgspec

from ftruntime.protocol.errors import ConfigError
from ftruntime.protocol.ids import Incarnation, Position, Replica

from .connection import Connection, Decode
from .frames import MAX_BODY, Frame, decoder

VERSION: Final = 1
LIMIT: Final = 4 << 10  # bytes of a body before the peer has shown who it is
PATIENCE_S: Final = 5.0
NONCE: Final = 16
SHORTEST_TOKEN: Final = 16


class Who(msgspec.Struct, frozen=True, array_like=True):
    """One end of a connection.

    kind:         "rank", "store" or "launcher"
    life:         how often its launcher has started it before
    incarnation:  0 while it is not registered
    lane:         what this connection is for: "ring" or "bulk" between ranks
    """

    kind: str
    job: str
    replica: Replica = -1
    position: Position = -1
    life: int = 0
    incarnation: Incarnation = 0
    lane: str = ""


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag=True):
    version: int
    nonce: bytes


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    who: Who
    nonce: bytes
    proof: bytes


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    who: Who
    proof: bytes


decode_handshake: Final = decoder(Challenge, Hello, Welcome)
Met = Callable[[Connection, Who], object]
Failed = Callable[[str], object]


def checked_token(token: str) -> bytes:
    """The token as a key. Raises ConfigError for one that is empty or could be guessed."""
    key = token.strip().encode()
    if len(key) < SHORTEST_TOKEN:
        raise ConfigError(
            f"the job token has {len(key)} characters; it must have at least {SHORTEST_TOKEN}:"
            ' make one with  python -c "import secrets; print(secrets.token_hex(16))"'
        )
    return key


def prove(token: bytes, role: str, asked: bytes, given: bytes, who: Who) -> bytes:
    """The proof of ``who`` in ``role``; ``asked`` is the acceptor's nonce, ``given`` the dialer's."""
    content = msgspec.msgpack.encode((role, VERSION, asked, given, who))
    return hmac.digest(token, content, "sha256")


class Handshake:
    """Carries one connection through the handshake, and then gives it to ``met``.

    ``decode`` is for what comes afterwards. ``failed`` is called once, with the reason, if that fails.
    """

    def __init__(
        self, connection: Connection, token: bytes, who: Who, decode: Decode, met: Met, failed: Failed
    ) -> None:
        self._connection, self._token, self._who = connection, token, who
        self._decode, self._met, self._failed = decode, met, failed
        self._nonce = os.urandom(NONCE)
        self._asked = b""
        connection.decode, connection.limit = decode_handshake, LIMIT
        connection.on_lost = self._fail
        self._timer = connection.loop.after(PATIENCE_S, self._late)

    def accept(self) -> None:
        self._connection.on_message = self._hello
        self._connection.send(Frame(Challenge(VERSION, self._nonce)))

    def dial(self) -> None:
        self._connection.on_message = self._challenge

    def _hello(self, message: object, payload: object) -> None:
        if not isinstance(message, Hello):
            return self._refuse("it did not say who it is")
        expected = prove(self._token, "dialer", self._nonce, message.nonce, message.who)
        if not hmac.compare_digest(expected, message.proof):
            return self._refuse("it does not know the job's token")
        if message.who.job != self._who.job:
            return self._refuse(f"it belongs to job {message.who.job!r}, not {self._who.job!r}")
        proof = prove(self._token, "acceptor", self._nonce, message.nonce, self._who)
        self._connection.send(Frame(Welcome(self._who, proof)))
        self._done(message.who)

    def _challenge(self, message: object, payload: object) -> None:
        if not isinstance(message, Challenge) or message.version != VERSION:
            return self._refuse("it speaks another version")
        self._asked = message.nonce
        proof = prove(self._token, "dialer", self._asked, self._nonce, self._who)
        self._connection.on_message = self._welcome
        self._connection.send(Frame(Hello(self._who, self._nonce, proof)))

    def _welcome(self, message: object, payload: object) -> None:
        if not isinstance(message, Welcome):
            return self._refuse("it did not say who it is")
        expected = prove(self._token, "acceptor", self._asked, self._nonce, message.who)
        if not hmac.compare_digest(expected, message.proof):
            return self._refuse("it does not know the job's token")
        self._done(message.who)

    def _done(self, who: Who) -> None:
        self._timer.cancel()
        self._connection.decode, self._connection.limit = self._decode, MAX_BODY
        self._connection.on_lost = self._connection.on_message = _early
        self._met(self._connection, who)

    def _late(self) -> None:
        self._refuse(f"no handshake within {PATIENCE_S:g} s")

    def _refuse(self, reason: str) -> None:
        self._connection.close()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._timer.cancel()
        self._failed(reason)


def _early(*_: object) -> None:
    """``met`` replaces this before anything can arrive."""
