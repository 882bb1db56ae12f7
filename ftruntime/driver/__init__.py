"""Drives the protocol in real processes: one per rank, over real connections (docs/driver.md)."""

from __future__ import annotations

from .job import Settings
from .process import AGAIN, FOR_GOOD, OWN_FAULT, Driver
from .worker import Stopped, Trainee, Work, Worker

__all__ = ["AGAIN", "FOR_GOOD", "OWN_FAULT", "Driver", "Settings", "Stopped", "Trainee", "Work", "Worker"]
