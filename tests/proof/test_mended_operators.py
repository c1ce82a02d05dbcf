"""Operators that onnx.reference has wrong or in float32, next to numpy in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from lstm_lower.runtime.proof import reference
from tests.support.loop_checks import run

RNG = np.random.default_rng(0)
EXACT = 1e-12


def evaluate(node: str, opset: int = 18, **feeds: np.ndarray) -> np.ndarray:
    """What the float64 reference makes of one node with output y."""
    inputs = ", ".join(
        f"{'float' if array.dtype.kind == 'f' else array.dtype}[{','.join(map(str, array.shape))}] {name}"
        for name, array in feeds.items()
    )
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (y) {{ y = {node} }}"""
    found: np.ndarray = reference.evaluate(ir.from_proto(onnx.parser.parse_model(text)), feeds)["y"]
    assert found.dtype == np.float64
    return found


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_the_largest_over_all_places(rank: int) -> None:
    x = normal(*(2, 3, 4, 5, 6)[:rank])
    wanted = x.max(axis=tuple(range(2, rank)), keepdims=True)
    np.testing.assert_array_equal(evaluate("GlobalMaxPool(x)", x=x), wanted)


@pytest.mark.parametrize("opset", [13, 14, 15])
def test_statistics_that_are_given(opset: int) -> None:
    x, statistics = normal(4, 3, 5), {"s": normal(3), "b": normal(3), "m": normal(3), "v": RNG.random(3) + 0.5}
    s, b, m, v = (each[:, None] for each in statistics.values())
    found = evaluate("BatchNormalization<epsilon = 0.0, momentum = 0.5>(x, s, b, m, v)", opset, x=x, **statistics)
    np.testing.assert_allclose(found, s * (x - m) / np.sqrt(v) + b, rtol=EXACT)


@pytest.mark.parametrize("opset", [13, 18, 19, 21, 25])
def test_quantized_numbers(opset: int) -> None:
    whole, scale = RNG.integers(-(2**31), 2**31, (2, 3)), normal(3)
    found = evaluate("DequantizeLinear(x, s)", opset, x=whole.astype(np.int32), s=scale)
    np.testing.assert_allclose(found, whole * scale, rtol=EXACT)
    small, scale, zero = RNG.integers(0, 256, (2, 3)), normal(2), RNG.integers(0, 256, 2)
    given = {"x": small.astype(np.uint8), "s": scale, "z": zero.astype(np.uint8)}
    found = evaluate("DequantizeLinear<axis = 0>(x, s, z)", opset, **given)
    np.testing.assert_allclose(found, (small - zero[:, None]) * scale[:, None], rtol=EXACT)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_norms_over_all_places(power: int) -> None:
    x = normal(2, 3, 4, 5)
    wanted = np.linalg.norm(x.reshape(2, 3, 20), power, axis=2)[..., None, None]
    np.testing.assert_allclose(evaluate(f"GlobalLpPool<p = {power}>(x)", x=x), wanted, rtol=EXACT)


def test_error_function() -> None:
    x = normal(5)
    np.testing.assert_array_equal(evaluate("Erf(x)", x=x), [math.erf(each) for each in x])
    assert evaluate("Erf(x)", x=normal(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("stated", ["", ", stash_type = 1", ", stash_type = 10"])
def test_normalization_over_an_axis(stated: str) -> None:
    x, s, b = normal(2, 3, 5), normal(5), normal(5)
    centered = x - x.mean(-1, keepdims=True)
    wanted = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.5) * s
    found = evaluate(f"LayerNormalization<axis = -1, epsilon = 0.5{stated}>(x, s, b)", 23, x=x, s=s, b=b)
    np.testing.assert_allclose(found, wanted + b, rtol=EXACT)
    wanted = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.5) * s
    found = evaluate(f"RMSNormalization<axis = -1, epsilon = 0.5{stated}>(x, s)", 23, x=x, s=s)
    np.testing.assert_allclose(found, wanted, rtol=EXACT)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5)])
