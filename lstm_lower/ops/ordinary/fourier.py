"""Definitions of TensorFlow's Fourier transforms.

Signatures: TensorFlow's raw ops of the same names. Those of real numbers have half of the frequencies along their last
axis; what is longer than `fft_length` is cut, what is shorter has zeros behind.
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import COMPLEX
from lstm_lower.ops.ordinary.bases import at, numbers, shape_of
from lstm_lower.ops.ordinary.complex_numbers import bind_other
from lstm_lower.ops.ordinary.kinds import PAIRED


class Transform(OpDef, abstract=True):
    """A Fourier transform of the last axes.

    Attributes:
        axes: how many.
        inverse: whether it is the inverse one.
    """

    axes: ClassVar[int] = 1
    inverse: ClassVar[bool] = False

    class Types:
        Tcomplex = COMPLEX

    class Inputs:
        input = operand("*S", "Tcomplex")

    class Outputs:
        output = operand("*S", "Tcomplex")

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

    class Types:
        Treal = PAIRED
        Tcomplex = COMPLEX

    class Inputs:
        input = operand(None, "Treal")
        fft_length = operand("K", "int32")

    class Outputs:
        output = operand(None, "Tcomplex")

    class Attrs:
        Tcomplex = attr(DType, DType.COMPLEX64, choices=(DType.COMPLEX64, DType.COMPLEX128))

    @classmethod
    def verify(cls, call: Call) -> None:
        """A length for each axis."""
        super().verify(call)
        bind_other(call, *(("Tcomplex", "Treal") if cls.inverse else ("Treal", "Tcomplex")))
        if call.sizes.get("K") not in (None, cls.axes) and isinstance(call.sizes["K"], int):
            raise call.error("fft_length", f"{cls.axes} lengths", f"{call.sizes['K']}")
        if min(numbers(call, "fft_length") or [1]) < 1:
            raise call.error("fft_length", "lengths of 1 or more", f"{numbers(call, 'fft_length')}")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The lengths, the last one half of it where frequencies come out."""
        shape, lengths = shape_of(call, "input"), numbers(call, "fft_length")
        dtype = call.types["Treal" if cls.inverse else "Tcomplex"]
        if shape is None:
            return [TensorInfo(dtype, None)]
        sizes: list[Dim] = [None] * cls.axes if lengths is None else list(lengths)
        if isinstance(sizes[-1], int) and not cls.inverse:
            sizes[-1] = sizes[-1] // 2 + 1
        for place, size in enumerate(sizes):
            shape = at(shape, len(shape) - cls.axes + place, size)
        return [TensorInfo(dtype, shape)]


class _InverseRealTransform(RealTransform, abstract=True):
    """Takes half of the frequencies along the last axis, and returns real numbers."""

    inverse = True

    class Inputs:
        input = operand(None, "Tcomplex")
        fft_length = operand("K", "int32")

    class Outputs:
        output = operand(None, "Treal")

    class Attrs:
        Treal = attr(DType, DType.FLOAT, choices=(DType.FLOAT, DType.DOUBLE))


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
