"""Definitions of TensorFlow's Fourier transforms.

Signatures: TensorFlow's raw ops of the same names. Those of real numbers have half of the frequencies along their last
axis; what is longer than `fft_length` is cut, what is shorter has zeros behind.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call
from lstm_lower.ops.ordinary.complex_numbers import bind_other
from lstm_lower.ops.raw import RawOp, numbers, shape_of


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


class _InverseRealTransform(RealTransform, abstract=True):
    """Takes half of the frequencies along the last axis, and returns real numbers."""

    inverse = True


class RFFT(RealTransform):
    """Fourier transform of real numbers along the last axis."""


class IRFFT(_InverseRealTransform):
    """Inverse Fourier transform to real numbers along the last axis."""


class RFFT2D(RealTransform):
    """Fourier transform of real numbers along the last two axes."""

    axes = 2


class IRFFT2D(_InverseRealTransform):
    """Inverse Fourier transform to real numbers along the last two axes."""

    axes = 2


class RFFT3D(RealTransform):
    """Fourier transform of real numbers along the last three axes."""

    axes = 3


class IRFFT3D(_InverseRealTransform):
    """Inverse Fourier transform to real numbers along the last three axes."""

    axes = 3
