"""Schedules that random faults found on the emulator, each of which once broke it (README.md here)."""

from .exhibits import Exhibit, exhibits

__all__ = ["Exhibit", "exhibits"]
