"""Kernels on CPU tensors, several at once: what TRITON_INTERPRET=1 offers, made fit for threads.

Triton's own interpreted launch puts its functions in place of the language's and takes them away at the end,
so of two launches that overlap the first to end breaks the other. And it writes every tensor back at the end.
Here they are put in place once for all, the kernel's function is called with tensors as they are, and each
thread plays one thread block. This leans on the inside of the pinned version of Triton, and on nothing else.
"""

from __future__ import annotations

import inspect
import threading
from typing import Any

from triton.runtime import interpreter

_lock = threading.Lock()
_ready: set[Any] = set()


def run(kernel: Any, *arguments: Any, **constants: Any) -> None:
    """One thread block of ``kernel``, on this thread; returns when it has ended."""
    function = _function(kernel)
    given = inspect.getcallargs(function, *arguments, **constants)
    converted = {
        name: value if name in constants else interpreter._implicit_cvt(value)
        for name, value in given.items()
    }
    function(**converted)


def _function(kernel: Any) -> Any:
    """Python that plays the kernel. Raises TypeError if the kernel is not interpreted."""
    if not isinstance(kernel, interpreter.InterpretedFunction):
        raise TypeError("kernels are compiled: set TRITON_INTERPRET=1 before they are imported")
    with _lock:
        function = kernel.rewrite()
        if not _ready:
            interpreter._patch_lang(function)  # never taken back
            interpreter.interpreter_builder.set_grid_dim(1, 1, 1)
            interpreter.interpreter_builder.set_grid_idx(0, 0, 0)
        _ready.add(function)
    return function
