"""PyTorch's operations in groups, each a function of numbers of shape [B, T, 3]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own name for it)


def definite(x: Any) -> Any:
    return x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)


def equal_values(x: Any) -> Any:
    """Ones in pairs, with a gradient for each."""
    return (
        torch.stack([x, x * 2, x * 0], -1) - torch.stack([x, x * 2, x * 0], -1).detach() + torch.tensor([1.0, 1.0, 0])
    )


def complex_numbers(x: Any) -> Any:
    """Real numbers, by way of most of what complex ones can do."""
    z = torch.complex(x, x.flip(1)) + 1j * x.square()
    spectrum = torch.fft.rfft(x, dim=1)
    filtered = torch.zeros_like(spectrum.real, dtype=torch.complex64)
    filtered[:, :2] = spectrum[:, :2] * (0.5 - 1j * x.mean(1, keepdim=True))
    turned = z * torch.polar(torch.ones(()), torch.tensor(0.7)) / (2 - z.conj()) - (1j - z) ** 2
    mixed = torch.einsum("btc,bsc->bts", z, turned) @ torch.exp(1j * z.imag)
    both = torch.cat([mixed.transpose(1, 2), z.mT[..., :1]], -1).sum(1)
    return (
        torch.fft.irfft(filtered, n=x.shape[1], dim=1),
        both.abs(),
        both.angle().cos(),
        torch.where(x > 0, turned, 1.0).imag,
        torch.view_as_real(z.log()),
    )


def diagonals_in_place(x: Any) -> Any:
    """As losses of redundancy change them (Zbontar et al., Barlow Twins, 2021)."""
    products = x[:, 0].T @ x[:, 1]
    squares = torch.diagonal(products).add_(-1).pow_(2)
    wide = x[0, :2] * 2
    wide.diagonal(1).mul_(3)
    return squares.sum(), products, wide, products[:, :2].contiguous().diagonal(), wide.diagonal(-1)


def functional_one_hot(x: Any) -> Any:
    return F.one_hot(torch.zeros(3, dtype=torch.int64), x.shape[1]).to(x.dtype) @ x


def spectrum(x: Any) -> Any:
    return torch.stft(x.flatten(1), 4, 2, window=torch.hann_window(4), return_complex=True)


GROUPS: dict[str, Callable[..., Any]] = {
    "masks": lambda x: (
        x * torch.where(x > 0, x > 1, x < -1),
        x * (x > 1).masked_fill(x < 0, value=True),
        x * (x > 0).index_fill(1, torch.tensor([0]), value=False),
        torch.diag_embed(x > 0) * x.unsqueeze(-1),
        torch.diag_embed((x * 3).to(torch.int16)) * x.unsqueeze(-1),
        torch.where(x > 0, (x * 3).short(), 2) * x,
    ),
    "gamma": lambda x: (
        torch.lgamma(x * 3.3),
        torch.digamma(x.abs() + 0.2),
        torch.special.multigammaln(x.exp() + 2, 2),
        torch.polygamma(1, x * 5) * 0.1,
        torch.polygamma(3, x.abs() * 9 + 0.5),
    ),
    "errors": lambda x: (
        torch.erfinv(torch.tanh(x)),
        torch.special.ndtri(torch.sigmoid(x * 2)),
        torch.special.log_ndtr(x * 5),
        torch.special.erfcx(x * 3),
        torch.erfc(x * 2),
    ),
    "elements": lambda x: (
        torch.fmax(x, x.flip(1)),
        torch.fmin(x, torch.where(x > 0, math.nan, x * 2)),
        torch.hypot(x * 1e25, x.flip(1) * 1e25) * 1e-25,
        torch.copysign(x, x.flip(1)),
        torch.ldexp(x, x.abs().long()),
        x * (3 & x.round().long()) + (1 | x.round().long()) * (5 ^ x.round().long()),
        x * (2 << x.abs().long()) - torch.bitwise_right_shift(64, x.abs().long()),
        torch.logaddexp(x * 200, x.flip(1) * 200),
        torch.logcumsumexp(x * 100, 1),
        F.logsigmoid(x * 50),
    ),
    "orders": lambda x: (
        *x.cummax(1),
        x.cummin(-1)[0],
        *x.median(1),
        x.median(),
        torch.where(x > 1, math.nan, x).nanmedian(1, keepdim=True)[0],
        *x.kthvalue(2, 1),
        *((x * 2).round().detach() + x - x.detach()).mode(1),
        *((x * 2).round().detach() + x - x.detach()).mode(keepdim=True),
    ),
    "equals": lambda x: (
        equal_values(x).max(-1)[0],
        equal_values(x).min(-1).values,
        equal_values(x).median(),
        equal_values(x).cummax(-1)[0],
        F.hardtanh(equal_values(x)),
        F.relu6(equal_values(x) * 6),
        equal_values(x).clamp(max=torch.ones(())),
        (x * 0 + 2).std(1),
        equal_values(x).amax(),
        equal_values(x).amin(keepdim=True),
        torch.xlogy(x * 0, x.exp()),
        torch.sinc(x * 0),
    ),
    "adaptive maxima": lambda x: (
        *F.adaptive_max_pool2d(x.unsqueeze(1), (2, 3), return_indices=True),
        F.adaptive_max_pool1d(x.relu(), 2),
    ),
    "fractional maxima": lambda x: (
        *F.fractional_max_pool2d(
            x.unsqueeze(1),
            2,
            output_ratio=(0.5, 0.5),
            return_indices=True,
            _random_samples=x[:, :1, :2].detach().sigmoid(),
        ),
        F.fractional_max_pool3d(
            torch.stack((x, x * x), 1).unsqueeze(1), (1, 2, 1), (1, 2, 2), _random_samples=x[:, :1].detach().sigmoid()
        ),
    ),
    "parts": lambda x: (
        *[part * number for number, part in enumerate(x.chunk(2, 1))],
        *x.tensor_split(3, 1),
        x.masked_select(x > 0),
    ),
    "attention": lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.arange(x.shape[1]).unsqueeze(1) > torch.arange(x.shape[1])
    ),
    "moments": lambda x: (x[0].mT.cov(), x[0].mT.corrcoef(), x[0].mT.cov(aweights=x[1, :, 0].abs())),
    "equations": lambda x: (
        torch.linalg.inv(definite(x)),
        torch.linalg.solve(definite(x) + x[..., :1], x),
        torch.linalg.slogdet(definite(x)),
        torch.det(definite(x)),
        torch.linalg.inv_ex(definite(x)).inverse,
        torch.linalg.cholesky_ex(definite(x)).L,
    ),
    "triangles": lambda x: (
        torch.linalg.cholesky(definite(x)),
        torch.linalg.solve_triangular(definite(x), x, upper=True),
        torch.cholesky_solve(x, torch.linalg.cholesky(definite(x))),
    ),
    "reflections": lambda x: (
        *torch.linalg.qr(x.mT[..., :2, :] * 2),
        *torch.linalg.qr(torch.eye(3, dtype=x.dtype) + 0 * x[:, :3]),
        # Squares of these are not float32 numbers.
        torch.linalg.qr(x.mT.detach() * 1e-25).Q,
        torch.linalg.pinv(x),
        torch.linalg.householder_product(x, x[..., 0, :].sin()),
        torch.linalg.householder_product(x, x[..., 0, :2].sin()),
        torch.linalg.lstsq(x.mT, x.mT.cos()).solution,
    ),
    "exponentials": lambda x: (
        torch.matrix_exp(x[:, :3]),
        torch.matrix_exp(x[0, :3] * 3),
        torch.matrix_exp(x[0, :3] * 1e-9),
    ),
    "complex numbers": complex_numbers,
    "sizes as numbers": lambda x: (
        x.flatten()[torch.arange(20) % x.shape[1]],
        (x.abs() + 1) ** (x.shape[0] - 1),
        torch.linspace(-1, x.shape[0], x.shape[1]).unsqueeze(1) * x,
        F.max_pool1d(x.mT, 3, 2, 1),
        *F.max_pool1d(x[0].mT, 2, ceil_mode=True, return_indices=True),
        F.max_pool1d(x.mT, x.shape[1]),
        F.avg_pool1d(x.mT, x.shape[1]),
        F.avg_pool2d(x.unsqueeze(1), (x.shape[1], 1)),
        F.max_pool2d(x.unsqueeze(1), x.shape[1:]),
    ),
    "places": lambda x: (
        torch.take_along_dim(x, x.argsort(dim=1, stable=True)[:1, ..., :1], 1),
        x.scatter_add(1, torch.arange(2).expand(3, 2).mT.expand(x.shape[0], 2, 3), x.detach()),
        functional_one_hot(x),
        x[torch.arange(x.shape[0], dtype=torch.int32), 1],
        x.index_select(1, torch.tensor([2, 0], dtype=torch.int32)),
        x * torch.isin(torch.arange(3), torch.tensor([0, 2]), invert=True),
        x[:, *torch.triu_indices(x.shape[1], x.shape[1], 1).clamp(max=2)],
        x.put(torch.tensor([1, 3]), x[0, 0, :2].exp(), accumulate=True),
        x.index_reduce(1, torch.tensor([1, 1, 0]), x[:, 1:4], "mean"),
        torch.sort(x, dim=1, descending=True, stable=True)[0],
        x.roll((x.shape[1] // 2, 1), (1, 2)),
        x.roll(x.shape[1] // 3),
        x[0].diagonal_scatter(x[1, 0], -1),
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
        *torch.gradient(x, spacing=0.5, dim=(1, 2)),
        F.pdist(x[0], p=1),
        x.squeeze(0),
        torch.squeeze(x[..., :1, None], (-1, 0, 1, -2)),
    ),
    "products of matrices": lambda x: (
        torch.kron(x[0], x[0, 0]),
        torch.linalg.multi_dot([x[0].mT, x[0], x[0].mT]),
        torch.block_diag(x[0], x[1, 0], x[1]),
        torch.linalg.matrix_norm(x, 1),
        torch.linalg.matrix_norm(x, -math.inf, (0, 1), keepdim=True),
    ),
    "spectra": lambda x: (
        torch.istft(spectrum(x), 4, 2, window=torch.hann_window(4)),
        torch.stft(x.flatten(1), 5, 2, 3, torch.hamming_window(3), normalized=True, return_complex=True).abs(),
        torch.istft(spectrum(x), 4, 2, window=torch.hann_window(4), length=2 * x.shape[1]),
        x * torch.hamming_window(x.shape[1], periodic=False).unsqueeze(1) / math.sqrt(x.shape[1]),
        x * torch.fft.fftshift(torch.fft.fftfreq(x.shape[1], 0.5)).unsqueeze(1),
        x * torch.tensor([float(2), x.shape[1]]).prod() / torch.tensor(x.shape[1]),
    ),
    "images": lambda x: (
        F.conv3d(x.reshape(1, 1, *x.shape).expand(1, 2, *x.shape), x[0, :2].reshape(2, 1, 1, 1, 3), groups=2),
        F.affine_grid(x[:, :3, :].reshape(-1, 3, 3)[:, :2], (x.shape[0], 1, x.shape[1], 3), align_corners=True),
        F.affine_grid(torch.eye(3, 4).unsqueeze(0) * x.mean(), (1, 1, 2, x.shape[1], 3), align_corners=False),
        F.rrelu(x, training=False),
        F.rrelu(x, 0.2, 0.2, training=True),
        F.pad(x, (0, 0, (4 - x.shape[1]) // 2, 0)),
    ),
    "labels": lambda x: F.ctc_loss(
        x.log_softmax(-1).transpose(0, 1),
        torch.ones(x.shape[0], 1, dtype=torch.int64),
        torch.full((x.shape[0],), x.shape[1]),
        torch.ones(x.shape[0], dtype=torch.int64),
        reduction="none",
    ),
}
