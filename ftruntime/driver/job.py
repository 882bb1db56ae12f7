"""What a process of a job is told: who it is, where the store is, and how the job is configured."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ftruntime.observe import Observe
from ftruntime.protocol.config import JobConfig
from ftruntime.protocol.ids import Position, Replica
from ftruntime.wire import Endpoint


class Settings(msgspec.Struct, frozen=True):
    """One process.

    life:         how often its launcher has started this replica before
    interface:    what it listens at and dials from (``wire.local_address``); "": towards the store
    bulk_bps:     bytes a second that catch-up may take at most; 0: as many as there are
    journal:      file for the event log of this process; None: none is written
    audit:        write digests, gradients and sums into the journal, for the checker; for small models
    checkpoints:  folder of checkpoints; None: none are written
    observe:      what people may see of it while it runs
    """

    config: JobConfig
    replica: Replica
    position: Position
    life: int
    store: Endpoint
    token: str
    interface: str = ""
    bulk_bps: float = 0.0
    journal: Path | None = None
    audit: bool = False
    checkpoints: Path | None = None
    observe: Observe = Observe()
