"""A wire on NVIDIA's nixl: one-sided writes over RDMA where there is a card, else over shared memory or TCP.

What was seen of it (nixl 1.5.1, its UCX back end), and is taken care of here:

* A peer that was killed is noticed by the next transfer or word to it, not before; one that stands still,
  never. Time-outs are the protocol's.
* Between processes of one machine a write goes on being possible after its target was deregistered. So slots
  that are taken away are new memory (``revoke``), and the old one stays as it is until nobody can write
  there.
* Notifications come in any order: one of a later transfer may overtake one of an earlier. Words are numbered
  here, and put in order again (``_Stream``).
* Letting a transfer go while it is under way does not undo it. So of a write that was cut it is never said
  that it has ended well, and no Quiet follows it.
* At the interpreter's exit it crashes unless everything was given back in order: ``close``.
"""

from __future__ import annotations

import itertools
import logging
import os
import struct
from collections import deque
from typing import Any, Final

import msgspec
import torch

from ftruntime.protocol.ids import MemberId

from .wire import Done, Failed, Gone, Heard, Sight, WireError, Word, decode, encode

VERSION: Final = 1
NUMBER: Final = struct.Struct("<II")  # in front of each word: epoch of the connection, number of the word
EARLY: Final = 4096  # words that wait for an earlier one; slots and probes are far fewer
STATUS: Final = {
    "nixlRemoteDisconnectError": "NIXL_ERR_REMOTE_DISCONNECT",
    "nixlBackendError": "NIXL_ERR_BACKEND",
    "nixlCancelledError": "NIXL_ERR_CANCELED",
    "nixlInvalidParamError": "NIXL_ERR_INVALID_PARAM",
    "nixlMismatchError": "NIXL_ERR_MISMATCH",
    "nixlNotAllowedError": "NIXL_ERR_NOT_ALLOWED",
    "nixlNotFoundError": "NIXL_ERR_NOT_FOUND",
    "nixlNotSupportedError": "NIXL_ERR_NOT_SUPPORTED",
    "nixlRepostActiveError": "NIXL_ERR_REPOST_ACTIVE",
    "nixlUnknownError": "NIXL_ERR_UNKNOWN",
}


class Card(msgspec.Struct, frozen=True, array_like=True):
    """How to reach a rank, and its receive slots: ``slots`` of ``chunk_bytes`` each from ``address`` on."""

    version: int
    agent: str
    metadata: bytes
    memory: str
    device: int
    address: int
    slots: int
    chunk_bytes: int


class _Peer:
    """A peer that was met: its card, descriptors of its slots, and the words to it."""

    __slots__ = ("agent", "card", "descriptors", "encoded", "epoch", "said")

    def __init__(self, encoded: bytes, card: Card, agent: str, descriptors: Any, epoch: int) -> None:
        self.encoded, self.card, self.agent, self.descriptors = encoded, card, agent, descriptors
        self.epoch, self.said = epoch, 0

    def number(self) -> bytes:
        """Of the next word."""
        self.said += 1
        return NUMBER.pack(self.epoch, self.said - 1)


class _Stream:
    """Words from one peer, in order again. A connection that is made anew begins a new epoch."""

    def __init__(self) -> None:
        self._epoch = self._next = 0
        self._early: dict[int, bytes] = {}

    def take(self, data: bytes) -> list[bytes]:
        """What may be heard now that ``data`` has come. What comes twice is heard once."""
        epoch, number = NUMBER.unpack_from(data)
        if epoch > self._epoch:
            self._epoch, self._next, self._early = epoch, 0, {}
        if epoch < self._epoch or number < self._next or len(self._early) >= EARLY:
            return []
        self._early[number] = data[NUMBER.size :]
        found = []
        while self._next in self._early:
            found.append(self._early.pop(self._next))
            self._next += 1
        return [word for word in found if word]


