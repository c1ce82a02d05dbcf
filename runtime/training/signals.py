"""Interruptions that wait for the end of a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

# Signals that ask a process to end: Ctrl-C, a machine that shuts down, a terminal that is closed.
ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def is_hangup(number: int | None) -> bool:
    """Whether a signal says that the terminal was closed."""
    return number is not None and number == getattr(signal, "SIGHUP", None)


@contextlib.contextmanager
def collected(numbers: Sequence[signal.Signals]) -> Iterator[list[int]]:
    """Collects the first of some signals, so that a step can end; the next one does what it did before.

    Python hands signals to its main thread only; in another one nothing is collected. A hangup that is ignored, as
    `nohup` has it, stays so.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in numbers}
    before = {
        number: handler for number, handler in before.items() if handler != signal.SIG_IGN or not is_hangup(number)
    }

    def stop(number: int, _: Any) -> None:
        caught.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
