"""Prometheus metrics of one process, from its happenings. Needs prometheus_client (``fthsdp[observe]``)."""

from __future__ import annotations

from ftruntime.protocol.errors import ConfigError

from .happening import Happening
from .stalls import PHASES


class Metrics:
    """Serves ``/metrics`` at ``host``:``port``. Raises ConfigError where it cannot."""

    def __init__(self, host: str, port: int, replica: int, position: int) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise ConfigError(
                "FTHSDP_METRICS_PORT is set, but prometheus_client is not there: "
                "pip install 'fthsdp[observe]'"
            ) from None
        registry = prometheus.CollectorRegistry()
        names = ["replica", "position"]
        self._own = {"replica": str(replica), "position": str(position)}

        def gauge(name: str, what: str) -> prometheus.Gauge:
            return prometheus.Gauge(f"fthsdp_{name}", what, names, registry=registry).labels(**self._own)

        def counter(name: str, what: str, *more: str) -> prometheus.Counter:
            return prometheus.Counter(f"fthsdp_{name}", what, [*names, *more], registry=registry)

        self._step = gauge("step", "updates that the job's state contains")
        self._round = gauge("round", "the open round")
        self._contributors = gauge("contributors", "replicas that train in the open round")
        self._catching_up = gauge("catching_up", "replicas that catch up in the open round")
        self._staged = gauge("staged_share", "share of the state that this rank has fetched")
        self._commits = counter("commits", "steps that were committed").labels(**self._own)
        self._closes = counter("closes", "rounds that were closed without a commit").labels(**self._own)
        self._failures = counter(
            "failures", "failures seen, by the replica held responsible", "culprit", "kind"
        )
        self._transients = counter("transients", "transfers that a fresh connection mended", "culprit")
        self._lost = prometheus.Gauge(
            "fthsdp_lost_seconds", "time lost, by phase of a stall", [*names, "phase"], registry=registry
        )
        self._seconds = prometheus.Histogram(
            "fthsdp_step_seconds", "from one commit to the next", names, registry=registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
        ).labels(**self._own)  # fmt: skip
        for phase in PHASES:
            self._lost.labels(**self._own, phase=phase).set(0.0)
        try:
            self._server, self._thread = prometheus.start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {host}:{port}: {error.strerror}; "
                "choose another FTHSDP_METRICS_PORT"
            ) from None

    def __call__(self, happening: Happening) -> None:
        more, own = happening.more, self._own
        self._step.set(happening.step)
        self._round.set(happening.round)
        match happening.event:
            case "commit":
                self._commits.inc()
                if more["seconds"] is not None:
                    self._seconds.observe(more["seconds"])
                for phase, seconds in more["lost"].items():
                    self._lost.labels(**own, phase=phase).set(seconds)
            case "closed":
                self._closes.inc()
            case "plan":
                self._contributors.set(len(more["contributors"]))
                self._catching_up.set(len(more["catching_up"]))
            case "staged":
                self._staged.set(more["staged"] / more["ranges"])
            case "transient":
                self._transients.labels(**own, culprit=str(more["culprit"])).inc()
            case "round-failed" | "peer-lost" | "lease-ended" | "own-fault" | "exit" as kind:
                self._failures.labels(**own, culprit=str(more["culprit"]), kind=kind).inc()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
