"""What TensorFlow computes on this machine, against what it computed where results were recorded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lstm_lower.dtypes import parts_of


def assert_recorded(value: npt.NDArray[np.generic], kept: npt.NDArray[np.generic], tolerance: float, what: str) -> None:
    """Equal to a tolerance, relative to each element and to the largest; of halves that many digits as sums have.

    Processors add up in other orders, and where they can, halves in halves.
    """
    if value.dtype.kind == "c":
        value, kept = parts_of(value), parts_of(kept)
    found, wanted = value.astype(np.float64), kept.astype(np.float64)
    halves = value.dtype in (np.float16, ml_dtypes.bfloat16)
    digits = max(4e-3, float(ml_dtypes.finfo(value.dtype).eps)) if halves else tolerance
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3 if halves else 1.0)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=digits * largest, err_msg=what)
