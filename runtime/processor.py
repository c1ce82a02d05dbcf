"""The processor of this machine: its name, how much of it this process may use, what units it has."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


@functools.cache
def processor() -> str:
    """The processor's name."""
    return _field("model name") or platform.processor() or platform.machine()


@functools.cache
def features() -> frozenset[str] | None:
    """What the processor has beyond its first generation, as Linux names it: `amx_bf16`; `None` where nothing tells."""
    listed = _field("flags") or _field("Features")
    return None if listed is None else frozenset(listed.split())


def processors() -> int:
    """How many processors this process may use, by which onnxruntime chooses its threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _field(name: str) -> str | None:
    """What Linux tells of the first processor under a name."""
    if not _CPUINFO.is_file():
        return None
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    return next(
        (value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == name), None
    )
