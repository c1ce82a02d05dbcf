"""Gradients of operators that sample images, against differences; of some onnxruntime has float32 alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from tests.support.differences import check, run
from tests.support.one_node import check_node, one_node
from tests.support.operator_gradients import evaluated

torch = pytest.importorskip("torch")

MODES = [("linear", 4), ("nearest", 4), ("cubic", 4), ("linear", 5), ("nearest", 5)]


def _case(rank: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(rank)
    sizes, count = ((4, 5), (3, 6)) if rank == 4 else ((3, 4, 2), (2, 3, 4))
    # Beyond the image on all sides.
    return rng.standard_normal((2, 3, *sizes)), rng.uniform(-1.6, 1.6, (2, *count, rank - 2))


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(("mode", "rank"), MODES)
def test_grid_sample(mode: str, rank: int, corners: int, padding: str) -> None:
    form: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners, "opset": 20}
    twice = (mode, rank, padding, corners) == ("linear", 4, "zeros", 0)
    check_node("GridSample", _case(rank), tolerance=1e-6, twice=twice, open_sizes=[not corners], **form)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(("mode", "rank"), [("linear", 4), ("nearest", 4), ("cubic", 4), ("linear", 5)])
def test_grid_sample_as_torch(mode: str, rank: int, corners: int, padding: str) -> None:
    x, grid = _case(rank)
    # Some on the first and on the last elements, and on the edges of the image.
    grid[:, ::2] = np.random.default_rng(0).choice([-1.0, 1.0, -0.75, 0.75, 0.0, 3.0], grid[:, ::2].shape)
    form: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners, "opset": 20}
    model, feeds = one_node("GridSample", [x, grid], **form)
    t, g = torch.tensor(x, requires_grad=True), torch.tensor(grid, requires_grad=True)
    torch_mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    y = torch.nn.functional.grid_sample(t, g, torch_mode, padding, bool(corners))
    seed = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(torch.tensor(seed))
    found = run(ll.gradient(model, "y", ["x0", "x1"], seeds=True), feeds | {"seed/y": seed})
    assert t.grad is not None
    assert g.grad is not None
    np.testing.assert_allclose(found["grad/x0"], t.grad.numpy(), atol=1e-9)
    np.testing.assert_allclose(found["grad/x1"], g.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize("padding", ["zeros", "reflection"])
def test_cubic_grid_sample_of_a_rank_without_a_kernel(padding: str) -> None:
    """The formula that its gradient is made of stands for it: onnx's evaluator agrees."""
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal((1, 2, 5)), rng.uniform(-1.6, 1.6, (1, 4, 1))]
    model, feeds = one_node("GridSample", operands, mode="cubic", padding_mode=padding, opset=20)
    result = ll.gradient(model, "y", ["x0", "x1"], seeds=True)
    seed = rng.standard_normal((1, 2, 4))
    made = run(result, feeds | {"seed/y": seed})
    np.testing.assert_allclose(made["y"], evaluated(model)(feeds)["y"], atol=1e-5)
    for name in feeds:
        gradient = made[f"grad/{name}"]
        moved = run(result, {**feeds, name: feeds[name] + 1e-6 * gradient, "seed/y": seed})["y"]
        assert ((moved - made["y"]) * seed).sum() * 1e6 == pytest.approx((gradient**2).sum(), rel=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_of_old_opsets(mode: str) -> None:
    # In float32 alone, in which it is linear in the image.
    operands = [x.astype(np.float32) for x in _case(4)]
    form: dict[str, Any] = {"mode": mode, "opset": 16}
    check_node("GridSample", operands, wrt=["x0"], step=1e-1, tolerance=1e-4, open_sizes=[True], **form)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize(("opset", "coordinates"), [(13, None), (16, "half_pixel"), (16, "output_half_pixel")])
def test_roi_align(opset: int, coordinates: str | None, mode: str, samples: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 7))
    rois = np.asarray([[0.3, 0.6, 8.2, 9.3], [2.1, 1.3, 9.7, 5.8], [-1.7, -2.2, 6.1, 3.3]])
    form: dict[str, Any] = {"output_height": 2, "output_width": 3, "sampling_ratio": samples, "spatial_scale": 0.7}
    form |= {} if coordinates is None else {"coordinate_transformation_mode": coordinates}
    operands = [x, rois, np.asarray([1, 0, 1])]
    check_node(
        "RoiAlign", operands, mode=mode, opset=opset, wrt=["x0", "x1"], tolerance=1e-6, open_sizes=[opset == 16], **form
    )


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_affine_grid(size: tuple[int, ...], corners: int) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((2, rank, rank + 1)).astype(np.float32)
    operands = [theta, np.asarray(size)]
    model, feeds = one_node("AffineGrid", operands, align_corners=corners, opset=20, constant=(1,))
    check(model, feeds, step=1e-1, tolerance=1e-4)
    model, feeds = one_node("AffineGrid", operands, align_corners=corners, opset=20)
    check(model, feeds, step=1e-1, tolerance=1e-4)


