"""Windows, frequencies and the way back from a spectrogram, for any length: the exporter has them for one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional


def _cosines(*shares: float) -> Callable[..., Any]:
    """A window that is a sum of cosines."""

    def window(
        window_length: Any,
        periodic: bool = True,
        *rest: Any,
        dtype: Any = None,
        **options: Any,
    ) -> Any:
        dtype = dtype or torch.get_default_dtype()
        if rest or {"alpha", "beta"} & set(options):
            return NotImplemented
        if not isinstance(window_length, torch.SymInt):
            # The exporter's have ONNX's shares, which are not PyTorch's (25/46 in place of 0.54).
            around = max(1, window_length if periodic else window_length - 1)
            turns = [2 * math.pi * place / around for place in range(window_length)]
            values = [sum(share * math.cos(turn * number) for number, share in enumerate(shares)) for turn in turns]
            return torch.tensor(values if window_length != 1 else [1.0], dtype=dtype)
        steps = cast("Any", window_length)
        places = torch.arange(steps).to(dtype) * (2 * math.pi)
        angle = places / torch.scalar_tensor(steps if periodic else steps - 1, dtype=dtype)
        parts = [share * torch.cos(angle * number) for number, share in enumerate(shares)]
        return sum(parts[1:], parts[0])

    return window


def _frequencies(*, half: bool) -> Callable[..., Tensor]:
    """Of the elements of a spectrum, in cycles for each step of `d`."""

    def frequencies(
        n: Any,
        d: float = 1.0,
        *,
        dtype: Any = None,
        **options: Any,  # noqa: ARG001
    ) -> Tensor:
        positive = torch.arange(n // 2 + 1 if half else (n + 1) // 2)
        numbers = positive if half else torch.cat([positive, torch.arange(-(n // 2), 0)])
        dtype = dtype or torch.get_default_dtype()
        return numbers.to(dtype) / (torch.scalar_tensor(n, dtype=dtype) * d)

    return frequencies


def _istft(
    input: Tensor,  # noqa: A002
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """Frames that are added where they overlap, over the sum of their squared windows (Griffin and Lim, 1984)."""
    if return_complex or onesided is False:
        return NotImplemented
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    real = torch.view_as_real(input).dtype
    shape = torch.ones(width, dtype=real) if window is None else window
    shape = functional.pad(shape, ((n_fft - width) // 2, n_fft - width - (n_fft - width) // 2))
    spectra = input if input.dim() == 3 else input.unsqueeze(0)
    frames = torch.fft.irfft(spectra, n=n_fft, dim=1, norm="ortho" if normalized else "backward")
    count: Any = frames.shape[2]
    whole = n_fft + hop * (count - 1)

    def added(parts: Tensor) -> Tensor:
        lined = functional.fold(parts, (1, whole), (1, n_fft), stride=(1, hop))
        return lined.squeeze(1).squeeze(1)

    weights = added((shape * shape).reshape(1, n_fft, 1).expand(1, n_fft, count))
    sums = added(frames * shape.unsqueeze(-1))
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    sums, weights = (x[:, start : min(end, whole) if length is None else end] for x in (sums, weights))
    result = sums / weights
    if length is not None:
        result = functional.pad(result, (0, length - result.shape[1]))
    return result if input.dim() == 3 else result.squeeze(0)


SPECTRA: dict[Any, Callable[..., Any]] = {
    Tensor.istft: _istft,
    torch.fft.fftfreq: _frequencies(half=False),
    torch.fft.rfftfreq: _frequencies(half=True),
    torch.hamming_window: _cosines(0.54, -0.46),
    torch.hann_window: _cosines(0.5, -0.5),
    torch.istft: _istft,
}
