"""Cases of complex numbers: their parts, their Fourier transforms, and what other ops make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from lstm_lower.dtypes import DTYPES
from lstm_lower.ops.raw import COMPLEX
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import Case, draw, text

PART = {"complex64": "float32", "complex128": "float64"}


def numbers(shape: tuple[int, ...], dtype: str, *key: object) -> Array:
    """Complex numbers, the same ones for the same key."""
    part = PART[dtype]
    return np.asarray(draw(shape, part, "real", *key) + 1j * draw(shape, part, "imaginary", *key)).astype(dtype)


def cases() -> Iterator[Case]:
    yield from _parts()
    yield from _transforms()
    yield from _others()


def _parts() -> Iterator[Case]:
    for dtype, shape in product(COMPLEX, ((), (0, 2), (2, 3))):
        x, what = numbers(shape, dtype), text(shape, dtype)
        yield Case("Conj", what, {"input": x})
        to = {"Tout": int(DTYPES[PART[dtype]])}
        for op in ("Real", "Imag", "Angle"):
            yield Case(op, what, {"input": x}, to)
        yield Case("ComplexAbs", what, {"x": x}, to)
        operands = {"real": x.real, "imag": draw(shape[1:], PART[dtype])}
        yield Case("Complex", what, operands, {"Tout": int(DTYPES[dtype])})
    corners = np.array([[3e19, 4e19], [3e-23, 4e-23], [0, 0], [-2, 0], [0, -2]], np.float32)
    x = np.ascontiguousarray(corners).view(np.complex64)
    yield Case("ComplexAbs", "corners", {"x": x}, relative=True)
    yield Case("Angle", "corners", {"input": x}, relative=True)


def _transforms() -> Iterator[Case]:
    for dtype, count in product(COMPLEX, (1, 2, 3)):
        suffix = f"{count}D" if count > 1 else ""
        shape = (2, 5, 4, 6)[4 - count - (count < 3) :]
        x = numbers(shape, dtype)
        for op in ("FFT", "IFFT"):
            yield Case(f"{op}{suffix}", text(shape, dtype), {"input": x}, since=17)
        same, more, less = ([size + change for size in shape[-count:]] for change in (0, 3, -1))
        for lengths in (same, more, less):
            length = np.array(lengths, np.int32)
            what = text(shape, tuple(lengths), dtype)
            to, back = {"Tcomplex": int(DTYPES[dtype])}, {"Treal": int(DTYPES[PART[dtype]])}
            steering: dict[str, Any] = {"steering": ("fft_length",), "since": 17}
            # TensorFlow fills up in front of its op.
            filled = lengths is not more
            yield Case(f"RFFT{suffix}", what, {"input": x.real, "fft_length": length}, to, taken=filled, **steering)
            half = numbers((*shape[:-1], lengths[-1] // 2 + 1), dtype)
            filled |= count == 1
            yield Case(f"IRFFT{suffix}", what, {"input": half, "fft_length": length}, back, taken=filled, **steering)
    # A table, the runtime's own transform and a convolution.
    for size in (1, 2, 100, 1024, 1500, 2048):
        x, length = numbers((1, size), "complex64"), np.array([size], np.int32)
        yield Case("FFT", text("long", size), {"input": x}, since=17)
        operands = {"input": x.real, "fft_length": length}
        yield Case("RFFT", text("long", size), operands, steering=("fft_length",), since=17)
        operands = {"input": x[:, : size // 2 + 1], "fft_length": length}
        yield Case("IRFFT", text("long", size), operands, steering=("fft_length",), since=17)


def _others() -> Iterator[Case]:
    for dtype in COMPLEX:
        x, y = numbers((2, 3), dtype), numbers((3,), dtype, "other")
        for op in ("Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "DivNoNan", "SquaredDifference"):
            yield Case(op, dtype, {"x": x, "y": y})
        yield Case("DivNoNan", f"{dtype}-by-0", {"x": x, "y": np.zeros_like(y)})
        for op in ("Neg", "Square", "Reciprocal", "Exp"):
            yield Case(op, dtype, {"x": x})
        for op in ("Equal", "NotEqual"):
            yield Case(op, dtype, {"x": x, "y": x.real.astype(dtype)})
        for op in ("Sum", "Mean"):
            yield Case(op, dtype, {"input": x, "axis": np.array([0], np.int32)}, constants=("axis",))
        yield Case("Cumsum", dtype, {"x": x, "axis": np.array(1, np.int32)}, {"reverse": True}, constants=("axis",))
        yield Case("AddN", dtype, {"inputs": [x, x, -x]})
        square = numbers((3, 3), dtype)
        yield Case("MatMul", dtype, {"a": x, "b": square}, {"transpose_b": True})
        yield Case("BatchMatMulV2", dtype, {"x": numbers((2, 3, 2), dtype), "y": square}, {"adj_x": True})
        yield Case("Einsum", dtype, {"inputs": [x, square]}, {"equation": "ij,jk->ki"})
        for target in (*COMPLEX, "float32"):
            yield Case("Cast", text(dtype, target), {"x": x}, {"DstT": int(DTYPES[target])})
        yield Case("Cast", text("float32", dtype), {"x": x.real.astype(np.float32)}, {"DstT": int(DTYPES[dtype])})
        yield from _moves(dtype, x)


def _moves(dtype: str, x: Array) -> Iterator[Case]:
    def ints(*entries: int) -> Array:
        return np.array(entries, np.int32)

    order, rows = {"perm": ints(1, 0)}, ints(1, 0, 1)
    yield Case("Transpose", dtype, {"x": x, **order}, constants=("perm",))
    yield Case("ConjugateTranspose", dtype, {"x": x, **order}, constants=("perm",))
    yield Case("Reshape", dtype, {"tensor": x, "shape": ints(-1, 2)}, steering=("shape",))
    yield Case("ExpandDims", dtype, {"input": x, "axis": np.array(-1, np.int32)}, constants=("axis",))
    yield Case("Squeeze", dtype, {"input": x[:, :1]}, {"axis": [-1]})
    yield Case("Tile", dtype, {"input": x, "multiples": ints(2, 3)}, steering=("multiples",))
    yield Case("Pad", dtype, {"input": x, "paddings": np.array([[1, 0], [0, 2]], np.int32)}, steering=("paddings",))
    mirrored: Mapping[str, Any] = {"mode": "REFLECT"}
    paddings = {"paddings": np.array([[1, 0], [0, 2]], np.int32)}
    yield Case("MirrorPad", dtype, {"input": x, **paddings}, mirrored, constants=("paddings",))
    yield Case("ReverseV2", dtype, {"tensor": x, "axis": ints(1)}, constants=("axis",))
    yield Case("Roll", dtype, {"input": x, "shift": ints(1), "axis": ints(1)}, constants=("shift", "axis"))
    yield Case("ConcatV2", dtype, {"values": [x, x], "axis": np.array(-1, np.int32)}, constants=("axis",))
    yield Case("Pack", dtype, {"values": [x, -x]}, {"axis": -1})
    yield Case("Unpack", dtype, {"value": x}, {"num": 3, "axis": -1})
    yield Case("Split", dtype, {"axis": np.array(-1, np.int32), "value": x}, {"num_split": 3}, constants=("axis",))
    yield Case("GatherV2", dtype, {"params": x, "indices": rows, "axis": np.array(0, np.int32)}, constants=("axis",))
    yield Case("GatherNd", dtype, {"params": x, "indices": np.array([[1, 2], [0, 0]], np.int32)}, steering=("indices",))
    bounds = {"begin": ints(0, 1), "size": ints(2, -1)}
    yield Case("Slice", dtype, {"input": x, **bounds}, constants=("begin", "size"))
    strided = {"begin": ints(0, 2), "end": ints(2, 0), "strides": ints(1, -1)}
    yield Case("StridedSlice", dtype, {"input": x, **strided}, constants=("begin", "end", "strides"))
    yield Case("Fill", dtype, {"dims": ints(2, 2), "value": x[0, 0]}, constants=("dims",))
    yield Case("BroadcastTo", dtype, {"input": x, "shape": ints(2, 2, 3)}, constants=("shape",))
    for op in ("ZerosLike", "OnesLike"):
        yield Case(op, dtype, {"x": x})
    yield Case("Identity", dtype, {"input": x})
