"""Settings of every test: hypothesis keeps no time, since machines that share their cores have none to give."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fthsdp", deadline=None)
settings.load_profile("fthsdp")