def test_places_of_an_affine_map(shape: tuple[int, ...], align: int) -> None:
    theta = normal(2, len(shape), len(shape) + 1)
    size: Any = np.array([2, 1, *shape])
    found = evaluate(f"AffineGrid<align_corners = {align}>(t, n)", 20, t=theta, n=size)
    ends = [1 if align else 1 - 1 / each for each in shape]
    axes = [np.linspace(-end, end, each) for end, each in zip(ends, shape, strict=True)]
    places = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(shape)])
    np.testing.assert_allclose(found, np.einsum("nij,j...->n...i", theta, places), atol=EXACT)


def test_samples_between_places() -> None:
    image, places = normal(1, 1, 2, 2), RNG.uniform(-1, 1, (1, 1, 3, 2))
    found = evaluate("GridSample<align_corners = 1>(x, g)", x=image, g=places)
    across, down = ((places[0, 0] + 1) / 2).T
    rows = image[0, 0, :, :1] * (1 - across) + image[0, 0, :, 1:] * across
    np.testing.assert_allclose(found[0, 0, 0], rows[0] * (1 - down) + rows[1] * down, rtol=EXACT)


@pytest.mark.parametrize(("opset", "shift"), [(13, 0), (16, 0.5)])
def test_regions_before_and_after_they_were_shifted(opset: int, shift: float) -> None:
    # One sample, at the middle of the region, of an image that is its own place.
    image = np.arange(5.0).reshape(1, 1, 1, 5).repeat(5, axis=2)
    regions, images = np.array([[1.0, 1.0, 3.0, 3.0]]), np.zeros(1, np.int64)
    found = evaluate("RoiAlign<sampling_ratio = 1>(x, r, i)", opset, x=image, r=regions, i=images)
    assert found.item() == 2 - shift


@pytest.mark.parametrize("opset", [18, 21])
def test_scales_of_groups_and_of_channels(opset: int) -> None:
    x, scale, bias = normal(2, 4, 5), normal(4 if opset == 21 else 2), normal(4 if opset == 21 else 2)
    found = evaluate("GroupNormalization<num_groups = 2, epsilon = 0.0>(x, s, b)", opset, x=x, s=scale, b=bias)
    groups = x.reshape(2, 2, 10)
    wanted = (groups - groups.mean(2, keepdims=True)) / groups.std(2, keepdims=True)
    s, b = (np.repeat(each, 4 // len(each))[:, None] for each in (scale, bias))
    np.testing.assert_allclose(found, wanted.reshape(x.shape) * s + b, rtol=EXACT)


SLICES = (
    '<ir_version: 8, opset_import: ["" : 18]> g (float[N] x, int64[1] s, int64[1] e, int64[1] a, int64[1] k) => (y) '
)
BOUNDS = [-(2**63), -6, -4, -1, 0, 3, 5, 2**31 - 1, 2**63 - 1]


@pytest.mark.slow
@pytest.mark.parametrize("step", [-(2**31), -3, -1, 1, 2])
def test_slices_are_onnxruntimes(step: int) -> None:
    x = np.arange(4.0)
    for start, end in itertools.product(BOUNDS, BOUNDS):
        sizes = dict(zip("seak", np.array([[start], [end], [-1], [step]]), strict=True))
        node = "Slice(x, s, e, a, k)"
        model = onnx.parser.parse_model(SLICES + f"{{ y = {node} }}")
        (wanted,) = run(model, {"x": x.astype(np.float32), **sizes})
        np.testing.assert_array_equal(evaluate(node, x=x, **sizes), wanted, err_msg=str((start, end)))


def test_slices_with_bounds_as_attributes() -> None:
    x = normal(3, 4)
    found = evaluate("Slice<axes = [1], starts = [-3], ends = [9]>(x)", 9, x=x)
    np.testing.assert_array_equal(found, x[:, 1:])


@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra_of_signals_of_two_axes(onesided: int) -> None:
    x, window = normal(2, 40), np.hanning(16)
    frames = np.lib.stride_tricks.sliding_window_view(x, 16, axis=1)[:, ::6] * window
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    found = evaluate(f"STFT<onesided = {onesided}>(x, step, w)", x=x, step=np.array(6), w=window)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=EXACT)
