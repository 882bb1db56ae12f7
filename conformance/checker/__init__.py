"""The independent checker of the twelve invariants (design section 4). It reads an event log and shares
nothing with the runtime, the emulator or the fault injection."""

from .entries import BadEntry, Entry
from .invariant import Violation
from .narrative import narrate
from .reader import CorruptLog, LogReader
from .run import Checker, InvariantResult, Result, check, check_file

__all__ = [
    "BadEntry", "Checker", "CorruptLog", "Entry", "InvariantResult", "LogReader", "Result", "Violation",
    "check", "check_file", "narrate",
]  # fmt: skip
