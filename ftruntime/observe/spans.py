"""OpenTelemetry spans: one a round, with one for each phase in it. Needs ``fthsdp[observe]``.

They go to whatever provider the process has set up; without one the API throws them away.
"""

from __future__ import annotations

from typing import Any

from ftruntime.protocol.errors import ConfigError

from .happening import Happening

ENDS = {"commit": "committed", "closed": "closed"}
FAILURES = ("round-failed", "peer-lost", "lease-ended", "own-fault", "exit", "sealing", "transient")


class Spans:
    """``provider``: of tracers; None: the process' own. Raises ConfigError where the API is missing."""

    def __init__(self, provider: Any = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise ConfigError(
                "FTHSDP_SPANS is set, but opentelemetry is not there: pip install 'fthsdp[observe]'"
            ) from None
        self._trace = trace
        self._tracer = trace.get_tracer("fthsdp", tracer_provider=provider)
        self._round: Any = None
        self._phase: Any = None

    def __call__(self, happening: Happening) -> None:
        at = int(happening.time * 1e9)
        if happening.event in ENDS:
            self._end(at, ENDS[happening.event])
        elif happening.event == "phase":
            self._enter(happening, at)
        elif happening.event in FAILURES and self._round is not None:
            self._round.add_event(happening.event, {k: str(v) for k, v in happening.more.items()}, at)

    def _enter(self, happening: Happening, at: int) -> None:
        if self._phase is not None:
            self._phase.end(at)
        if self._round is None:
            attributes = {
                "fthsdp.replica": happening.replica, "fthsdp.position": happening.position,
                "fthsdp.incarnation": happening.incarnation, "fthsdp.round": happening.round,
                "fthsdp.step": happening.step,
            }  # fmt: skip
            self._round = self._tracer.start_span("fthsdp.round", start_time=at, attributes=attributes)
        within = self._trace.set_span_in_context(self._round)
        name = f"fthsdp.{happening.more['phase']}"
        self._phase = self._tracer.start_span(name, context=within, start_time=at)

    def _end(self, at: int | None, outcome: str) -> None:
        if self._round is not None:
            self._round.set_attribute("fthsdp.outcome", outcome)
        for span in (self._phase, self._round):
            if span is not None:
                span.end(at)
        self._phase = self._round = None

    def close(self) -> None:
        """The round that is open ends with the process."""
        self._end(None, "open")
