"""The content of a consensus store and what each request does to it, without I/O (design 3.2).

Whoever serves ``ftruntime.protocol.store`` keeps a ``Register`` and brings the time and the network: the
emulator does so in virtual time, a store inside the runtime would do it between processes.
"""

from __future__ import annotations

from .register import Backup, Lease, Register

__all__ = ["Backup", "Lease", "Register"]
