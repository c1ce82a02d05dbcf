"""Oracle of the op on bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.dtypes import DType
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("Bitcast")
def bitcast(*, input: npt.ArrayLike, type: int) -> dict[str, npt.NDArray[Any]]:
    """The same memory, of another dtype."""
    return {"output": np.asarray(input).view(DType(type).numpy())}
