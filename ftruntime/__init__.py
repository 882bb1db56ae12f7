"""FT-HSDP: a runtime that trains on while replicas die. ``ftruntime.protocol`` is its heart, without I/O."""
