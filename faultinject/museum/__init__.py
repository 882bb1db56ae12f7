"""Schedules that broke drafts of the protocol, and a player for them (docs/museum.md)."""

from .checks import Violation
from .exhibits import Schedule, files, read, replay, violations_without
from .player import Player

__all__ = ["Player", "Schedule", "Violation", "files", "read", "replay", "violations_without"]