def _pooled(x: np.ndarray[Any, Any], rois: np.ndarray[Any, Any], scale: float, bins: tuple[int, int]) -> Any:
    """The gradient of a sum over a MaxRoiPool's result weighted by 1, 2, ...: at the first largest element of a bin."""
    found, weight = np.zeros_like(x), 0
    for roi in rois:
        corners = [int(np.floor(abs(c) * scale + 0.5) * np.sign(c)) for c in roi[1:]]
        starts, sizes = [], []
        for start, end in ((corners[1], corners[3]), (corners[0], corners[2])):
            starts.append(start)
            sizes.append(np.float32(max(end - start + 1, 1)))
        for channel in range(x.shape[1]):
            for place in np.ndindex(*bins):
                weight += 1
                part = [
                    np.clip([np.floor(k * size / bin_) + start, np.ceil((k + 1) * size / bin_) + start], 0, limit)
                    for k, size, bin_, start, limit in zip(place, sizes, bins, starts, x.shape[2:], strict=True)
                ]
                (top, bottom), (left, right) = (np.asarray(ends, int) for ends in part)
                window = x[int(roi[0]), channel, top:bottom, left:right]
                if window.size:
                    row, column = np.unravel_index(window.argmax(), window.shape)
                    found[int(roi[0]), channel, top + row, left + column] += weight
    return found


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_max_roi_pool(scale: float, known: bool) -> None:
    # Halves of odd corners are rounded away from zero; equal elements; a region that lies outside, one beyond an edge.
    x = np.random.default_rng(0).integers(0, 4, (2, 3, 6, 7)).astype(np.float32)
    rois = [[0, 1, 1, 9, 7], [1, 3, 2, 4, 3], [1, 0, 5, 13, 11], [0, 40, 40, 50, 50], [1, -3, -5, 4, 4]]
    operands = [x, np.asarray(rois, np.float32)]
    form: dict[str, Any] = {"pooled_shape": [2, 3], "spatial_scale": scale, "opset": 18, "open_sizes": not known}
    model, feeds = one_node("MaxRoiPool", operands, **form)
    weights = np.arange(1, 1 + 5 * 3 * 6, dtype=np.float32).reshape(5, 3, 2, 3)
    found = run(ll.gradient(model, "y", ["x0"], seeds=True), feeds | {"seed/y": weights})
    np.testing.assert_array_equal(found["y"], run(model, feeds)["y"])
    np.testing.assert_array_equal(found["grad/x0"], _pooled(x, operands[1], scale, (2, 3)))


DEFORMED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 2, 4, 5), (3, 2, 2, 2), {}),
    "pads and strides": ((2, 2, 4, 5), (3, 2, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "groups": ((1, 4, 4, 4), (4, 2, 2, 2), {"group": 2, "offset_group": 2, "dilations": [2, 1]}),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", DEFORMED)
def test_deform_conv(name: str, masked: bool) -> None:
    rng = np.random.default_rng(0)
    sizes, kernel, form = DEFORMED[name]
    pads, strides, dilations = form.get("pads", [0] * 4), form.get("strides", [1, 1]), form.get("dilations", [1, 1])
    out = [
        (sizes[2 + i] + pads[i] + pads[2 + i] - dilations[i] * (kernel[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(2)
    ]
    places = kernel[2] * kernel[3] * form.get("offset_group", 1)
    operands = [rng.standard_normal(sizes), rng.standard_normal(kernel)]
    operands += [rng.uniform(-1.3, 1.3, (sizes[0], 2 * places, *out)), rng.standard_normal(kernel[0])]
    operands += [rng.uniform(0, 1, (sizes[0], places, *out))] if masked else []
    # A kernel of open size may be told by its attribute.
    form = form | ({"open_sizes": True} if masked else {})
    form = form | ({"kernel_shape": list(kernel[2:])} if masked and name == "plain" else {})
    model, feeds = one_node("DeformConv", operands, opset=19, **form)
    check(model, feeds, tolerance=1e-6)


def test_scales_are_no_weights() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[1, 1, N] x) => (float y)
        <float[3] scales = {1, 1, 2}, float[1, 1, 1] w = {3}> {
        wide = Mul (x, w)
        sampled = Resize (wide, , scales)
        y = ReduceSum <keepdims = 0> (sampled)
    }"""
    model = onnx.parser.parse_model(text)
    assert [value.name for value in ll.gradient(model, "y").graph.output] == ["y", "grad/w"]
    with pytest.raises(UnsupportedOpError, match="roi and scales, for the gradient, requires not to depend"):
        ll.gradient(model, "y", wrt=["scales"])
