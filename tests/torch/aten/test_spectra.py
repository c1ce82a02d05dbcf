"""Fourier transforms of any length and complex numbers next to PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.aten import ARRAYS, check_together, drawn  # noqa: E402
from tests.support.torch_operations import complex_numbers, spectrum  # noqa: E402


def real(z: Any) -> Any:
    return torch.view_as_real(z)


def _arithmetic(x: Any) -> Any:
    z = torch.complex(x, x.flip(1))
    return (
        z.abs(),
        z.angle(),
        z.real,
        z.imag,
        real(z.conj().resolve_conj()),
        real(z * z / (z + 2)),
        real(z @ z.mT),
        real(torch.cat([z[:, 1:], z], 1).sum(1)),
        real(torch.where(x > 0, z * x, z + 1j)),
        (z * 0).abs(),
        real(z.log()),
        real(z**3),
        real(z.sqrt()),
        real(1 / z),
        real(torch.view_as_complex(torch.stack([x, x * 2], -1)) * 1j),
    )


def _logarithms(x: Any) -> Any:
    """Angles add up to many half turns, and shares that nearly cancel each other are among them."""
    z = torch.complex(x * 2, x.flip(1) * 9)
    return real(z.logcumsumexp(1)), real(z.logcumsumexp(-1)), real(z.log1p()), real((z * 0.1).log1p())


CASES: dict[str, Any] = {
    "complex_transforms": lambda x: (
        torch.fft.fft2(x).real,
        torch.fft.fft(x, dim=1, norm="ortho").imag,
        torch.fft.ifft(torch.complex(x, x * 2), dim=0).abs(),
        torch.fft.ifft(torch.complex(x, x), dim=1, norm="forward").imag,
    ),
    "real_transforms": lambda x: (
        real(torch.fft.rfft(x)),
        real(torch.fft.rfft2(x, norm="ortho")),
        torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1),
        torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1),
    ),
    "frequencies": lambda x: (
        x * torch.fft.fftshift(torch.fft.fftfreq(x.shape[1], 0.5)).unsqueeze(1),
        torch.fft.rfftfreq(x.shape[1]),
        torch.fft.ifftshift(x, 1),
    ),
    "stft": lambda x: (
        real(spectrum(x)),
        torch.stft(x.flatten(1), 5, 2, 3, torch.hamming_window(3), normalized=True, return_complex=True).abs(),
    ),
    "arithmetic": _arithmetic,
    "further_arithmetic": complex_numbers,
    "logarithms": _logarithms,
    "logarithms_of_nothing": lambda x: (
        torch.complex(torch.where(x > 1, x, -torch.inf), x).detach().logcumsumexp(1).exp().abs() + x,
        torch.complex(x, x)[0, 0, 0].logcumsumexp(0).abs() * x,
    ),
    "polar": lambda x: (real(torch.polar(x.abs(), x)), x.angle()),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    check_together(CASES[name], *ARRAYS, dtypes=(torch.float32,))


def test_signals_of_spectra() -> None:
    check_together(
        lambda x: (
            torch.istft(spectrum(x), 4, 2, window=torch.hann_window(4)),
            torch.istft(spectrum(x), 4, 2, window=torch.hann_window(4), length=2 * x.shape[1]),
        ),
        (drawn(4, 7, 4),),
        (drawn(5, 6, 4),),
        dtypes=(torch.float32,),
    )


def test_double_precision() -> None:
    check_together(
        lambda x: (real(torch.fft.rfft(x, dim=1)), torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1)),
        *ARRAYS,
        dtypes=(torch.float64,),
    )
