"""Arrays compared with what they should be: errors, and how large they may be."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
# either, which proves nothing; of an error that is not much larger than the original's own; of one no larger than
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

# How often numbers are moved by a unit in the last place, to see how far apart results are that are as good as each
# other, and how many times as far another rounding may be.
DRAWS, _TIMES = 2, 4

# How many elements are compared at once: what is computed of so many stays in a processor's cache.
_BLOCK = 1 << 16

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


def is_rounding(error: float, limit: float, *, own: float = 0.0, apart: float = 0.0) -> bool:
    """Whether rounding explains an error.

    Args:
        error: the largest one.
        limit: what needs no explanation.
        own: the original's own error.
        apart: how far results are apart that are as good as each other, of a few that were tried.
    """
    return error <= limit + own + _TIMES * apart


def magnitude(array: Array, start: Array | None = None) -> float:
    """The largest finite magnitude, or change since the start; 0 where there is none."""
    changes = (block if begun is None else _difference(block, begun) for block, begun in _blocks(array, start))
    return max(map(_largest_finite, changes), default=0.0)


def distance(actual: Array, expected: Array) -> float:
    """The largest absolute error; of what is not floating the number of elements that differ.

    Infinite where shapes differ, and where infinities and NaN are not in the same places.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind not in "fc":
        return float(np.count_nonzero(actual != expected))
    return max((_distance(*blocks) for blocks in _blocks(actual, expected)), default=0.0)


def errors(actual: Array, expected: Array) -> tuple[float, float]:
    """The distance, and the same over the largest magnitude expected, or as a share of all elements.

    The error is infinite, too, when nothing finite is expected at all, since that proves nothing.
    """
    absolute = distance(actual, expected)
    if expected.dtype.kind not in "fc":
        return absolute, absolute / max(expected.size, 1)
    if expected.size and not np.isfinite(expected).any():
        return float("inf"), float("inf")
    return absolute, absolute / (magnitude(expected) or 1.0)


def _blocks(first: Array, second: Array | None) -> Iterator[tuple[Array, Any]]:
    """Arrays of one shape piece by piece: what is computed of a whole one would take several times its memory."""
    # Where an array does not lie in one piece, this copies it.
    flat, other = first.reshape(-1), None if second is None else second.reshape(-1)
    for start in range(0, first.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        yield flat[block], None if other is None else other[block]


def _difference(first: Array, second: Array) -> Array:
    """Differences, in the wider of two dtypes: what that rounds is a tiny share of a difference."""
    with np.errstate(invalid="ignore", over="ignore"):
        return first - second


def _distance(actual: Array, expected: Array) -> float:
    """The largest difference; infinite where one is no number and the other another."""
    largest = _largest(_difference(actual, expected))
    if np.isfinite(largest):
        return largest
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    largest = _largest(np.asarray(actual[finite], np.float64) - expected[finite])
    return largest if np.isfinite(largest) else float("inf")


def _largest_finite(array: Array) -> float:
    largest = _largest(array)
    return largest if np.isfinite(largest) else _largest(array[np.isfinite(array)])


def _largest(array: Array) -> float:
    if array.dtype.kind == "f" and array.size:
        # Magnitudes of all elements would take as much memory as these.
        return float(max(array.max(), -array.min()))
    return float(np.abs(array).max()) if array.size else 0.0


def moved_by_units(array: Array, rng: np.random.Generator) -> Array:
    """Each number moved by a unit in the last place, up or down; what is not floating stays."""
    if array.dtype.kind != "f":
        return array
    ends = np.where(rng.random(array.shape) < 1 / 2, -np.inf, np.inf).astype(array.dtype)
    return np.asarray(np.nextafter(array, ends))
