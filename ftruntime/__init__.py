"""FT-HSDP: a runtime that trains on while replicas die. ``ftruntime.protocol`` is its heart, without I/O."""

from . import compiled

__all__ = ["compiled"]
