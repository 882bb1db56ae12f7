"""Settings of every test: hypothesis keeps no time, since a busy machine has none to give."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fthsdp", deadline=None)
settings.load_profile("fthsdp")
