"""Lowering of Fourier transforms."""

from __future__ import annotations

from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.fourier import (
    FFT,
    FFT2D,
    FFT3D,
    IFFT,
    IFFT2D,
    IFFT3D,
    IRFFT,
    IRFFT2D,
    IRFFT3D,
    RFFT,
    RFFT2D,
    RFFT3D,
)
from lstm_lower.passes.formulas.complex_numbers import of_parts, parts_of
from lstm_lower.passes.formulas.fourier import transformed
from lstm_lower.passes.formulas.sizes import Size, entries, wide
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(FFT, IFFT, FFT2D, IFFT2D, FFT3D, IFFT3D, repeatable=True)
def transform(n: Node) -> dict[str, Expr]:
    """Axis by axis."""
    x = parts_of(n.input)
    for axis in _axes(n):
        x = transformed(x, axis, inverse=n.op.inverse)
    return {"output": of_parts(x)}


@lowers(RFFT, RFFT2D, RFFT3D, repeatable=True)
def real_transform(n: Node) -> dict[str, Expr]:
    """Of real numbers along the last axis, then of complex ones along the others."""
    x, (*axes, last), lengths = n.input.unsqueeze(-1), _axes(n), _lengths(n)
    x = transformed(x, last, lengths[-1], onesided=True)
    for axis, length in zip(axes, lengths, strict=False):
        x = transformed(x, axis, length)
    return {"output": of_parts(x)}


@lowers(IRFFT, IRFFT2D, IRFFT3D, repeatable=True)
def inverse_real_transform(n: Node) -> dict[str, Expr]:
    """The other axes first."""
    x, (*axes, last), lengths = parts_of(n.input), _axes(n), _lengths(n)
    for axis, length in zip(axes, lengths, strict=False):
        x = transformed(x, axis, length, inverse=True)
    return {"output": transformed(x, last, lengths[-1], inverse=True, onesided=True).squeeze(-1)}


def _axes(n: Node) -> list[int]:
    if n.builder.opset < 17:
        raise n.unsupported("the model", "opset 17 or newer, where ONNX has it", f"opset {n.builder.opset}")
    if n.input.shape is None:
        raise n.unsupported("input", "a known rank", "an unknown one")
    rank = len(n.input.shape)
    return list(range(rank - n.op.axes, rank))


def _lengths(n: Node) -> list[Size]:
    vector = wide(n.fft_length)
    return entries(vector) or [vector.slice(place, place + 1, axis=0) for place in range(n.op.axes)]
