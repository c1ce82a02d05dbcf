"""Arrays compared with what they should be: errors, and how large they may be."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_graphs

Array = np.ndarray[Any, Any]

# Relative and absolute tolerance by the coarsest floating dtype of the model: some units in the last place, since sums
# over time and batch round at every step, and about one unit for outputs that cancel to nothing.
TOLERANCES = {
    ir.DataType.DOUBLE: (1e-13, 2.3e-16),
    ir.DataType.FLOAT: (1e-5, 1.2e-7),
    ir.DataType.FLOAT16: (1e-2, 1e-3),
    ir.DataType.BFLOAT16: (8e-2, 8e-3),
}
_COARSENESS = [ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16]

# Verdicts: of an error beyond the tolerance that nothing explains; of an output without a finite number, in float64
# either, which proves nothing; of an error that is no larger than the original's own; of one that is no larger than
# what weights make of it that differ in their last place; of either where it is a single node's, which onnxruntime
# computes otherwise than the reference; of either where that is so large that nothing follows; and of all results that
# agree.
OUT_OF_TOLERANCE = "out of tolerance"
NOTHING_FINITE = "no finite number"
AS_NEAR = "as near as the original"
AS_MOVED = "as near as moved weights"
DISPUTED = "disputed"
NOT_DECIDED = "not decided"
AGREE = frozenset({"ok", AS_NEAR, AS_MOVED})

# What a comparison comes to, besides `NOT_DECIDED`.
PASSED, FAILED = "passed", "failed"

# An original that is farther from float64 than that decides nothing.
DECIDING = 1e-2

# What a provider may compute in, by its own name, and the dtype that is as coarse; tf32 has as many digits as a half.
_PRECISIONS = {
    "float32": ir.DataType.FLOAT,
    "tf32": ir.DataType.FLOAT16,
    "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16,
}


def overall(verdicts: Collection[str]) -> str:
    """The sum of verdicts: passed, not decided where nothing is wrong but something cannot be told, or failed."""
    wrong = set(verdicts) - AGREE
    return NOT_DECIDED if wrong == {NOT_DECIDED} else FAILED if wrong or not verdicts else PASSED


def coarsest_dtype(model: ir.Model) -> ir.DataType:
    """The coarsest floating dtype of any value that the graph comes with."""
    dtypes = {ir.DataType.DOUBLE}
    for graph in all_graphs(model):
        values = [*graph.inputs, *graph.initializers.values(), *graph.outputs]
        dtypes |= {value.dtype for value in values if value.dtype in _COARSENESS and value.dtype is not None}
        for node in graph:
            dtypes |= {value.dtype for value in node.outputs if value.dtype in _COARSENESS and value.dtype is not None}
    return max(dtypes, key=_COARSENESS.index)


def coarser(a: ir.DataType, b: ir.DataType) -> ir.DataType:
    """The coarser of two dtypes, of which the first is floating."""
    return max(a, b, key=_COARSENESS.index) if b in _COARSENESS else a


def tolerance(dtype: ir.DataType, precision: str | None = None) -> tuple[float, float]:
    """Relative and absolute tolerance of results.

    Args:
        dtype: the coarsest floating one of the model.
        precision: in which a provider computes, where one was asked for; what it does not know loses nothing.
    """
    dtypes = [dtype, *([_PRECISIONS[precision]] if precision in _PRECISIONS else [])]
    return TOLERANCES[max(dtypes, key=_COARSENESS.index)]


def shape_or_dtype_fault(actual: Array, expected: Array, dtype: ir.DataType | None) -> str | None:
    """The fault of an array before its numbers are looked at; `None` where nothing is."""
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)}, not {list(expected.shape)}"
    if dtype not in (None, ir.DataType.UNDEFINED) and actual.dtype != dtype.numpy():
        return f"dtype {actual.dtype}, not {dtype.numpy()}"
    return None


def allowed(expected: Array, rtol: float, atol: float) -> float:
    """The largest absolute error that is tolerated; none of numbers that are not floating."""
    if expected.dtype.kind not in "fc":
        return 0.0
    return rtol * magnitude(expected) + atol


def magnitude(array: Array) -> float:
    """The largest finite magnitude, 0 where there is none."""
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def errors(actual: Array, expected: Array) -> tuple[float, float]:
    """Largest absolute error, and the same over the largest magnitude expected.

    Infinities and NaN must be in the same places, otherwise the error is infinite. So it is when nothing finite is
    expected at all, since that proves nothing.
    """
    if expected.size == 0:
        return 0.0, 0.0
    if expected.dtype.kind not in "fc":
        wrong = float(np.count_nonzero(actual != expected))
        return wrong, wrong / expected.size
    wide = np.asarray(actual, np.float64)
    finite = np.isfinite(expected)
    special = np.array_equal(wide[~finite], expected[~finite], equal_nan=True)
    if not special or not finite.any() or not np.isfinite(wide[finite]).all():
        return float("inf"), float("inf")
    absolute = float(np.abs(wide[finite] - expected[finite]).max())
    return absolute, absolute / (magnitude(expected) or 1.0)


def moved_by_units(array: Array, rng: np.random.Generator) -> Array:
    """Each number moved by a unit in the last place, up or down; what is not floating stays."""
    if array.dtype.kind != "f":
        return array
    ends = np.where(rng.random(array.shape) < 1 / 2, -np.inf, np.inf).astype(array.dtype)
    return np.asarray(np.nextafter(array, ends))
