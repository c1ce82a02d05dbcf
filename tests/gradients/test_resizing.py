"""Gradients of Resize, against differences in float32: it is linear, and onnxruntime has it in no other dtype."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.support.examples import TIMES
from tests.support.one_node import check_node, one_node

COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _check(x: np.ndarray[Any, Any], roi: Any = None, scales: Any = None, sizes: Any = None, **form: Any) -> None:
    floats = [None if v is None else np.asarray(v, np.float32) for v in (roi, scales)]
    operands = [x, *floats, *([] if sizes is None else [np.asarray(sizes, np.int64)])]
    attributes = {"opset": 19, "constant": (1, 2, 3), **form}
    attributes["constant"] = [i for i in attributes["constant"] if i < len(operands) and operands[i] is not None]
    check_node("Resize", operands, wrt=["x0"], step=1e-1, tolerance=2e-5, **attributes)


MODES, HOW = ("nearest", "linear", "cubic"), ("up", "down", "fraction", "sizes")
# Any two of a mode, coordinates and a way to say sizes meet, in one case at least.
FORMS = [
    (mode, coordinates, how)
    for (i, mode), (j, coordinates), (k, how) in itertools.product(*map(enumerate, (MODES, COORDINATES, HOW)))
    if TIMES > 1 or (i + j + k) % 2 == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "coordinates", "how"), FORMS)
def test_modes(mode: str, coordinates: str, how: str) -> None:
    sizes = [1, 2, 7, 3] if how == "sizes" else None
    scales = {"up": [1, 1, 2, 3], "down": [1, 1, 0.5, 0.75], "fraction": [1, 1, 1.3, 0.6]}.get(how)
    roi = [0, 0, 0.2, -0.1, 1, 1, 0.9, 1.2] if coordinates == "tf_crop_and_resize" else None
    form = {"extrapolation_value": 3.0} if roi else {}
    x = _random(1, 2, 4, 5)
    _check(x, roi, scales, sizes, mode=mode, coordinate_transformation_mode=coordinates, twice=how == "up", **form)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("opset", [13, 18])
def test_nearest_modes(nearest: str, opset: int) -> None:
    _check(_random(1, 2, 4, 5), None, [1, 1, 1.5, 2], nearest_mode=nearest, opset=opset)
    _check(_random(1, 2, 4, 5), None, [1, 1, 0.5, 0.4], nearest_mode=nearest, opset=opset)


WEIGHTS = [
    ("linear", {"antialias": 1}),
    *(("cubic", {name: x}) for name, x in [("antialias", 1), ("exclude_outside", 1), ("cubic_coeff_a", -0.5)]),
]


@pytest.mark.parametrize(("mode", "form"), WEIGHTS)
def test_weights(mode: str, form: dict[str, Any]) -> None:
    for scales in ([1, 1, 0.5, 0.6], [1, 1, 2, 1.7]):
        _check(_random(1, 2, 4, 5), None, scales, mode=mode, **form)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_axes_and_ranks(mode: str) -> None:
    _check(_random(2, 3, 5), None, [1, 1, 2], mode=mode)
    _check(_random(2, 3, 5), None, None, [2, 3, 8], mode=mode)
    _check(_random(1, 2, 2, 3, 4), None, [1, 1, 2, 1.5, 0.5], mode=mode)
    _check(_random(1, 2, 4, 5), None, [3, 0.5], mode=mode, axes=[3, 2])
    _check(_random(1, 2, 4, 5), None, None, [9, 3], mode=mode, axes=[-1, -2])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_and_sizes_of_run_time(mode: str) -> None:
    _check(_random(1, 2, 4, 5), None, [1, 1, 2, 1.5], mode=mode, constant=())
    _check(_random(1, 2, 4, 5), None, None, [1, 2, 7, 3], mode=mode, constant=())


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("opset", "scales"), [(9, [1, 1, 2, 3.5]), (10, [1, 1, 2, 3]), (10, [1, 1, 0.5, 0.7])])
def test_old_opsets(opset: int, scales: list[float], mode: str) -> None:
    op = "Upsample" if opset == 9 else "Resize"
    operands = [_random(1, 2, 4, 5), np.asarray(scales, np.float32)]
    check_node(op, operands, opset=opset, constant=(1,), mode=mode, wrt=["x0"], step=1e-1, tolerance=2e-5)


RATIOS = [("nearest", {}), ("linear", {}), ("cubic", {}), ("linear", {"antialias": 1})]


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [[7, 9], [3, 3], [5, 8]])
@pytest.mark.parametrize(("mode", "form"), RATIOS)
def test_aspect_ratio(mode: str, form: dict[str, int], sizes: list[int], policy: str) -> None:
    form = {"mode": mode, "keep_aspect_ratio_policy": policy, "opset": 18, **form}
    _check(_random(1, 2, 4, 5), None, None, sizes, axes=[2, 3], **form)


def test_aspect_ratio_of_all_axes() -> None:
    _check(_random(4, 5), None, None, [7, 9], keep_aspect_ratio_policy="not_larger", opset=18, mode="nearest")


@pytest.mark.parametrize(("mode", "form"), [("linear", {}), ("cubic", {}), ("linear", {"antialias": 1})])
def test_long_axes_take_no_matrix(mode: str, form: dict[str, int]) -> None:
    x, scales = _random(1, 1, 1, 60_000), np.asarray([1, 1, 1, 0.4], np.float32)
    model, feeds = one_node("Resize", [x, None, scales], opset=18, constant=(2,), mode=mode, **form)
    seed = _random(1, 1, 1, 24_000)
    got = ll.Session(ll.gradient(model, "y", ["x0"], seeds=True)).run({**feeds, "seed/y": seed})
    # Linear in x, the gradient is the adjoint; a matrix would be of 5.8 GB.
    forward, backward = (np.vdot(a.astype(np.float64), b) for a, b in ((got["y"], seed), (got["grad/x0"], x)))
    assert forward == pytest.approx(backward, rel=1e-5)


def test_what_is_refused() -> None:
    model, _ = one_node("Resize", [_random(1, 2, 4, 5), None, np.asarray([1, 1, 2, 3], np.float32)], opset=19)
    with pytest.raises(ll.UnsupportedOpError, match="roi and scales, for the gradient"):
        ll.gradient(model, "y", ["x2"], seeds=True)
    kept = {"keep_aspect_ratio_policy": "not_larger", "mode": "linear"}
    model, _ = one_node("Resize", [_random(4, 5), None, None, np.asarray([7, 3])], opset=18, constant=(3,), **kept)
    with pytest.raises(ll.UnsupportedOpError, match="axes of a kept aspect ratio, for the gradient, requires not all"):
        ll.gradient(model, "y", ["x0"], seeds=True)
