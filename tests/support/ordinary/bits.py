"""Cases of the op on bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lstm_lower.dtypes import DTYPES
from lstm_lower.ops.raw import INTEGERS
from tests.support.ordinary.case import Case, text


def cases() -> Iterator[Case]:
    for source in INTEGERS:
        limits = np.iinfo(source)
        x = np.array([[limits.min, limits.max, 0], [1, limits.max // 2, limits.max // 2 + 1]], source)
        for target in INTEGERS:
            if np.dtype(source).itemsize == np.dtype(target).itemsize:
                unranked = source == "int64"
                yield Case(
                    "Bitcast", text(source, target), {"input": x}, {"type": int(DTYPES[target])}, unranked=unranked
                )
    yield Case("Bitcast", "empty", {"input": np.zeros((0, 2), np.int64)}, {"type": int(DTYPES["uint64"])})
