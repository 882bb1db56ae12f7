"""Settings of every test: hypothesis keeps no time, as a busy machine has none; kernels are interpreted."""

from __future__ import annotations

import os

from hypothesis import settings

# Before anything imports Triton, as torch may: its own library is made for the interpreter, or it is not.
os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("fthsdp", deadline=None)
settings.load_profile("fthsdp")
