"""Exhaustive exploration of small jobs: the real protocol code, every order of events, up to a bound."""

from .bounds import Bounds
from .report import Report, Violation
from .search import explore

__all__ = ["Bounds", "Report", "Violation", "explore"]
