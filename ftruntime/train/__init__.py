"""Fault tolerant training of a torch model: what a training script imports (docs/driver.md)."""

from __future__ import annotations

from .replica import replica_mesh
from .trainer import Step, Trainer

__all__ = ["Step", "Trainer", "replica_mesh"]
