"""A world that tells what happens, and stops at once when a device finds a sum or state that is wrong."""

from __future__ import annotations

from faultinject.explore.world import World
from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e
from ftruntime.protocol import store as s
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.head import Head
from ftruntime.protocol.ids import Address, MemberId, Replica

from .words import Words


class TracedWorld(World):
    """``level``: all, heads, none; ``seen``: every line since a command began, whatever the level.

    cut:     pairs (from, to) of replicas between which nothing gets through
    strays:  what the last life of a replica had asked of the store when it crashed
    """

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        self.words = Words(config.ranks_per_replica)
        self.level = "all"
        self.seen: list[str] = []
        self._lines: list[str] = []
        self._last: Head | None = None
        self.cut: set[tuple[Replica, Replica]] = set()
        self._gone: dict[Replica, MemberId] = {}
        self.strays: dict[Replica, tuple[s.Request, ...]] = {}

    def take(self) -> list[str]:
        """What is to be shown since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def _say(self, line: str, level: str = "all") -> None:
        if line:
            self.seen.append(line)
            if self.level == "all" or self.level == level:
                self._lines.append(line)

    def crash(self, replica: Replica, seen: bool = True, silent: bool = False) -> None:
        """As in the world; who has a connection, or tries to make one, learns of it unless ``silent``."""
        member = self.member(replica)
        self.strays[replica] = tuple(request for _, request in self.requests.get(replica, ()))
        super().crash(replica, seen)
        if member is not None and not silent:
            self._gone[replica] = member
            self.lost(member.replica, member.incarnation)

    def _deliver(self, source: Address, to: Address) -> None:
        """Who sends to a dead process, or over a link that is cut, learns that nobody is there."""
        peer = self.member(to[0]) if (source[0], to[0]) in self.cut else None
        if peer is not None:
            self._lose_first(source, to)
            self.tell(source, e.PeerLost(peer.replica, peer.incarnation, "no route"))
            return
        super()._deliver(source, to)
        gone = self._gone.get(to[0])
        if to not in self.ranks and gone is not None:
            self.tell(source, e.PeerLost(gone.replica, gone.incarnation, "connection refused"))

    def _lose_first(self, source: Address, to: Address) -> None:
        _, *rest = self.links.pop((source, to))
        if rest:
            self.links[source, to] = tuple(rest)

    def _publish(self) -> None:
        for change in self.register.changes:
            if isinstance(change, s.HeadChanged):
                for line in self.words.news(self._last, change.head):
                    self._say(line, "heads")
                self._last = change.head
            elif isinstance(change, s.RecordChanged):
                self._say(self.words.word(change.record, self.head))
            elif isinstance(change, s.LeaseChanged) and not change.live:
                self._say(f"lease: that of {change.member} ends")
        super()._publish()

    def _carry_out(self, at: Address, effect: f.Effect, event: e.Event) -> None:
        self._say(self.words.effect(at, effect))
        device = self.devices[at]
        super()._carry_out(at, effect, event)
        assert not device.wrong, f"the device of {at[0]}/{at[1]}: {device.wrong}"
