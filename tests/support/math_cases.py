"""Calls of the ops of losses, lookups and segments: the grid over which they are compared with TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.gradient_cases import DTYPES, SHAPES, Array, Case, Operands, normal, rng_of

RECORDING = Path(__file__).parents[1] / "data" / "tensorflow" / "math.npz"

INDEX = ("int32", "int64")


def _unary() -> Iterator[Case]:
    for shape, dtype in [*product(SHAPES, ["float32"]), *product([(3, 5)], DTYPES)]:
        what = f"{'x'.join(map(str, shape)) or 'scalar'}-{dtype}"
        rng = rng_of("unary", what)
        yield Case("L2Loss", what, {"t": normal(rng, shape, dtype)})
        yield Case("Log1p", what, {"x": np.asarray(np.abs(normal(rng, shape, dtype)))})
        yield Case("Expm1", what, {"x": normal(rng, shape, dtype)})
        yield Case("Inv", what, {"x": np.asarray(1 + np.abs(normal(rng, shape, dtype)))})
        yield Case("Snapshot", what, {"input": normal(rng, shape, dtype)})
        yield Case("Rank", what, {"input": normal(rng, shape, dtype)})
        if shape and 0 not in shape:
            yield Case("Diag", what, {"diagonal": normal(rng, shape[:2], dtype)})
    for dtype, powers in (("float16", 4), ("float32", 12), ("float64", 30)):
        small = np.array([0, *(sign * 10.0**-power for power in range(powers) for sign in (0.7, -0.7))], dtype)
        for value in small:
            yield Case("Log1p", f"{value}-{dtype}", {"x": np.array(value)})
            yield Case("Expm1", f"{value}-{dtype}", {"x": np.array(value)})
    edges = np.array([np.inf, -1, 3e38, 0, 5, 88, -0.9999], np.float32)
    yield Case("Log1p", "edges", {"x": edges})
    yield Case("Expm1", "edges", {"x": np.array([np.inf, -np.inf, 0, -100], np.float32)})
    yield Case("Rank", "int64", {"input": np.zeros((2, 1), np.int64)})


def _binary() -> Iterator[Case]:
    shapes = [((3, 4), (3, 4)), ((3, 4), (4,)), ((1, 4), (3, 1)), ((), (2, 3)), ((2, 0), (1, 1))]
    for (first, second), dtype in [*product(shapes, ["float32"]), *product(shapes[:1], DTYPES)]:
        what = f"{'x'.join(map(str, first))}-{'x'.join(map(str, second))}-{dtype}"
        rng = rng_of("binary", what)
        x, y = normal(rng, first, dtype), normal(rng, second, dtype)
        x = np.where(rng.random(first) < 0.3, 0, x).astype(dtype)
        for op in ("Xdivy", "Xlogy", "Xlog1py"):
            yield Case(op, what, {"x": x, "y": np.abs(y) + np.asarray(0.1, dtype)})
        yield Case("MulNoNan", what, {"x": normal(rng, first, dtype), "y": np.maximum(y, 0)})
        # TensorFlow has no kernels of the remainders in float16.
        for op in ("TruncateMod", "Mod", "FloorMod", "FloorDiv") if dtype != "float16" else ("FloorDiv",):
            yield Case(
                op,
                what,
                {"x": np.asarray(10 * normal(rng, first, dtype)), "y": y + np.sign(y) * np.asarray(0.5, dtype)},
            )
    for dtype in INDEX:
        x, y = (part.ravel() for part in np.meshgrid(np.arange(-7, 8, dtype=dtype), np.array([-3, -1, 2, 7], dtype)))
        for op in ("TruncateMod", "Mod", "FloorMod", "FloorDiv"):
            yield Case(op, dtype, {"x": x, "y": y})
    zeros, wild = np.zeros(5, np.float32), np.array([0, np.inf, -np.inf, np.nan, -2], np.float32)
    for op in ("Xdivy", "Xlogy", "Xlog1py"):
        yield Case(op, "zero", {"x": zeros, "y": wild})
    yield Case("MulNoNan", "zero", {"x": wild, "y": zeros})


def _choices() -> Iterator[Case]:
    shapes = [((2, 3), (2, 3), (2, 3)), ((3,), (2, 3), ()), ((2, 1), (1, 3), (2, 3)), ((), (4,), (4,))]
    for (condition, first, second), dtype in [
        *product(shapes, ["float32"]),
        *product(shapes[:1], [*DTYPES, "int32", "int64", "bool"]),
    ]:
        what = f"{list(condition)}-{list(first)}-{list(second)}-{dtype}".replace(" ", "")
        rng = rng_of("choices", what)
        chosen = np.asarray(rng.random(condition) < 0.5)
        parts: Operands = {
            name: np.asarray(9 * normal(rng, shape)).astype(dtype) for name, shape in (("t", first), ("e", second))
        }
        yield Case("SelectV2", what, {"condition": chosen, **parts})
        if first == second:
            yield Case("Select", what, {"condition": chosen, "x": parts["t"], "y": parts["e"]})
    rows: Operands = {"x": np.ones((2, 3), np.float32), "y": np.zeros((2, 3), np.float32)}
    yield Case("Select", "rows", {"condition": np.array([False, True]), **rows})
    wild = np.array([np.nan, np.inf, 1, -np.inf], np.float32)
    seven = np.full(4, 7, np.float32)
    for what, chosen in (("wild", wild == 1), ("hidden", wild != 1)):
        yield Case("Select", what, {"condition": chosen, "x": seven, "y": wild})
        yield Case("SelectV2", what, {"condition": chosen, "t": seven, "e": wild})


def _segments() -> Iterator[Case]:
    for (ids, rest), dtype, index in [
        *product([([0, 0, 1, 1, 1], (4,)), ([0, 2, 2], (2, 3)), ([1, 4, 4, 4], ()), ([], (2,))], ["float32"], INDEX),
        *product([([0, 0, 2], (3,))], DTYPES, ["int32"]),
    ]:
        what = f"{ids}-{list(rest)}-{dtype}-{index}".replace(" ", "")
        rng = rng_of("segments", what)
        numbers, rows = np.array(ids, index), normal(rng, (len(ids), *rest), dtype)
        for op in ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"):
            yield Case(op, what, {"data": rows, "segment_ids": numbers})
        yield from _sparse(what, numbers, rest, dtype, index)
    whole = np.array([[3, -1], [2, 5], [-4, 7]], np.int32)
    for op in ("SegmentSum", "SegmentProd", "SegmentMax", "SegmentMin"):
        yield Case(op, "integers", {"data": whole, "segment_ids": np.array([0, 2, 2], np.int32)})


def _sparse(what: str, ids: Array, rest: tuple[int, ...], dtype: str, index: str) -> Iterator[Case]:
    rng = rng_of("sparse", what)
    table, picks = normal(rng, (6, *rest), dtype), rng.integers(0, 6, len(ids)).astype(index)
    segments = int(ids.max(initial=-1)) + 1
    for name in ("Sum", "Mean", "SqrtN"):
        operands: Operands = {"data": table, "indices": picks, "segment_ids": ids}
        yield Case(f"SparseSegment{name}", what, operands)
        counted = np.array(segments + 2, np.int32)
        yield Case(f"SparseSegment{name}WithNumSegments", what, {**operands, "num_segments": counted})
        values = normal(rng_of("rows", what, name), (segments, *rest), dtype)
        read: Operands = {"indices": picks, "segment_ids": ids, "dense_output_dim0": np.array(6, np.int32)}
        yield Case(f"SparseSegment{name}GradV2", what, {"grad": values, **read})
        if not len(ids):
            continue  # TensorFlow's kernels leave a gradient of no rows uninitialised.
        gradient = normal(rng, (segments, *rest), dtype)
        chosen: Operands = {"indices": picks, "segment_ids": ids, "output_dim0": np.array(6, np.int32)}
        yield Case(f"SparseSegment{name}Grad", what, {"grad": gradient, **chosen})


def _unsorted() -> Iterator[Case]:
    for (ids, segments, rest), index, dtype in [
        *product(
            [([0, 2, 1, 0, 2], 3, (4,)), ([0, -1, 1, 1], 4, ()), ([[0, 1], [1, 4]], 6, (2, 3)), ([], 2, (3,))],
            INDEX,
            ["float32"],
        ),
        *product([([2, 0, 2], 4, (2,))], ["int32"], [*DTYPES, "int32", "int64"]),
    ]:
        numbers = np.array(ids, index)
        what = f"{list(numbers.shape)}-{segments}-{list(rest)}-{index}-{dtype}".replace(" ", "")
        rows = (5 * normal(rng_of("unsorted", what), (*numbers.shape, *rest))).astype(dtype)
        operands: Operands = {"data": rows, "segment_ids": numbers, "num_segments": np.array(segments, np.int32)}
        for op in ("UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"):
            yield Case(op, what, operands)


def _scatters() -> Iterator[Case]:
    for (places, shape), index, dtype in [
        *product(
            [
                ([[0], [2], [0]], (4, 3)),
                ([[1, 2], [0, 0], [1, 2], [1, 2]], (2, 3)),
                ([[[0], [1]], [[1], [1]]], (2, 2)),
                ([[1, 0]], (2, 3, 2)),
                ([[0]], (1,)),
            ],
            INDEX,
            ["float32"],
        ),
        *product([([[0], [0]], (2, 2))], ["int32"], [*DTYPES, "int32", "int64", "bool"]),
    ]:
        indices = np.array(places, index)
        what = f"{list(indices.shape)}-{list(shape)}-{index}-{dtype}".replace(" ", "")
        updates = 3 * normal(rng_of("scatter", what), (*indices.shape[:-1], *shape[indices.shape[-1] :]))
        operands: Operands = {"indices": indices, "updates": updates.astype(dtype), "shape": np.array(shape, index)}
        if dtype == "bool":
            operands["updates"] = updates > 0
        yield Case("ScatterNd", what, operands)
    empty: Operands = {"indices": np.zeros((0, 1), np.int32), "updates": np.zeros((0, 2), np.float32)}
    yield Case("ScatterNd", "empty", {**empty, "shape": np.array([3, 2], np.int32)})


def _arrays() -> Iterator[Case]:
    for shape, axes, keep in product([(3, 4, 2)], [[0], [1, 2], [-1], [], [0, 1, 2]], [False, True]):
        what = f"{axes}-{keep}".replace(" ", "")
        operands: Operands = {"input": normal(rng_of(what), shape), "axis": np.array(axes, np.int32)}
        yield Case("EuclideanNorm", what, operands, {"keep_dims": keep}, ("axis",))
    for count, dtype in [*product([1, 2, 5, 100], ["float32"]), (7, "float64")]:
        ends = {"start": np.array(-1.25, dtype), "stop": np.array(3.1, dtype)}
        yield Case("LinSpace", f"{count}-{dtype}", {**ends, "num": np.array(count, np.int32)})
    for shape, chosen in [((4,), [True]), ((2, 3), [False, True]), ((2, 3), [True, True]), ((2, 3), [False, False])]:
        tensor = normal(rng_of("reverse"), shape)
        yield Case(
            "Reverse",
            f"{len(shape)}-{chosen}".replace(" ", ""),
            {"tensor": tensor, "dims": np.array(chosen)},
            {},
            ("dims",),
        )
    for shape in ((3,), (2, 3), (1, 2, 2)):
        yield Case("DiagPart", f"{len(shape)}", {"input": normal(rng_of("diag", shape), shape * 2)})
    yield Case("Diag", "int32", {"diagonal": np.arange(6, dtype=np.int32).reshape(2, 3)})
    scores = np.round(2 * normal(rng_of("top"), (6, 5)))
    scores[4, 1], scores[5, 2] = np.nan, np.inf
    for count, index in product([1, 2, 5], INDEX):
        targets = np.array([0, 4, 2, 1, 1, 2], index)
        yield Case("InTopK", f"{count}-{index}", {"predictions": scores, "targets": targets}, {"k": count})
        two: Operands = {"predictions": scores, "targets": targets, "k": np.array(count, index)}
        yield Case("InTopKV2", f"{count}-{index}", two)
    for dtype, (shape, axis), out in product(
        ["float32", "int32", "int64"], [((9,), []), ((9,), [0]), ((8, 2), [0]), ((2, 7), [1]), ((2, 7), [-1])], [6, 7]
    ):
        what = f"{list(shape)}-{axis}-{dtype}-{out}".replace(" ", "")
        values = rng_of("unique", what).integers(0, 3, shape).astype(dtype)
        operands = {"x": values, "axis": np.array(axis, np.int64)}
        yield Case("UniqueV2", what, operands, {"out_idx": out}, ("axis",))


def _sums() -> Iterator[Case]:
    for (shape, axis), exclusive, reverse in product(
        [((5,), 0), ((2, 4), 1), ((3, 2, 2), -3), ((1, 1), 0)], [False, True], [False, True]
    ):
        flags = {"exclusive": exclusive, "reverse": reverse}
        x = 20 * normal(rng_of("sums", shape, axis), shape)
        operands: Operands = {"x": x, "axis": np.array(axis, np.int32)}
        what = f"{list(shape)}-{axis}-{exclusive}-{reverse}".replace(" ", "")
        yield Case("CumulativeLogsumexp", what, operands, flags, ("axis",))
    for dtype in ("float16", "float64"):
        operands = {"x": normal(rng_of("sums", dtype), (4,), dtype), "axis": np.array(0, np.int32)}
        yield Case("CumulativeLogsumexp", dtype, operands, {"exclusive": False}, ("axis",))


@cache
def cases() -> tuple[Case, ...]:
    """All cases."""
    families = (_unary, _binary, _choices, _segments, _unsorted, _scatters, _arrays, _sums)
    found = {case.id: case for family in families for case in family()}
    return tuple(found.values())


@cache
def recording() -> dict[str, dict[str, Array]]:
    """TensorFlow's results by case id and output name."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(RECORDING) as data:
        for key in data.files:
            if "/" in key:
                case, name = key.rsplit("/", 1)
                found.setdefault(case, {})[name] = data[key]
    return found
