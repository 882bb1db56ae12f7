"""Starts the processes of replicas, and starts them anew when they die (docs/driver.md)."""

from __future__ import annotations

from .launcher import Launcher, State

__all__ = ["Launcher", "State"]
