"""Authenticated, framed connections over TCP, and the loop that drives them (docs/driver.md)."""

from __future__ import annotations

from .connection import Connection
from .ends import Dial, Endpoint, Listener
from .frames import Frame, FrameError, decoder
from .handshake import Who, checked_token
from .interface import local_address, resolve
from .loop import Loop, Timer

__all__ = [
    "Connection",
    "Dial",
    "Endpoint",
    "Frame",
    "FrameError",
    "Listener",
    "Loop",
    "Timer",
    "Who",
    "checked_token",
    "decoder",
    "local_address",
    "resolve",
]
