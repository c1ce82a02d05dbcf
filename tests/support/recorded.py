"""What TensorFlow computes on this machine, against what it computed where results were recorded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt


def assert_recorded(value: npt.NDArray[np.generic], kept: npt.NDArray[np.generic], tolerance: float, what: str) -> None:
    """Equal to a tolerance, relative and absolute; of halves that many digits as sums in halves have.

    Where the processor can, TensorFlow adds halves up in halves.
    """
    found, wanted = value.astype(np.float64), kept.astype(np.float64)
    absolute = tolerance
    if value.dtype in (np.float16, ml_dtypes.bfloat16):
        digits = max(4e-3, float(ml_dtypes.finfo(value.dtype).eps))
        absolute = digits * np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=absolute, err_msg=what)
