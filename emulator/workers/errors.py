"""What can go wrong between workers, in one clear line."""

from __future__ import annotations


class WorkersError(Exception):
    """Workers cannot meet, do not match, or one is lost. The message says what to do."""
