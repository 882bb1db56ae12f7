"""Exhaustive exploration of small jobs: the real protocol code, every order of events, up to a bound.

``World`` is one job without time, of which ``explore`` takes every order and a script takes one.
"""

from .bounds import Bounds
from .report import Report, Violation
from .search import explore
from .world import Action, World

__all__ = ["Action", "Bounds", "Report", "Violation", "World", "explore"]
