"""Work of threads that a fork must not cut in two.

In the child of a fork only the thread that forked goes on. A module that another thread was importing stays locked
there for ever, and a setting of the process that another thread had changed for a while would stay changed.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Callable, Iterator

# Seconds that a fork waits for imports: longer than any takes, unless it needs what the forking thread holds.
_PATIENCE = 60.0

# Thread -> blocks of `uncut` that it is in.
_within: collections.Counter[int] = collections.Counter()
_changed = threading.Condition()


@contextlib.contextmanager
def uncut() -> Iterator[None]:
    """Lets forks of other threads wait until the block ends. Threads in such blocks do not wait for each other."""
    thread = threading.get_ident()
    with _changed:
        _within[thread] += 1
    try:
        yield
    finally:
        with _changed:
            _leave(_within, thread)
            _changed.notify_all()


class HeldSetting:
    """A setting of the process that is another one while at least one thread is within a `with` block of it."""

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        """Changes nothing yet.

        Args:
            change: makes the change, and returns what takes it back.
        """
        self._change = change
        self._restore: Callable[[], object] | None = None
        self._threads: collections.Counter[int] = collections.Counter()
        self._lock = threading.RLock()
        _at_forks(self._lock.acquire, self._lock.release, self._in_child)

    def __enter__(self) -> None:
        with self._lock:
            if self._restore is None:
                self._restore = self._change()
            self._threads[threading.get_ident()] += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            _leave(self._threads, threading.get_ident())
            self._restore_unless_held()

    def _in_child(self) -> None:
        _drop_others(self._threads)
        self._restore_unless_held()
        self._lock.release()

    def _restore_unless_held(self) -> None:
        if self._restore is not None and not self._threads:
            self._restore()
            self._restore = None


def _leave(threads: collections.Counter[int], thread: int) -> None:
    threads[thread] -= 1
    if threads[thread] <= 0:
        del threads[thread]


def _drop_others(threads: collections.Counter[int]) -> None:
    """Forgets the threads that a child has not."""
    for thread in set(threads) - {threading.get_ident()}:
        del threads[thread]


def _wait_for_others() -> None:
    _changed.acquire()
    _changed.wait_for(lambda: set(_within) <= {threading.get_ident()}, _PATIENCE)


def _go_on_in_child() -> None:
    _drop_others(_within)
    _changed.release()


def _at_forks(before: Callable[[], object], in_parent: Callable[[], object], in_child: Callable[[], object]) -> None:
    if hasattr(os, "register_at_fork"):  # Windows has no forks
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


_at_forks(_wait_for_others, _changed.release, _go_on_in_child)
