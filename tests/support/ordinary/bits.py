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
    for source, target in (("float16", "int16"), ("float32", "int32"), ("float32", "uint32"), ("float64", "int64")):
        info, drawn = np.finfo(source), np.random.default_rng(0).standard_normal(40)
        edges = [0, info.tiny, info.smallest_subnormal, info.tiny * 0.75, info.max, 1, 2, 1 - info.epsneg, 1 + info.eps]
        powers = 2.0 ** np.arange(info.minexp, info.maxexp, 3 if source != "float64" else 41)
        x = np.concatenate([edges, drawn, drawn * info.tiny, powers, powers * (2 - info.eps), [np.inf]]).astype(source)
        x = np.concatenate([x, -x, np.abs([np.nan])]).astype(source)
        yield Case("Bitcast", text(source, target), {"input": x}, {"type": int(DTYPES[target])})
    yield Case("Bitcast", "empty", {"input": np.zeros((0, 2), np.int64)}, {"type": int(DTYPES["uint64"])})
