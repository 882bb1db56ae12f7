"""What each replica does when, as spans for a trace viewer: read off what leaders say of themselves."""

from __future__ import annotations

from collections.abc import Callable

from ftruntime.protocol.ids import Replica

OnSpan = Callable[[Replica, str, float, float, dict[str, object]], None]


class Spans:
    """Open spans of each replica; ``on_span(replica, name, start, end, args)`` gets each at its end."""

    def __init__(self, on_span: OnSpan | None) -> None:
        self._on_span = on_span
        self._open: dict[tuple[Replica, str], tuple[float, dict[str, object]]] = {}

    def begin(self, replica: Replica, name: str, now: float, **args: object) -> None:
        """A span of this name that is open already goes on."""
        if self._on_span is not None:
            self._open.setdefault((replica, name), (now, args))

    def end(self, replica: Replica, name: str, now: float) -> None:
        """Close the span if it is open."""
        begun = self._open.pop((replica, name), None)
        if begun is not None and self._on_span is not None:
            self._on_span(replica, name, begun[0], now, begun[1])

    def follow(self, replica: Replica, last: str, name: str, now: float, **args: object) -> None:
        """``name`` begins where ``last`` ends."""
        self.end(replica, last, now)
        self.begin(replica, name, now, **args)

    def end_all(self, replica: Replica, now: float) -> None:
        """The replica is gone: whatever it was doing ends."""
        for key in [k for k in self._open if k[0] == replica]:
            self.end(key[0], key[1], now)
