"""Images of other sizes, at other places and in another order next to PyTorch's, with all axes open."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.support.aten import check  # noqa: E402

# onnxruntime's Resize, Col2Im and their like have no kernels in float64.
ONE = [torch.float32]
LINE, IMAGE, VOLUME = ((2, 3, 9), (1, 3, 12)), ((2, 3, 7, 8), (1, 3, 9, 5)), ((2, 2, 4, 5, 3), (1, 2, 3, 4, 5))


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


_SIZES: dict[str, tuple[dict[str, Any], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "nearest 1d": ({"scale_factor": 2.0, "mode": "nearest"}, LINE),
    "nearest 2d": ({"scale_factor": (2.0, 1.5), "mode": "nearest"}, IMAGE),
    "nearest 2d of a size": ({"size": (5, 11), "mode": "nearest"}, IMAGE),
    "nearest 3d": ({"scale_factor": 2.0, "mode": "nearest"}, VOLUME),
    "exactly the nearest": ({"scale_factor": 1.7, "mode": "nearest-exact"}, IMAGE),
    "exactly the nearest of a size": ({"size": (5, 11), "mode": "nearest-exact"}, IMAGE),
    "linear 1d": ({"scale_factor": 0.5, "mode": "linear"}, LINE),
    "linear 2d": ({"scale_factor": 1.7, "mode": "bilinear"}, IMAGE),
    "linear 2d of a size": ({"size": (5, 11), "mode": "bilinear"}, IMAGE),
    "linear 2d of one element": ({"size": (1, 11), "mode": "bilinear"}, IMAGE),
    "linear 2d of corners": ({"size": (5, 11), "mode": "bilinear", "align_corners": True}, IMAGE),
    "linear 2d of another scale": (
        {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True},
        IMAGE,
    ),
    "linear 3d": ({"size": (3, 5, 4), "mode": "trilinear"}, VOLUME),
    "cubic": ({"scale_factor": 1.5, "mode": "bicubic"}, IMAGE),
    "cubic of corners": ({"size": (5, 11), "mode": "bicubic", "align_corners": True}, IMAGE),
    "smoothed linear": ({"scale_factor": 0.5, "mode": "bilinear", "antialias": True}, IMAGE),
    "smoothed cubic": ({"size": (3, 4), "mode": "bicubic", "antialias": True}, IMAGE),
}


@pytest.mark.parametrize("name", _SIZES)
def test_other_sizes(name: str) -> None:
    options, (first, second) = _SIZES[name]
    check(lambda x: functional.interpolate(x, **options), [_random(*first)], [_random(*second)], dtypes=ONE)


_ORDERS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "shuffled": (nn.PixelShuffle(2), ((2, 8, 3, 4), (1, 8, 2, 5))),
    "shuffled single": (nn.PixelShuffle(2), ((8, 3, 4), (8, 2, 5))),
    "unshuffled": (nn.PixelUnshuffle(2), ((2, 3, 4, 6), (1, 3, 2, 4))),
    "channels shuffled": (nn.ChannelShuffle(2), ((2, 4, 3, 4), (1, 4, 2, 5))),
    "windows": (nn.Unfold((2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2)), IMAGE),
    "windows of a single image": (nn.Unfold(2), ((3, 5, 6), (3, 4, 4))),
    "windows joined": (lambda x: functional.fold(x, (4, 5), 2, padding=1, stride=2), ((2, 8, 9), (1, 4, 9))),
    "windows of a single image joined": (lambda x: functional.fold(x, (4, 5), 2), ((8, 12), (4, 12))),
}


@pytest.mark.parametrize("name", _ORDERS)
def test_other_orders(name: str) -> None:
    function, (first, second) = _ORDERS[name]
    check(function, [_random(*first)], [_random(*second)], dtypes=ONE)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places(mode: str, padding: str, align_corners: bool) -> None:
    sample = functools.partial(functional.grid_sample, mode=mode, padding_mode=padding, align_corners=align_corners)
    first, second = [_random(2, 3, 4, 5), _random(2, 6, 3, 2)], [_random(1, 2, 3, 7), _random(1, 2, 2, 2)]
    check(sample, first, second, dtypes=ONE, tolerance=3e-5)


def test_places_in_volumes() -> None:
    sample = functools.partial(functional.grid_sample, align_corners=False)
    first, second = [_random(2, 3, 4, 5, 3), _random(2, 2, 3, 2, 3)], [_random(1, 2, 3, 7, 4), _random(1, 2, 2, 4, 3)]
    check(sample, first, second, dtypes=ONE, tolerance=3e-5)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align_corners", [True, False])
def test_moved_places(align_corners: bool) -> None:
    def places(theta: Tensor, x: Tensor) -> Tensor:
        return functional.affine_grid(theta, list(x.shape), align_corners=align_corners) + 0 * x.sum()

    check(places, [_random(2, 2, 3), _random(2, 3, 4, 5)], [_random(3, 2, 3), _random(3, 2, 1, 6)])
    check(places, [_random(2, 3, 4), _random(2, 3, 4, 5, 2)], dtypes=ONE)
