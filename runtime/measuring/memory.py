"""The memory that a run needs at its peak, as Linux counts a process's pages."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path

# Of mallopt: blocks at least that large are mapped for themselves. Set once, glibc no longer moves the limit.
_MMAP_THRESHOLD = -3
_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_memory(run: Callable[[], object]) -> int | None:
    """Bytes of resident memory that a run adds at its peak.

    The run is repeated twice and its results dropped, so that what stays (code, weights, feeds) is there. glibc's heap
    would count freed memory that it happens to keep, so it is told to give blocks of a megabyte and more back at once
    (`mallopt`), and before the last run all it holds (`malloc_trim`). Then the kernel's high-water mark is put back
    (`5` into `/proc/self/clear_refs`), and after one more run the mark (`VmHWM`) is compared with the resident memory
    before it (`VmRSS`). Results count, feeds do not. What another allocator keeps between runs would be missing, so a
    run should give it back.

    Returns:
        Bytes; `None` where the system keeps no such mark.
    """
    _c_library("mallopt", _MMAP_THRESHOLD, 1 << 20)
    for _ in range(2):
        run()
    _c_library("malloc_trim", 0)
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return None
    before = _field("VmRSS")
    result = run()
    peak = _field("VmHWM")
    del result
    return peak - before


def _c_library(function: str, *numbers: int) -> None:
    """Calls a function of glibc's heap; other C libraries have no such function, and keep less."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        getattr(ctypes.CDLL(None), function)(*numbers)


def _field(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024
