"""Float64 oracles of complex numbers, their parts and their Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, ints, oracles_by, wide
from lstm_lower.runtime.proof.oracles.registry import oracle

oracles_by({"Conj": np.conj})


@oracle("Complex")
def complex_(*, real: npt.ArrayLike, imag: npt.ArrayLike, Tout: int = 0) -> dict[str, Values]:
    """A sum."""
    return {"out": np.asarray(wide(real) + 1j * wide(imag))}


@oracle("Real")
def real(*, input: npt.ArrayLike, Tout: int = 0) -> dict[str, Values]:
    """The real part."""
    return {"output": wide(input).real}


@oracle("Imag")
def imag(*, input: npt.ArrayLike, Tout: int = 0) -> dict[str, Values]:
    """The imaginary part."""
    return {"output": wide(input).imag}


@oracle("Angle")
def angle(*, input: npt.ArrayLike, Tout: int = 0) -> dict[str, Values]:
    """The angle."""
    return {"output": np.asarray(np.angle(wide(input)))}


@oracle("ComplexAbs")
def complex_abs(*, x: npt.ArrayLike, Tout: int = 0) -> dict[str, Values]:
    """The distance from 0."""
    return {"y": np.abs(wide(x))}


def _along(x: Values, lengths: list[int], sign: int, half: bool) -> Values:
    """Sums with all roots of unity along the last axes, of zeros where something is missing."""
    for place, length in enumerate(lengths):
        axis = x.ndim - len(lengths) + place
        x = np.moveaxis(x, axis, -1)[..., :length]
        made = length // 2 + 1 if half and place == len(lengths) - 1 else length
        turns = np.outer(np.arange(x.shape[-1]), np.arange(made)) % length
        x = np.moveaxis(x @ np.exp(sign * 2j * np.pi * turns / length), -1, axis)
        x = x if sign < 0 else x / length
    return x


def _transform(axes: int, sign: int) -> Any:
    def evaluate(*, input: npt.ArrayLike) -> dict[str, Values]:
        x = wide(input)
        return {"output": _along(x, list(x.shape[x.ndim - axes :]), sign, half=False)}

    return evaluate


for _axes, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    oracle(f"FFT{_suffix}")(_transform(_axes, -1))
    oracle(f"IFFT{_suffix}")(_transform(_axes, 1))


@oracle("RFFT", "RFFT2D", "RFFT3D")
def rfft(*, input: npt.ArrayLike, fft_length: npt.ArrayLike, Tcomplex: int = 0) -> dict[str, Values]:
    """Half of the frequencies."""
    return {"output": _along(wide(input), ints(fft_length), -1, half=True)}


@oracle("IRFFT", "IRFFT2D", "IRFFT3D")
def irfft(*, input: npt.ArrayLike, fft_length: npt.ArrayLike, Treal: int = 0) -> dict[str, Values]:
    """The other half are the conjugates, so that sums are twice their real parts, but where a frequency is its own."""
    x, (*others, length) = wide(input), ints(fft_length)
    if others:
        x = np.moveaxis(_along(np.moveaxis(x, -1, 0), others, 1, half=False), 0, -1)
    x = x[..., : length // 2 + 1]
    places = np.arange(x.shape[-1])
    twofold = np.where((places == 0) | (2 * places == length), 1, 2)
    turns = np.outer(places, np.arange(length)) % length
    return {"output": ((x * twofold) @ np.exp(2j * np.pi * turns / length)).real / length}
