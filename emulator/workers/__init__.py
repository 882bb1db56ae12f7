"""One job run by several processes, on one machine or on more (design 5)."""

from .split import Split, split

__all__ = ["Split", "split"]
