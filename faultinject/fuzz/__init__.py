"""Random cases for a campaign: what to draw, what is promised of it, and how to make a failing one small.

Nothing here runs a case; ``emulator.fuzz`` does.
"""

from .case import Case, draw_case
from .promised import is_promised
from .shrink import shrink

__all__ = ["Case", "draw_case", "is_promised", "shrink"]
