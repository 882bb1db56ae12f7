"""The four classes of error (design 3.4) and the report that a rank makes of one."""

from __future__ import annotations

import enum

import msgspec

from .ids import Replica


class ErrorClass(enum.IntEnum):
    """What happens because of an error; ordered by how much it costs."""

    TRANSIENT = 1  # retried on a fresh connection with half the window, a bounded number of times
    PEER_LOST = 2  # the bucket fails, the rank votes no and accuses; the next plan leaves the peer out
    LOCAL_FATAL = 3  # this rank dies and its replica leaves
    JOB_FATAL = 4  # model, layout, geometry, dtype or version differ: the job stops


class ErrorReport(msgspec.Struct, frozen=True, array_like=True):
    """Why a rank cannot finish a round, and whom it holds responsible.

    ``accused`` names replicas, seen from this rank: the neighbour whose connection was reset,
    who never joined, or who joined and then stalled. It is empty when the fault is the rank's own.
    """

    error_class: ErrorClass
    reason: str
    accused: tuple[Replica, ...] = ()


class ProtocolError(Exception):
    """Input that no correct peer or driver produces. Never raised for a fault of the environment."""


class ConfigError(ValueError):
    """A configuration that cannot work. The message names the values and the mend."""