class NixlWire:
    """The wire of ``me``. sent, received: the slots, bytes [C, S], in host or device memory.

    Raises WireError when nixl is not there, or cannot register the slots.
    """

    def __init__(
        self, me: MemberId, sent: torch.Tensor, received: torch.Tensor, backend: str = "UCX"
    ) -> None:
        self.me, self._sent = me, sent
        self._agent = _agent(f"{me}-{os.getpid()}-{os.urandom(4).hex()}", backend)
        self._peers: dict[MemberId, _Peer] = {}
        self._names: dict[str, MemberId] = {}
        self._numbers = itertools.count()
        self._epochs: dict[MemberId, int] = {}
        self._streams: dict[MemberId, _Stream] = {}
        self._under_way: dict[int, tuple[MemberId, Any, bytes]] = {}  # to whom, transfer, its word's number
        self._sights: deque[Sight] = deque()
        self._strangers: dict[str, deque[bytes]] = {}  # words of those whose card has not come yet
        try:
            self._registered = [self._agent.register_memory(sent), self._agent.register_memory(received)]
        except Exception as error:
            raise WireError(f"nixl cannot register the slots: {_status(error)}") from None
        rows = self._rows(_kind(sent), sent.data_ptr(), _device(sent), len(sent), sent.shape[1])
        self._local = self._agent.prep_xfer_dlist("NIXL_INIT_AGENT", rows)
        self._show(received)

    def _show(self, received: torch.Tensor) -> None:
        self._received = received
        where = (_kind(received), _device(received), received.data_ptr(), *received.shape)
        self._card = encode(Card(VERSION, self._agent.name, self._agent.get_agent_metadata(), *where))

    def _rows(self, kind: str, address: int, device: int, slots: int, size: int) -> Any:
        rows = [(address + size * slot, size, device) for slot in range(slots)]
        return self._agent.get_xfer_descs(rows, kind)

    # -- peers ---------------------------------------------------------------------------------

    @property
    def card(self) -> bytes:
        return self._card

    def meet(self, peer: MemberId, card: bytes) -> None:
        """Words that came before the card are heard now. Raises WireError."""
        known = self._peers.get(peer)
        if known is not None and known.encoded == card:
            return
        try:
            seen = msgspec.msgpack.decode(card, type=Card)
        except msgspec.DecodeError as error:
            raise WireError(f"the card of {peer} cannot be read: {error}") from None
        if (seen.version, seen.slots, seen.chunk_bytes) != (VERSION, *self._sent.shape):
            raise WireError(
                f"NIXL_ERR_MISMATCH: {peer} has version {seen.version} and {seen.slots} slots of "
                f"{seen.chunk_bytes} bytes, this rank version {VERSION} and {len(self._sent)} of "
                f"{self._sent.shape[1]}"
            )
        if known is not None:
            self._release(known)
        try:
            agent = _text(self._agent.add_remote_agent(seen.metadata))
            rows = self._rows(seen.memory, seen.address, seen.device, seen.slots, seen.chunk_bytes)
            descriptors = self._agent.prep_xfer_dlist(agent, rows)
        except Exception as error:
            raise WireError(f"{_status(error)}: the card of {peer} leads nowhere") from None
        if known is None:
            self._epochs[peer] = self._epochs.get(peer, 0) + 1
        self._peers[peer] = fresh = _Peer(card, seen, agent, descriptors, self._epochs[peer])
        fresh.said = 0 if known is None else known.said
        self._names[agent] = peer
        self._hear(agent, list(self._strangers.pop(agent, ())))

    def part(self, peer: MemberId) -> None:
        """Disconnect. What nixl makes of transfers that are under way is not known."""
        for number in [number for number, (to, _, _) in self._under_way.items() if to == peer]:
            self._end(number, Failed(number, "closed: by this rank"))
        known = self._peers.pop(peer, None)
        if known is not None:
            self._names.pop(known.agent, None)
            self._release(known)
            with _Quietly():
                self._agent.remove_remote_agent(known.agent)
        self._sights.append(Gone(peer, "closed: by this rank"))

    def _release(self, known: _Peer) -> None:
        with _Quietly():
            known.descriptors.release()

    # -- words and writes ----------------------------------------------------------------------

    def tell(self, peer: MemberId, word: Word) -> None:
        """A notification that belongs to no transfer."""
        known = self._peers.get(peer)
        if known is None:
            return
        try:
            self._agent.send_notif(known.agent, known.number() + encode(word))
        except Exception as error:
            self._sights.append(Gone(peer, _status(error)))

    def write(self, peer: MemberId, slot: int, size: int, word: Word) -> int:
        """A one-sided write with ``word`` as its notification."""
        number, known = next(self._numbers), self._peers.get(peer)
        if known is None:
            self._sights.append(Failed(number, "closed: there is no connection"))
            return number
        place = known.number()
        try:
            handle = self._transfer(known, slot, size, place + encode(word))
            status = self._agent.transfer(handle)
        except Exception as error:
            self._sights.append(Failed(number, _status(error)))
            self._fill(peer, place)
            return number
        self._under_way[number] = (peer, handle, place)
        self._note(number, status)
        return number

    def _fill(self, peer: MemberId, place: bytes) -> None:
        """The word of a write that failed will not come: later ones must not wait for it."""
        known = self._peers.get(peer)
        if known is not None:
            with _Quietly():
                self._agent.send_notif(known.agent, place)

    def _transfer(self, known: _Peer, slot: int, size: int, word: bytes) -> Any:
        whole = known.card.chunk_bytes
        if size == whole:
            return self._agent.make_prepped_xfer(
                "WRITE", self._local, [slot], known.descriptors, [slot], word
            )
        # A short chunk, at the end of a bucket. An empty one writes a byte, so that its word comes all the
        # same.
        size = max(1, size)
        mine = [(self._sent.data_ptr() + slot * whole, size, _device(self._sent))]
        theirs = [(known.card.address + slot * whole, size, known.card.device)]
        local = self._agent.get_xfer_descs(mine, _kind(self._sent))
        remote = self._agent.get_xfer_descs(theirs, known.card.memory)
        return self._agent.initialize_xfer("WRITE", local, remote, known.agent, word)

    def poll(self) -> list[Sight]:
        """How transfers stand, then what was heard."""
        for number, (_, handle, _) in list(self._under_way.items()):
            try:
                self._note(number, self._agent.check_xfer_state(handle))
            except Exception as error:
                self._end(number, Failed(number, _status(error)))
        for name, words in self._agent.get_new_notifs().items():
            self._hear(_text(name), words)
        seen = list(self._sights)
        self._sights.clear()
        return seen

    def _hear(self, name: str, words: list[bytes]) -> None:
        peer = self._names.get(name)
        if peer is None:
            self._strangers.setdefault(name, deque(maxlen=64)).extend(words)
            while len(self._strangers) > 64:
                self._strangers.pop(next(iter(self._strangers)))
            return
        stream = self._streams.setdefault(peer, _Stream())
        self._sights += [Heard(peer, decode(word)) for data in words for word in stream.take(data)]

    def _note(self, number: int, status: str) -> None:
        if status == "DONE":
            self._end(number, Done(number))
        elif status != "PROC":
            self._end(number, Failed(number, "NIXL_ERR_BACKEND"))

    def _end(self, number: int, sight: Sight) -> None:
        peer, handle, place = self._under_way.pop(number)
        with _Quietly():
            handle.release()
        if isinstance(sight, Failed):
            self._fill(peer, place)
        self._sights.append(sight)

    # -- slots ---------------------------------------------------------------------------------

    def revoke(self, received: Any) -> None:
        """The old slots are deregistered, which stops writes of a network card, but not of a process here."""
        registered = self._agent.register_memory(received)
        with _Quietly():
            self._agent.deregister_memory(self._registered[1])
        self._registered[1] = registered
        self._show(received)

    def close(self) -> None:
        """In the order that nixl needs."""
        for peer in list(self._peers):
            self.part(peer)
        self._sights.clear()
        with _Quietly():
            self._local.release()
        for registered in self._registered:
            with _Quietly():
                self._agent.deregister_memory(registered)
        self._registered = []
        del self._agent


class _Quietly:
    """What fails while things are given back changes nothing any more."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return kind is not None and issubclass(kind, Exception)


def _agent(name: str, backend: str) -> Any:
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    try:
        from nixl_cu12._api import nixl_agent, nixl_agent_config
    except ImportError:
        raise WireError("nixl is not installed: pip install 'fthsdp[rdma]'") from None
    logging.getLogger("nixl").setLevel(logging.ERROR)
    return nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=[backend]))


def _status(error: Exception) -> str:
    """nixl names what went wrong by the class of its exception."""
    return STATUS.get(type(error).__name__, f"NIXL_ERR_UNKNOWN: {type(error).__name__}: {error}")


def _kind(tensor: torch.Tensor) -> str:
    return "VRAM" if tensor.is_cuda else "DRAM"


def _device(tensor: torch.Tensor) -> int:
    return max(0, tensor.get_device())


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
