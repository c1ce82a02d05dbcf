"""What a run's numbers depend on to the last bit, beside model, data, state and options."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import lstm_lower

_DENORMALS_AS_ZERO = "session.set_denormal_as_zero"


def arithmetic(session: ort.InferenceSession) -> dict[str, str]:
    """What a session's arithmetic depends on: versions, processor, threads, providers, what denormal numbers become."""
    options = session.get_session_options()
    zero = _entry(options, _DENORMALS_AS_ZERO) == "1" or not _keeps_denormals()
    return {
        "lstm-lower": lstm_lower.__version__,
        "onnxruntime": ort.__version__,
        "processor": processor(),
        "threads": str(options.intra_op_num_threads or _processors()),
        "providers": ", ".join(session.get_providers()),
        "denormal numbers": "zero" if zero else "kept",
    }


def differences(then: object, now: Mapping[str, str]) -> str:
    """What differs, in words; nothing where it is not known what there was.

    Args:
        then: what a checkpoint recorded, if it did.
        now: what there is.
    """
    known: Mapping[Any, Any] = then if isinstance(then, Mapping) else {}
    return ", ".join(
        f"{what} ({known[what]} then, {value} now)" for what, value in now.items() if known.get(what, value) != value
    )


@functools.cache
def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(": ")[2]
    return platform.processor() or platform.machine()


def _processors() -> int:
    """How many processors this process may use, by which onnxruntime chooses its threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _keeps_denormals() -> bool:
    """Whether the calling thread computes with denormal numbers: another library may have changed it."""
    return bool((np.array([1e-40], np.float32) * np.float32(1) > 0).all())


def _entry(options: ort.SessionOptions, name: str) -> str | None:
    try:
        return str(options.get_session_config_entry(name))
    except RuntimeError:
        return None
