"""Gradients of convolutions. They are linear in either operand: differences in float32 are exact but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.support.differences import Array, check, run
from tests.support.operator_gradients import NEWEST, model_of, random


def _check(op_type: str, feeds: dict[str, Array], *, twice: bool = False, **options: Any) -> None:
    single = {name: value.astype(np.float32) for name, value in feeds.items()}
    model = model_of(op_type, single, **options)
    linear = {"step": 0.5, "tolerance": 5e-5}
    once = check(model, single, **linear)
    if twice:
        seed = {"seed/y": random(*run(model, single)["y"].shape, seed=3, dtype=np.float32)}
        for name in feeds:
            check(once, {**single, **seed}, of=f"grad/{name}", **linear)


# Shapes of image and weights, attributes.
CONV: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one": ((2, 3, 9), (4, 3, 3), {}),
    "one_everything": ((2, 4, 11), (6, 2, 3), {"strides": [2], "dilations": [2], "pads": [2, 1], "group": 2}),
    "two": ((2, 3, 6, 5), (4, 3, 3, 2), {}),
    "kernel_shape": ((2, 3, 6, 5), (4, 3, 3, 2), {"kernel_shape": [3, 2]}),
    "pads": ((2, 3, 6, 5), (4, 3, 3, 2), {"pads": [1, 0, 2, 1]}),
    "strides": ((2, 3, 8, 9), (4, 3, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 1]}),
    "rows_never_met": ((2, 3, 8, 9), (4, 3, 1, 2), {"strides": [3, 4]}),
    "points": ((2, 3, 5, 4), (4, 3, 1, 1), {}),
    "points_padded": ((2, 3, 5, 4), (4, 3, 1, 1), {"pads": [0, 0, 1, 2], "strides": [2, 3]}),
    "points_on_padding": ((2, 3, 5, 4), (4, 3, 1, 1), {"pads": [0, 0, 1, 2]}),
    "points_before": ((2, 3, 5, 4), (4, 3, 1, 1), {"pads": [1, 0, 0, 0]}),
    "points_strided": ((2, 3, 8, 9), (4, 3, 1, 1), {"strides": [3, 2]}),
    "dilations": ((2, 3, 8, 9), (4, 3, 3, 2), {"dilations": [2, 3]}),
    "many_channels": ((2, 17, 5, 4), (3, 17, 2, 2), {"pads": [1, 0, 1, 0]}),
    "large_window": ((2, 3, 9, 8), (4, 3, 6, 6), {"pads": [1, 2, 0, 1], "strides": [2, 1]}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"group": 2}),
    "depthwise": ((2, 4, 6, 6), (8, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "same_upper": ((2, 3, 7, 8), (4, 3, 2, 3), {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((2, 3, 7, 8), (4, 3, 2, 3), {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "same_lower_stride_1": ((2, 3, 7, 8), (4, 3, 2, 4), {"auto_pad": "SAME_LOWER"}),
    "valid": ((2, 3, 7, 8), (4, 3, 2, 3), {"strides": [2, 3], "auto_pad": "VALID"}),
    "three": ((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
    "three_groups": ((1, 4, 5, 4, 6), (4, 2, 2, 2, 2), {"group": 2, "dilations": [1, 2, 3]}),
}


@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("name", CONV)
def test_conv(name: str, open_sizes: bool) -> None:
    image, weights, attributes = CONV[name]
    feeds = {"x": random(*image), "w": random(*weights, seed=1), "b": random(weights[0], seed=2)}
    dims = {"x": [f"x{axis}" for axis in range(len(image))]} if open_sizes else "static"
    _check(
        "Conv",
        feeds,
        dims=dims,
        twice=name in ("one_everything", "strides", "same_lower", "points_strided"),
        **attributes,
    )


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one": ((2, 3, 5), (3, 4, 3), {}),
    "one_everything": (
        (2, 4, 5),
        (4, 3, 3),
        {"strides": [3], "dilations": [2], "pads": [2, 1], "group": 2, "output_padding": [2]},
    ),
    "two": ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    "points": ((2, 3, 4, 5), (3, 4, 1, 1), {"strides": [2, 1], "output_padding": [1, 0]}),
    "pads": ((2, 3, 4, 5), (3, 4, 3, 2), {"pads": [1, 0, 2, 1]}),
    "strides": ((2, 3, 4, 5), (3, 4, 3, 2), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
    "output_padding": ((2, 3, 4, 5), (3, 4, 3, 2), {"strides": [2, 3], "output_padding": [1, 2]}),
    "points_of_a_shape": (
        (2, 3, 4, 5),
        (3, 4, 1, 1),
        {"strides": [2, 2], "output_shape": [7, 8], "auto_pad": "SAME_UPPER"},
    ),
    "groups": ((2, 4, 4, 4), (4, 3, 3, 3), {"group": 2}),
    "output_shape": ((2, 3, 4, 5), (3, 4, 3, 2), {"strides": [2, 3], "output_shape": [8, 12]}),
    "output_shape_upper": (
        (2, 3, 4, 5),
        (3, 4, 4, 4),
        {"strides": [2, 3], "output_shape": [7, 15], "auto_pad": "SAME_UPPER"},
    ),
    "same_upper": ((2, 3, 4, 5), (3, 4, 4, 4), {"strides": [3, 3], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((2, 3, 4, 5), (3, 4, 4, 4), {"strides": [3, 3], "auto_pad": "SAME_LOWER"}),
    "valid": ((2, 3, 4, 5), (3, 4, 3, 2), {"strides": [2, 3], "auto_pad": "VALID"}),
    "three": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
}


@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose(name: str, open_sizes: bool) -> None:
    image, weights, attributes = TRANSPOSED[name]
    channels = weights[1] * attributes.get("group", 1)
    feeds = {"x": random(*image), "w": random(*weights, seed=1), "b": random(channels, seed=2)}
    dims = {"x": [f"x{axis}" for axis in range(len(image))]} if open_sizes else "static"
    _check("ConvTranspose", feeds, dims=dims, twice=name in ("one_everything", "same_lower"), **attributes)


@pytest.mark.parametrize("opset", [13, NEWEST])
def test_without_bias(opset: int) -> None:
    _check("Conv", {"x": random(2, 3, 5), "w": random(4, 3, 2)}, opset=opset)


def test_nothing_known_but_ranks() -> None:
    feeds = {"x": random(2, 3, 9), "w": random(4, 3, 2)}
    _check("Conv", feeds, dims="open", strides=[2], twice=True)
    _check("ConvTranspose", {"x": random(2, 4, 5), "w": random(4, 3, 2)}, dims="open", strides=[2], twice=True)


def test_rank_must_be_known() -> None:
    feeds = {"x": random(2, 3, 5, dtype=np.float32), "w": random(4, 3, 2, dtype=np.float32)}
    with pytest.raises(ll.UnsupportedOpError, match=r"Conv.*known rank"):
        ll.gradient(model_of("Conv", feeds, dims="unranked"), "y", ["x"], seeds=True)


def test_deformable_convolutions_have_two_axes() -> None:
    feeds = {
        "x": random(1, 1, 3, 3, 3, dtype=np.float32),
        "w": random(1, 1, 2, 2, 2, dtype=np.float32),
        "offset": random(1, 24, 2, 2, 2, dtype=np.float32),
    }
    with pytest.raises(ll.UnsupportedOpError, match=r"DeformConv.*rank 4"):
        ll.gradient(model_of("DeformConv", feeds), "y", ["x"], seeds=True)
