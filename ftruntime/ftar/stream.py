"""Where kernels run: a stream of a GPU, or threads that play the thread blocks of interpreted kernels."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any, Protocol


class Stream(Protocol):
    """Carries out launches one after another."""

    pinned: bool  # whether host memory must be pinned for kernels to see it
    failure: BaseException | None  # why a launch failed, if one did

    def launch(
        self, kernel: Any, blocks: int, arguments: tuple[Any, ...], constants: Mapping[str, Any]
    ) -> None:
        """Returns at once. ``kernel`` takes the number of its first block as its last argument."""

    def after(self, event: Any) -> None:
        """Launches from now on wait for ``event``: that a gradient is there."""

    @property
    def idle(self) -> bool:
        """Every launch has ended."""

    def close(self) -> None:
        """Ends when the launches have ended."""


class Threads:
    """A thread for each thread block. They run on the processor, so they must be interpreted."""

    pinned = False

    def __init__(self, blocks: int, name: str = "ftar") -> None:
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(blocks)]
        self._lock = threading.Lock()
        self._running = 0
        self.failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(block,), name=f"{name}-block-{block}", daemon=True)
            for block in range(blocks)
        ]
        for thread in self._threads:
            thread.start()

    def launch(
        self, kernel: Any, blocks: int, arguments: tuple[Any, ...], constants: Mapping[str, Any]
    ) -> None:
        assert blocks == len(self._inboxes), "a thread for each block"
        with self._lock:
            self._running += blocks
        for inbox in self._inboxes:
            inbox.put((kernel, arguments, constants))

    def after(self, event: Any) -> None:
        """On the processor a gradient that is there is there."""

    def _run(self, block: int) -> None:
        from .interpreted import run

        while (work := self._inboxes[block].get()) is not None:
            kernel, arguments, constants = work
            try:
                run(kernel, *arguments, block, **constants)
            except BaseException as error:
                self.failure = error
            finally:
                del work, kernel, arguments, constants
                with self._lock:
                    self._running -= 1

    @property
    def idle(self) -> bool:
        with self._lock:
            return self._running == 0

    def close(self) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()


class Cuda:
    """A stream of its own on a GPU, beside the backward pass; ``warps`` a thread block."""

    pinned = True

    def __init__(self, device: Any, warps: int = 16) -> None:
        import torch

        self._torch, self._warps = torch, warps
        self.failure: BaseException | None = None
        self.stream = torch.cuda.Stream(device, priority=-1)
        self._last = torch.cuda.Event()
        self._last.record(self.stream)

    def launch(
        self, kernel: Any, blocks: int, arguments: tuple[Any, ...], constants: Mapping[str, Any]
    ) -> None:
        with self._torch.cuda.stream(self.stream):
            kernel[(blocks,)](*arguments, 0, **constants, num_warps=self._warps)
        self._last.record(self.stream)

    def after(self, event: Any) -> None:
        self.stream.wait_event(event)

    @property
    def idle(self) -> bool:
        try:
            return bool(self._last.query())
        except RuntimeError as error:  # an earlier launch went wrong, and the device with it
            self.failure = error
            return True

    def close(self) -> None:
        self._last.synchronize()
