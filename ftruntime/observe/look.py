"""Asking a store how its job stands: one connection, one question."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ftruntime.protocol.errors import ConfigError
from ftruntime.stores.messages import Look, Looked
from ftruntime.wire import Connection, Dial, Frame, Loop, Who, checked_token, decoder, resolve

from .status import status

CONNECT = "connect.json"  # in the folder of a run: where its store is, and the token; readable by its owner
decode_looked = decoder(Looked)


class Unreachable(Exception):
    """The store did not answer; the message says why."""


class Connect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is needed to talk to the store of a job."""

    store: str
    job: str
    token: str

    def write(self, folder: Path) -> None:
        """For the owner's eyes only. Raises OSError."""
        path = folder / CONNECT
        fresh = path.with_suffix(".new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(msgspec.json.encode(self))
        os.replace(fresh, path)


def connect(where: str, job: str, variables: Mapping[str, str] = os.environ) -> Connect:
    """Of HOST:PORT, with FTHSDP_TOKEN; or of the folder of a run. Raises ConfigError."""
    folder = Path(where)
    if folder.is_dir():
        path = folder / CONNECT
        try:
            return msgspec.json.decode(path.read_bytes(), type=Connect)
        except (OSError, msgspec.MsgspecError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"{path}: {reason}; name the folder of a run of ftruntime.launch") from None
    host, _, port = where.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"{where!r} is neither HOST:PORT of a store nor the folder of a run")
    if not variables.get("FTHSDP_TOKEN"):
        raise ConfigError("FTHSDP_TOKEN is not set: a store answers only who knows the job's token")
    return Connect(where, job, variables["FTHSDP_TOKEN"])


def look(at: Connect, seconds: float = 5.0) -> dict[str, Any]:
    """How the job stands now (``status``). Raises Unreachable, ConfigError."""
    host, _, port = at.store.rpartition(":")
    endpoint, token = resolve(host.strip("[]"), int(port)), checked_token(at.token)
    loop = Loop()
    found: list[Looked] = []
    why: list[str] = []

    def failed(reason: str) -> None:
        why.append(reason)
        loop.stop()

    def met(connection: Connection, who: Who) -> None:
        def answered(message: Looked, payload: object) -> None:
            found.append(message)
            connection.close()
            loop.stop()

        connection.on_message, connection.on_lost = answered, failed
        connection.send(Frame(Look()))

    loop.after(seconds, lambda: failed(f"no answer within {seconds:g} s"))
    Dial(loop, endpoint, token, Who("observer", at.job), decode_looked, met, failed)
    loop.run()
    if not found:
        raise Unreachable(f"the store at {at.store} (job {at.job!r}) does not answer: {why[0]}")
    return {"job": at.job, **status(found[0].view, found[0].reports)}
