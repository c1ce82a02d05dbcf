"""The memory that a run needs at its peak, as Linux counts a process's pages."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_memory(run: Callable[[], object]) -> int | None:
    """Bytes of resident memory that a run adds at its peak.

    The run is repeated twice and its results dropped, so that what stays (code, weights, feeds) is there. Then glibc's
    heap gives free pages back (`malloc_trim`), without which the figure depends on what it happens to keep; the
    kernel's high-water mark is put back (`5` into `/proc/self/clear_refs`), and after one more run the mark (`VmHWM`)
    is compared with the resident memory before it (`VmRSS`). Results count, feeds do not. What another allocator keeps
    between runs would be missing, so a run should give it back.

    Returns:
        Bytes; `None` where the system keeps no such mark.
    """
    for _ in range(2):
        run()
    _trim_heap()
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return None
    before = _field("VmRSS")
    result = run()
    peak = _field("VmHWM")
    del result
    return peak - before


def _trim_heap() -> None:
    """Gives the system what the C library's heap keeps; other C libraries have no such function, and keep less."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _field(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024
