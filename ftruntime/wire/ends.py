"""Listening and dialling: how authenticated connections come to be."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from .connection import Connection, Decode
from .handshake import Failed, Handshake, Met, Who, decode_handshake
from .loop import READ, WRITE, Loop

BACKLOG: Final = 512
UNPROVED: Final = 256  # connections at a time that have not shown who they are
DIAL_S: Final = 5.0


class Endpoint(msgspec.Struct, frozen=True, array_like=True):
    """Where somebody listens: a numeric address, IPv4 or IPv6, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Listener:
    """Takes in connections at ``host`` and gives those that prove themselves to ``met``.

    port 0: any free one; ``endpoint`` says which. ``who`` is asked at each connection, as it may change.
    Raises OSError if the address cannot be had.
    """

    def __init__(
        self, loop: Loop, host: str, port: int, token: bytes, who: Callable[[], Who], decode: Decode, met: Met
    ) -> None:
        self._loop, self._token, self._who, self._decode, self._met = loop, token, who, decode, met
        self._unproved = 0
        self._sock = socket.socket(family(host), socket.SOCK_STREAM)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sock.setblocking(False)
        self._sock.bind((host, port))
        self._sock.listen(BACKLOG)
        self.endpoint = Endpoint(host, self._sock.getsockname()[1])
        loop.watch(self._sock, READ, self._accept)

    def _accept(self, mask: int) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return  # nobody more, or one that has gone already
            if self._unproved >= UNPROVED:
                sock.close()
                continue
            self._unproved += 1
            connection = Connection(self._loop, sock, decode_handshake)
            Handshake(
                connection, self._token, self._who(), self._decode, self._proved, self._not_proved
            ).accept()

    def _proved(self, connection: Connection, who: Who) -> None:
        self._unproved -= 1
        self._met(connection, who)

    def _not_proved(self, reason: str) -> None:
        self._unproved -= 1

    def close(self) -> None:
        self._loop.forget(self._sock)
        self._sock.close()


class Dial:
    """One attempt to reach ``endpoint``: ``met`` gets the connection, or ``failed`` the reason.

    source: the local address to dial from, which chooses the interface; "" lets the system choose
    """

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        token: bytes,
        who: Who,
        decode: Decode,
        met: Met,
        failed: Failed,
        source: str = "",
    ) -> None:
        self._loop, self._token, self._who, self._decode = loop, token, who, decode
        self._met, self._failed = met, failed
        self._sock = socket.socket(family(endpoint.host), socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._timer = loop.after(DIAL_S, self._late)
        try:
            if source and family(source) == family(endpoint.host):
                self._sock.bind((source, 0))
            status = self._sock.connect_ex((endpoint.host, endpoint.port))
        except OSError as error:
            status = error.errno or errno.EINVAL
        if status in (0, errno.EINPROGRESS):
            loop.watch(self._sock, WRITE, self._connected)
        else:
            loop.soon(lambda: self._fail(os.strerror(status)))

    def _connected(self, mask: int) -> None:
        status = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status:
            return self._fail(os.strerror(status).lower())
        self._timer.cancel()
        self._loop.forget(self._sock)
        connection = Connection(self._loop, self._sock, decode_handshake)
        Handshake(connection, self._token, self._who, self._decode, self._met, self._failed).dial()

    def _late(self) -> None:
        self._fail(f"no connection within {DIAL_S:g} s")

    def _fail(self, reason: str) -> None:
        self._timer.cancel()
        self._loop.forget(self._sock)
        with contextlib.suppress(OSError):
            self._sock.close()
        self._failed(reason)
