"""FTAR on a GPU with one-sided writes: the protocol's ring on kernels and a wire (docs/ftar.md)."""

from .communicator import Communicator, Failure
from .engine import Engine
from .exchange import Patience

__all__ = ["Communicator", "Engine", "Failure", "Patience"]
