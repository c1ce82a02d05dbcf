"""Lowering of Fourier transforms."""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, numbers, shape_of
from lstm_lower.passes.formulas.complex_numbers import of_parts, parts_of
from lstm_lower.passes.formulas.fourier import transformed
from lstm_lower.passes.formulas.sizes import Size, entries, wide
from lstm_lower.passes.rules.complex_numbers import bind_other
from lstm_lower.passes.rules.registry import Node, lowers, rank_of


class Transform(RawOp, abstract=True, fft_length="K"):
    """A Fourier transform of the last axes.

    Attributes:
        axes: how many.
        inverse: whether it is the inverse one.
    """

    axes: ClassVar[int] = 1
    inverse: ClassVar[bool] = False

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are so many axes."""
        shape = shape_of(call, "input")
        if shape is not None and len(shape) < cls.axes:
            raise call.error("input", f"rank {cls.axes} or more", f"rank {len(shape)}")


class FFT(Transform):
    """Fourier transform of the last axis."""


class IFFT(Transform):
    """Inverse Fourier transform of the last axis."""

    inverse = True


class FFT2D(Transform):
    """Fourier transform of the last two axes."""

    axes = 2


class IFFT2D(FFT2D):
    """Inverse Fourier transform of the last two axes."""

    inverse = True


class FFT3D(Transform):
    """Fourier transform of the last three axes."""

    axes = 3


class IFFT3D(FFT3D):
    """Inverse Fourier transform of the last three axes."""

    inverse = True


@lowers(FFT, IFFT, FFT2D, IFFT2D, FFT3D, IFFT3D, repeatable=True)
def transform(n: Node, _: Builder) -> Expr:
    """Axis by axis."""
    x = parts_of(n.input)
    for axis in _axes(n):
        x = transformed(x, axis, inverse=n.op.inverse)
    return of_parts(x)


class RealTransform(Transform, abstract=True):
    """A Fourier transform of real numbers, or to real numbers."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """A length for each axis."""
        super().verify(call)
        bind_other(call, *(("Tcomplex", "Treal") if cls.inverse else ("Treal", "Tcomplex")))
        if call.sizes.get("K") not in (None, cls.axes) and isinstance(call.sizes["K"], int):
            raise call.error("fft_length", f"{cls.axes} lengths", f"{call.sizes['K']}")
        if min(numbers(call, "fft_length") or [1]) < 1:
            raise call.error("fft_length", "lengths of 1 or more", f"{numbers(call, 'fft_length')}")


class RFFT(RealTransform):
    """Fourier transform of real numbers along the last axis."""


class RFFT2D(RealTransform):
    """Fourier transform of real numbers along the last two axes."""

    axes = 2


class RFFT3D(RealTransform):
    """Fourier transform of real numbers along the last three axes."""

    axes = 3


@lowers(RFFT, RFFT2D, RFFT3D, repeatable=True)
def real_transform(n: Node, _: Builder) -> Expr:
    """Of real numbers along the last axis, then of complex ones along the others."""
    x, (*axes, last), lengths = n.input.unsqueeze(-1), _axes(n), _lengths(n)
    x = transformed(x, last, lengths[-1], onesided=True)
    for axis, length in zip(axes, lengths, strict=False):
        x = transformed(x, axis, length)
    return of_parts(x)


class _InverseRealTransform(RealTransform, abstract=True):
    """Takes half of the frequencies along the last axis, and returns real numbers."""

    inverse = True


class IRFFT(_InverseRealTransform):
    """Inverse Fourier transform to real numbers along the last axis."""


class IRFFT2D(_InverseRealTransform):
    """Inverse Fourier transform to real numbers along the last two axes."""

    axes = 2


class IRFFT3D(_InverseRealTransform):
    """Inverse Fourier transform to real numbers along the last three axes."""

    axes = 3


@lowers(IRFFT, IRFFT2D, IRFFT3D, repeatable=True)
def inverse_real_transform(n: Node, _: Builder) -> Expr:
    """The other axes first."""
    x, (*axes, last), lengths = parts_of(n.input), _axes(n), _lengths(n)
    for axis, length in zip(axes, lengths, strict=False):
        x = transformed(x, axis, length, inverse=True)
    return transformed(x, last, lengths[-1], inverse=True, onesided=True).squeeze(-1)


def _axes(n: Node) -> list[int]:
    rank = rank_of(n, "input", n.input)
    return list(range(rank - n.op.axes, rank))


def _lengths(n: Node) -> list[Size]:
    vector = wide(n.fft_length)
    return entries(vector) or [vector.slice(place, place + 1, axis=0) for place in range(n.op.axes)]
