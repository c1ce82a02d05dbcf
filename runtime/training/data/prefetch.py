"""Batches made in a thread while others are trained on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from lstm_lower.runtime.training.data.layout import Batch

# Seconds after which a thread that waits looks whether anybody still wants what it makes.
_PATIENCE = 0.1
# Seconds that the end of a loop waits for a thread that is inside foreign code.
_FAREWELL = 5.0


class Prefetched:
    """An iterator over another one's items, which a thread makes ahead; `close` ends the thread.

    Errors of the other iterator are raised where its item would have come.
    """

    def __init__(self, items: Iterator[Batch], depth: int = 2) -> None:
        """Starts the thread.

        Args:
            items: what is read; only the thread touches it from here on.
            depth: how many items wait at most.
        """
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._make, args=(items,), name="lstm_lower.prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Prefetched:
        return self

    def __next__(self) -> Batch:
        if self._ended.is_set():
            raise StopIteration
        kind, item = self._queue.get()
        if kind == "item":
            batch: Batch = item
            return batch
        self._ended.set()
        if kind == "error":
            raise item
        raise StopIteration

    def close(self) -> None:
        """Ends the thread; what it has made is dropped."""
        self._ended.set()
        self._thread.join(_FAREWELL)

    def _make(self, items: Iterator[Batch]) -> None:
        try:
            for item in items:
                if not self._put("item", item):
                    break
            else:
                self._put("end", None)
        except BaseException as error:  # noqa: BLE001 (it is raised in the thread that reads)
            self._put("error", error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _put(self, kind: str, item: Any) -> bool:
        while not self._ended.is_set():
            try:
                self._queue.put((kind, item), timeout=_PATIENCE)
            except queue.Full:
                continue
            return True
        return False
