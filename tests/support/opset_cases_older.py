"""Cases of forms that ended before opset 13, as onnxruntime runs them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.opset_case import Array, Case, f32, i64

_X = f32(2, 3, 4)
_IMAGE = f32(1, 2, 4, 5)
_POSITIVE = [np.abs(f32(3)) + np.float32(0.5) for _ in range(4)]
# What changed again behind 13.
_LATER = ("BatchNormalization", "Split")


def older() -> list[Case]:
    """All of them."""
    found = [*_axes(), *_bounds(), *_samplings(), *_layers(), *_unchanged()]
    return [
        Case(*case, runtimes="o", only=(13, 21) if case[0] in _LATER else (13,), tolerance=1e-6, **more)
        for case, more in found
    ]


_Made = Iterator[tuple[tuple[str, int, tuple[Array | None, ...], dict[str, Any]], dict[str, Any]]]


def _axes() -> _Made:
    """Axes and sizes that were attributes, and all axes from one on that were one."""
    for opset in (7, 12):
        for axes, keepdims in itertools.product(([0], [2, 1], [-1], [], None), (0, 1)):
            given = {} if axes is None else {"axes": axes}
            yield ("ReduceSum", opset, (_X,), {"keepdims": keepdims, **given}), {"label": f"{axes}-{keepdims}"}
        for axes in ([0], [1, 3], [-1]):
            yield ("Unsqueeze", opset, (_X,), {"axes": axes}), {"label": f"{axes}"}
        for axes in ([0], [0, 3], [-1], [], None):
            given = {} if axes is None else {"axes": axes}
            forms = ("static", "open", "nested") if axes else ("static", "nested")
            yield ("Squeeze", opset, (f32(1, 2, 3, 1),), given), {"label": f"{axes}", "forms": forms}
        for axis, split in ((0, [1, 1]), (1, [1, 0, 2]), (-1, [3, 1]), (2, None)):
            given = {"axis": axis} if split is None else {"axis": axis, "split": split}
            parts = 2 if split is None else len(split)
            yield ("Split", opset, (_X,), given), {"outputs": parts, "label": f"{axis}-{split}"}
        for op, axis in itertools.product(("Softmax", "LogSoftmax", "Hardmax"), (0, 1, 2, -1, -2, None)):
            yield (op, opset, (_X,), {} if axis is None else {"axis": axis}), {"label": f"{axis}"}


def _bounds() -> _Made:
    """Bounds, widths and counts that were attributes."""
    last = np.iinfo(np.int64).max
    for starts, ends, axes in (
        ([0, 1], [1, 3], None),
        ([1], [-1], [2]),
        ([-3, 0], [last, -1], [-1, 0]),
        ([2], [1], [1]),
        ([-100], [100], [1]),
        ([1, 1, 1], [2, 2, 2], [2, 0, 1]),
    ):
        given = {"starts": starts, "ends": ends, **({} if axes is None else {"axes": axes})}
        for opset, x in ((7, _X), (9, _X.astype(np.float64))):
            yield ("Slice", opset, (x,), given), {"label": f"{starts}-{ends}-{axes}"}
    for mode, pads, value in (
        ("constant", [0, 1, 2, 1, 0, 3], None),
        ("constant", [0, 1, 2, 1, 0, 3], -1.5),
        ("constant", [0, -1, 0, 0, 1, -2], 0.5),
        ("reflect", [0, 1, 2, 0, 2, 3], 0.5),
        ("edge", [1, 1, 2, 0, 2, 3], None),
        (None, [0, 0, 0, 0, 0, 0], 7.0),
    ):
        given = {
            "pads": pads,
            **({} if mode is None else {"mode": mode}),
            **({} if value is None else {"value": value}),
        }
        for opset, dtype in ((7, np.float32), (10, np.float64)):
            yield ("Pad", opset, (_X.astype(dtype),), given), {"label": f"{mode}-{value}"}
    for opset, bounds in itertools.product((7, 10), ({}, {"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.5})):
        yield ("Clip", opset, (_X,), bounds), {"label": f"{bounds}"}
    for opset, axis, count in itertools.product((7, 9), (0, 1, -1, None), (1, 2)):
        given = {"k": count} if axis is None else {"k": count, "axis": axis}
        yield ("TopK", opset, (_X,), given), {"outputs": 2, "label": f"{axis}-{count}"}
    yield ("TopK", 10, (_X, i64([2])), {"axis": 1}), {"outputs": 2}
    for axis in (0, 1, -1):
        given = (_X, i64(np.zeros((1, 2, 3), np.int64)), f32(1, 2, 3))
        yield ("Scatter", 9, given, {"axis": axis}), {"label": f"{axis}"}


def _samplings() -> _Made:
    """Upsample, and the Resize that had no attributes for its places."""
    for mode, scales in itertools.product(("nearest", "linear", None), ([1, 1, 2, 3], [1, 1, 1.5, 1.3], [1, 1, 1, 1])):
        given = {} if mode is None else {"mode": mode}
        factors = np.asarray(scales, np.float32)
        yield ("Upsample", 7, (_IMAGE,), {**given, "scales": [float(x) for x in scales]}), {"label": f"{mode}-{scales}"}
        for constants in ((), (1,)):
            yield ("Upsample", 9, (_IMAGE, factors), given), {"constants": constants, "label": f"{mode}-{scales}"}
    for mode, scales in itertools.product(("nearest", "linear"), ([2, 3], [0.5, 0.4], [2, 0.5], [1.5, 1], [0.3, 1.7])):
        factors = np.asarray([1, 1, *scales], np.float32)
        for constants in ((), (1,)):
            yield (
                ("Resize", 10, (_IMAGE, factors), {"mode": mode}),
                {"constants": constants, "label": f"{mode}-{scales}"},
            )


def _layers() -> _Made:
    """Normalization, of each element for itself too, and the masks of Dropout."""
    for opset, axes in itertools.product((9, 12), (None, [1, 2])):
        given = {} if axes is None else {"axes": axes}
        yield ("MeanVarianceNormalization", opset, (_IMAGE,), given), {"label": f"{axes}"}
    for opset, outputs in itertools.product((7, 8, 9, 12), (1, 5)):
        yield (
            ("BatchNormalization", opset, (_X, *_POSITIVE), {"momentum": 0.75, "epsilon": 1e-3}),
            {"outputs": outputs, "label": f"{outputs}"},
        )
    for opset in (7, 8):
        of_each = [np.abs(f32(3, 4)) + np.float32(0.5) for _ in range(4)]
        yield ("BatchNormalization", opset, (_X, *of_each), {"spatial": 0}), {"label": "of each element"}
        yield ("BatchNormalization", opset, (_X, *_POSITIVE), {"spatial": 1}), {"label": "spatial"}
    for opset, outputs, ratio in itertools.product((7, 9, 10, 11), (1, 2), (None, 0.25)):
        given = {} if ratio is None else {"ratio": ratio}
        yield ("Dropout", opset, (_X,), given), {"outputs": outputs, "label": f"{ratio}-{outputs}"}


def _unchanged() -> _Made:
    """What only got more types and attributes with defaults that say what was before."""
    indices = i64([-1, 1])
    for opset in (7, 9):
        yield ("Gather", opset, (_X, indices), {"axis": 1}), {}
        yield ("MaxPool", opset, (_IMAGE,), {"kernel_shape": [2, 3], "strides": [1, 2], "auto_pad": "SAME_UPPER"}), {}
        yield ("AveragePool", opset, (_IMAGE,), {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}), {}
        yield ("Conv", opset, (_IMAGE, f32(3, 2, 2, 2)), {}), {}
        yield ("Gemm", opset, (f32(2, 3), f32(3, 4), f32(4)), {"beta": 0.5}), {}
        yield ("PRelu", opset, (_X, f32(4)), {}), {}
        yield ("Sum", opset, (_X, _X, _X), {}), {}
        yield ("Cast", opset, (_X,), {"to": 7}), {}
        yield ("ArgMax", opset, (_X,), {"axis": 1, "keepdims": 0}), {}
        yield ("DepthToSpace", opset, (f32(1, 8, 2, 2),), {"blocksize": 2}), {}
        yield ("Flatten", opset, (_X,), {"axis": 2}), {}
        yield ("Concat", opset, (_X, _X), {"axis": 1}), {}
    yield ("OneHot", 9, (indices, i64(3), np.asarray([0, 1], np.float32)), {}), {"constants": (1,)}
    yield ("DequantizeLinear", 10, (_X.astype(np.uint8), np.asarray(0.5, np.float32)), {}), {}
    yield ("Compress", 9, (_X, np.asarray([True, False, True])), {"axis": 1}), {}
    yield ("GatherND", 11, (_X, i64([[0, 1], [1, -1]])), {}), {}
