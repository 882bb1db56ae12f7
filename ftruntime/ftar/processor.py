"""What the kernel does, done by a thread of the processor with torch: the data plane where there is no GPU.

It reads the same queue and the same flags as ``kernels.reduce_bucket``, and gives the same bits.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import torch

from . import flags as f
from .checksum import checksum

SPIN: Final = 200  # looks at TAIL before the thread begins to sleep between them
NAP_S: Final = 20e-6


class Processor:
    """A stream whose launches are carried out by one thread. Engines on it have one block."""

    pinned = False

    def __init__(self, name: str = "ftar") -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}-sums", daemon=True)
        self._thread.start()

    def launch(
        self, kernel: Any, blocks: int, arguments: tuple[Any, ...], constants: Mapping[str, Any]
    ) -> None:
        """``kernel`` is not looked at: this thread does what it would do."""
        assert blocks == 1, "one thread is one block"
        with self._lock:
            self._running += 1
        self._inbox.put((arguments, constants))

    def after(self, event: Any) -> None:
        """On the processor a gradient that is there is there."""

    @property
    def idle(self) -> bool:
        with self._lock:
            return self._running == 0

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            try:
                _carry_out(*work)
            except BaseException as error:
                self.failure = error
            finally:
                del work
                with self._lock:
                    self._running -= 1


def _carry_out(arguments: tuple[Any, ...], constants: Mapping[str, Any]) -> None:
    """Operations first .. end - 1, as ``kernels.reduce_bucket``."""
    operations, flags, sums, received, sent, own, kept, first, end, epoch = arguments
    received, sent = received.view(-1), sent.view(-1)
    words, places, parts = flags.numpy(), operations.numpy(), sums.numpy()
    unit, capacity = constants["UNIT"], constants["QUEUE"]
    for op in range(first, end):
        looks = 0
        while words[f.TAIL] <= op:
            if words[f.ABORT] >= epoch:
                return
            looks += 1
            time.sleep(0 if looks < SPIN else NAP_S)
        if words[f.ABORT] >= epoch:
            return
        source, share, slot, keep, count, check = places[op % capacity, :6].tolist()
        result = _result(received, own, source * unit, share * unit, count)
        for tensor, at in ((sent, slot), (kept, keep)):
            if at >= 0:
                tensor[at * unit : at * unit + count].copy_(result)
        if check:
            parts[op % capacity, 0] = checksum(result.view(torch.uint8).numpy(), result.element_size())
        words[f.HEADS] = op + 1


def _result(received: torch.Tensor, own: torch.Tensor, source: int, share: int, count: int) -> torch.Tensor:
    """A view where nothing is summed."""
    if source < 0:
        return own[share : share + count]
    if share < 0:
        return received[source : source + count]
    return received[source : source + count] + own[share : share + count]
