"""Pools next to PyTorch's: values, places and gradients, ties among them, with all axes open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.support.aten import check  # noqa: E402

# onnxruntime has no means of windows in float64.
ONE = [torch.float32]
LINE, IMAGE, VOLUME = ((2, 3, 9), (1, 3, 12)), ((2, 3, 7, 8), (1, 3, 9, 5)), ((2, 2, 4, 5, 3), (1, 2, 3, 4, 5))


def _tied(*shape: int) -> Tensor:
    """Numbers of which many are equal."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


Case = tuple[Callable[..., Any], tuple[tuple[int, ...], tuple[int, ...]]]

_MAXIMA: dict[str, Case] = {
    "1d": (nn.MaxPool1d(3, 2, 1), LINE),
    "1d dilated": (nn.MaxPool1d(3, 1, 0, 2), LINE),
    "2d": (nn.MaxPool2d(2), IMAGE),
    "2d up": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "3d": (nn.MaxPool3d(2, 1), VOLUME),
    "1d with places": (nn.MaxPool1d(2, return_indices=True), LINE),
    "2d with places": (nn.MaxPool2d((3, 2), (2, 1), (1, 0), return_indices=True), IMAGE),
    "3d with places": (nn.MaxPool3d(2, 1, return_indices=True), VOLUME),
    "of a single image": (nn.MaxPool2d(2, return_indices=True), ((3, 7, 8), (3, 5, 6))),
    "of all": (lambda x: functional.max_pool2d(x, tuple(x.shape[2:])), IMAGE),
    "of rows": (lambda x: functional.max_pool2d(x, (1, x.shape[3])), IMAGE),
    "adaptive 1d": (nn.AdaptiveMaxPool1d(4, return_indices=True), LINE),
    "adaptive 2d": (nn.AdaptiveMaxPool2d((3, 2)), IMAGE),
    "adaptive 2d of all": (nn.AdaptiveMaxPool2d(1, return_indices=True), IMAGE),
    "adaptive 3d": (nn.AdaptiveMaxPool3d(2, return_indices=True), VOLUME),
    "unpooled": (
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape),
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", _MAXIMA)
def test_maxima(name: str) -> None:
    function, (first, second) = _MAXIMA[name]
    check(function, [_tied(*first)], [_tied(*second)])


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_maxima(dims: int) -> None:
    pool: Any = getattr(functional, f"fractional_max_pool{dims}d_with_indices")

    def pooled(x: Tensor, samples: Tensor) -> Any:
        return pool(x, 2, [3] * dims, _random_samples=samples.detach())

    examples = [
        [_tied(*shape), torch.rand(*shape[:2], dims)]
        for shape in ((2, 3, *(7, 6, 5)[:dims]), (1, 2, 5, 8, 6)[: dims + 2])
    ]
    check(pooled, *examples)


_MEANS: dict[str, Case] = {
    "1d": (nn.AvgPool1d(3, 2, 1), LINE),
    "2d": (nn.AvgPool2d(2), IMAGE),
    "2d without padding": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "2d up": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "2d up without padding": (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    "2d by another divisor": (nn.AvgPool2d(3, 2, 1, divisor_override=5), IMAGE),
    "2d up by another divisor": (nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=5), IMAGE),
    "3d": (nn.AvgPool3d(2, 1), VOLUME),
    "of a single image": (nn.AvgPool2d(2), ((3, 7, 8), (3, 5, 6))),
    "of all": (lambda x: functional.avg_pool2d(x, tuple(x.shape[2:])), IMAGE),
    "adaptive 1d": (nn.AdaptiveAvgPool1d(4), LINE),
    "adaptive 1d of all": (nn.AdaptiveAvgPool1d(1), LINE),
    "adaptive 2d": (nn.AdaptiveAvgPool2d((3, 2)), IMAGE),
    "adaptive 2d of one axis": (nn.AdaptiveAvgPool2d((None, 1)), IMAGE),
    "adaptive 3d": (nn.AdaptiveAvgPool3d(2), VOLUME),
    "by areas": (lambda x: functional.interpolate(x, scale_factor=0.5, mode="area"), IMAGE),
    "norms 1d": (nn.LPPool1d(2, 3), LINE),
    "norms 2d": (nn.LPPool2d(3, 2, 1, ceil_mode=True), IMAGE),
}


@pytest.mark.parametrize("name", _MEANS)
def test_means(name: str) -> None:
    function, (first, second) = _MEANS[name]
    check(function, [_random(*first)], [_random(*second)], dtypes=ONE)


def test_adaptive_means_of_known_sizes() -> None:
    check(nn.AdaptiveAvgPool2d((3, 4)), [_random(2, 3, 7, 8)], fixed=True)
    check(nn.AdaptiveAvgPool2d((7, 2)), [_random(2, 3, 7, 8)], fixed=True, dtypes=ONE)


@pytest.mark.parametrize(
    ("pool", "sizes"),
    [
        (nn.AvgPool1d(2, 2, 1, ceil_mode=True), (3,)),
        (nn.AvgPool1d(2, 3, 1, ceil_mode=True, count_include_pad=False), (8,)),
        (nn.MaxPool1d(3, 5, 1, ceil_mode=True), (8,)),
        (lambda x: functional.max_pool1d(x, 3, 2, 1, ceil_mode=True, return_indices=True)[0], (4,)),
        # Along the second axis the last window is cut short.
        (nn.AvgPool2d(2, 2, 1, ceil_mode=True), (3, 4)),
        (nn.MaxPool2d(2, (3, 2), 1, ceil_mode=True), (8, 5)),
        # One window is larger than the whole image.
        (nn.AvgPool1d(3, ceil_mode=True), (2,)),
        (nn.AvgPool2d((5, 3), 3, 1, ceil_mode=True, count_include_pad=False), (1, 2)),
        (nn.MaxPool1d(3, ceil_mode=True), (1,)),
    ],
)
def test_a_window_behind_the_image_is_none(pool: Callable[..., Any], sizes: tuple[int, ...]) -> None:
    def weighed(x: Tensor) -> Tensor:
        # What reads the result is of its size.
        return pool(x) * torch.arange(1, pool(x).shape[-1] + 1)

    check(weighed, [_tied(2, 2, *sizes)], fixed=True, dtypes=ONE)


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(2, 2, 1, ceil_mode=True),
        nn.AvgPool2d(2, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(2, (2, 3), 1, ceil_mode=True),
        nn.MaxPool2d(2, 2, 1, ceil_mode=True),
        lambda x: functional.max_pool2d(x, 2, 2, 1, ceil_mode=True, return_indices=True)[1].to(x) * x.sum(),
        # Elements behind the last window are of no window.
        nn.MaxPool2d((2, 1), (2, 3), ceil_mode=True),
        lambda x: functional.max_pool2d(x, (2, 1), (2, 3), ceil_mode=True, return_indices=True)[1].to(x) * x.sum(),
    ],
)
def test_a_window_behind_the_image_is_none_beside_an_open_axis(pool: Callable[..., Any]) -> None:
    def weighed(x: Tensor) -> Tensor:
        y = pool(x[..., :5])
        return y * torch.arange(1, y.shape[-1] + 1)

    check(weighed, [_tied(2, 2, 4, 8)], [_tied(2, 2, 7, 6)], dtypes=ONE)
