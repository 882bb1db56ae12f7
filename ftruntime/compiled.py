"""The compiled core: the same modules, built by mypyc, in a folder beside the sources.

``FTHSDP_COMPILED=FOLDER`` in the environment takes the modules of ``CORE`` from FOLDER, where
``python -m ftruntime.build FOLDER`` has put them; without it everything is Python. Neither is ever mixed
with the other's past: a folder that was built from other sources is refused.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

VARIABLE = "FTHSDP_COMPILED"
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ftruntime/protocol", "emulator")
STAMP = "sources.sha256"
LIBRARY = "fthsdp_core"  # one library holds the code of all modules

_PROTOCOL = (
    "branch donor fetch gather geometry member rank ring ring_flow ring_patience run shard share tap tree"
)
_EMULATOR = (
    "alike chunks compute device device_pooled device_tensor kernel memory mixing network process"
    " ring_buffers"
)
# What every event passes through. Structs of msgspec stay Python, for mypyc does not hand on the options
# of a class, such as ``frozen``; an interpreted class cannot inherit from a compiled one.
CORE = (
    *(f"ftruntime.protocol.{name}" for name in _PROTOCOL.split()),
    *(f"emulator.{name}" for name in _EMULATOR.split()),
)


def fingerprint(root: Path = ROOT) -> str:
    """A digest of all sources that the compiled core was made of, or leans on."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


class CompiledCore:
    """A finder of modules, first in ``sys.meta_path``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fits = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The compiled module, if ``name`` is one. Raises ImportError where it is missing or outdated."""
        if name not in CORE and name != f"{LIBRARY}__mypyc":
            return None
        if not self._fits:
            self._check()
        spec = PathFinder.find_spec(name, [str(self.folder.joinpath(*name.split(".")[:-1]))])
        if spec is None:
            raise ImportError(f"{VARIABLE}: {self.folder} has no {name} for this Python; {self._mend}")
        return spec

    @property
    def _mend(self) -> str:
        return f"run: python -m ftruntime.build {self.folder}"

    def _check(self) -> None:
        stamp = self.folder / STAMP
        if not stamp.is_file():
            raise ImportError(f"{VARIABLE}: {self.folder} holds no compiled core; {self._mend}")
        if stamp.read_text(encoding="ascii") != fingerprint():
            raise ImportError(f"{VARIABLE}: {self.folder} was built from other sources; {self._mend}")
        self._fits = True


if os.environ.get(VARIABLE):
    sys.meta_path.insert(0, CompiledCore(Path(os.environ[VARIABLE]).resolve()))
