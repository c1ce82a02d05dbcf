"""Gradients of convolutions, poolings and batch normalisation against TensorFlow, elsewhere against differences."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lstm_lower.opdef import REGISTRY
from lstm_lower.spatial import spatial_axes, spatial_positions
from tests.rules.test_gradients import DOMAIN, assert_as_recorded, lowered_results
from tests.support.examples import in_some_forms
from tests.support.gradient_cases import Array, Case
from tests.support.recorded import assert_recorded
from tests.support.spatial_cases import IMAGES, SIZES, WINDOWS_SIZES, cases, has_contents, on_cpu, recording

CASES = [pytest.param(case, id=case.id) for case in cases()]


def model_of(case: Case, opset: int, *, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of the one node, and its feeds; symbolic: only the channels of images and the filter's shape are known.

    A size vector then is the shape of another input, as gradient graphs have it.
    """
    data_format = case.attributes.get("data_format", default_format(case))
    inputs, initializers, nodes, feeds = [], [], [], {}
    for name, value in case.operands.items():
        assert isinstance(value, np.ndarray)
        if name in WINDOWS_SIZES or (name in SIZES and (name == "filter_sizes" or not symbolic)):
            initializers.append(numpy_helper.from_array(value, name))
            continue
        fed, source = value, name
        if name in SIZES:
            fed, source = np.zeros(value, np.float32), f"{name}.of"
            nodes += [
                helper.make_node("Shape", [source], [f"{name}.wide"]),
                helper.make_node("Cast", [f"{name}.wide"], [name], to=TensorProto.INT32),
            ]
        dims: list[int | str] = list(fed.shape)
        if symbolic and (name in IMAGES or name in SIZES):
            dims = [d if letter == "C" else f"{name}.{letter}" for letter, d in zip(data_format, dims, strict=True)]
        inputs.append(helper.make_tensor_value_info(source, helper.np_dtype_to_tensor_dtype(fed.dtype), dims))
        feeds[source] = fed
    outputs = [output.name for output in REGISTRY[case.op].outputs]
    kept = [name for name in outputs if has_contents(case, name)]
    dtypes = {name: next(case.operands[image] for image in IMAGES if image in case.operands).dtype for name in kept[:1]}
    results = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(dtypes.get(name, np.dtype(np.float32))), None
        )
        for name in kept
    ]
    nodes.append(helper.make_node(case.op, list(case.operands), outputs, name="node", domain=DOMAIN, **_given(case)))
    graph = helper.make_graph(nodes, "one", inputs, results, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), feeds


def default_format(case: Case) -> str:
    return "NDHWC" if "3D" in case.op else "NHWC"


def _given(case: Case) -> dict[str, Any]:
    return {name: value for name, value in case.attributes.items() if value != []}


@pytest.mark.parametrize(("group", "opset", "symbolic"), in_some_forms(cases()))
def test_lowered_equals_tensorflow(group: list[Case], opset: int, symbolic: bool) -> None:
    def make(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
        return model_of(case, opset, symbolic=symbolic)

    for case, results in lowered_results(group, make):
        if not on_cpu(case):
            if not case.op.startswith("FusedBatchNorm"):
                _assert_derivative(case, *results)
            continue
        for (name, kernel), ours in zip(recording()[case.id].items(), results, strict=True):
            assert_as_recorded(f"{case.id}: {name}", ours, kernel)


def forward(case: Case, image: Array, weights: Array | None) -> Array:
    """The forward op by its definition, window by window, in NHWC: a convolution, or a pooling where `weights` is None.

    At window p, element r of the window lies on element p * stride + r * dilation - before of the image.
    """
    attributes = _attributes(case)
    positions = spatial_positions(attributes["data_format"])
    kernel = weights.shape[:-2] if weights is not None else [attributes["ksize"][at] for at in positions]
    axes, sizes = spatial_axes(attributes, kernel), image.shape[1:-1]
    counts = [axis.output_size(size) for axis, size in zip(axes, sizes, strict=True)]
    befores = [
        {"VALID": 0, "EXPLICIT": axis.explicit[0]}.get(
            axis.padding, max((count - 1) * axis.stride + axis.extent - size, 0) // 2
        )
        for axis, count, size in zip(axes, counts, sizes, strict=True)
    ]
    results = []
    for place in np.ndindex(*counts):
        met, parts = [], []
        for tap in np.ndindex(*kernel):
            at = [
                p * axis.stride + r * axis.dilation - before
                for p, r, axis, before in zip(place, tap, axes, befores, strict=True)
            ]
            if all(0 <= place < size for place, size in zip(at, sizes, strict=True)):
                met.append(image[(slice(None), *at)])
                parts.append(None if weights is None else weights[tap])
        results.append(_combined(case, np.stack(met, -1) if met else None, parts, image))
    return np.stack(results, 1).reshape(image.shape[0], *counts, -1)


def _combined(case: Case, met: Array | None, parts: list[Any], image: Array) -> Array:
    """One window: [N, C, elements] and the filter's parts [I, K] (of a depthwise one [C, M]) to [N, results]."""
    if case.op.startswith("MaxPool"):
        assert met is not None
        return np.asarray(met.max(-1))
    if case.op.startswith("AvgPool"):
        assert met is not None
        return np.asarray(met.mean(-1))
    filters = np.stack(parts, -1)  # [I, K, elements]
    if case.op.startswith("Depthwise"):
        return np.einsum("nce,cme->ncm", met, filters).reshape(len(image), -1)
    groups = image.shape[-1] // filters.shape[0]
    split = np.stack(np.split(filters, groups, 1))
    parted = np.stack(np.split(met, groups, 1))
    return np.einsum("gnie,gike->ngk", parted, split).reshape(len(image), -1)


def _nhwc(x: Any, case: Case) -> Array:
    return np.moveaxis(
        np.asarray(x, np.float64), case.attributes.get("data_format", default_format(case)).index("C"), -1
    )


def _attributes(case: Case) -> dict[str, Any]:
    """The attributes, and those that are operands here."""
    operands = {name: case.operands[name].tolist() for name in WINDOWS_SIZES if name in case.operands}
    return {"data_format": default_format(case), "explicit_paddings": []} | dict(case.attributes) | operands


def _assert_derivative(case: Case, gradient: Array) -> None:
    """Along a random direction, which for the linear ops needs no difference."""
    given, rng = case.operands, np.random.default_rng(1)
    cotangent = _nhwc(given["grad" if "Pool" in case.op else "out_backprop"], case)
    direction = rng.standard_normal(gradient.shape)
    along = np.vdot(gradient.astype(np.float64), direction)
    if "BackpropFilter" in case.op:
        derivative = np.vdot(forward(case, _nhwc(given["input"], case), direction), cotangent)
    elif case.op.startswith("MaxPool"):
        image = _nhwc(given["input" if "input" in given else "orig_input"], case)
        # The gradient of a gradient is linear in what both were taken along: it is the derivative along that.
        towards, along_it = (
            (cotangent, _nhwc(direction, case)) if "GradGrad" in case.op else (_nhwc(direction, case), cotangent)
        )
        step = 1e-6 * towards
        derivative = np.vdot(forward(case, image + step, None) - forward(case, image - step, None), along_it) / 2e-6
    else:
        weights = given.get("filter")
        moved = forward(case, _nhwc(direction, case), None if weights is None else np.asarray(weights, np.float64))
        derivative = np.vdot(moved, cotangent)
    # A wrong element of the gradient is of its magnitude; rounding grows with the root of their number.
    assert abs(along - derivative) <= 1e-6 * np.linalg.norm(gradient) * np.linalg.norm(direction), case.id


def _in_the_other_layout(case: Case) -> Case:
    """The call of batch normalisation with its channels last, which TensorFlow's kernels take."""
    data_format = case.attributes["data_format"]
    last = data_format.replace("C", "") + "C"
    operands = {name: np.moveaxis(value, 1, -1) if name in IMAGES else value for name, value in case.operands.items()}
    return dataclasses.replace(case, operands=operands, attributes={**case.attributes, "data_format": last})


def test_normalization_with_channels_first_is_that_with_channels_last() -> None:
    for case in cases():
        if on_cpu(case) or not case.op.startswith("FusedBatchNorm"):
            continue
        pair = [case, _in_the_other_layout(case)]
        (_, first), (_, last) = lowered_results(pair, lambda case: model_of(case, 18, symbolic=False))
        for ours, expected in zip(first, last, strict=True):
            expected = np.moveaxis(expected, -1, 1) if expected.ndim > 1 else expected
            assert_as_recorded(case.id, ours, np.asarray(expected))


@pytest.mark.parametrize("case", [case for case in CASES if on_cpu(case.values[0])][::7])  # type: ignore[arg-type]
def test_recording_is_what_tensorflow_computes(case: Case) -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_spatial import filled

    for name, value in filled(case).items():
        assert_recorded(value, recording()[case.id][name], 1e-5, name)


def test_every_op_has_a_case() -> None:
    families = ("convolution", "pooling", "normalization")
    assert {op.op_type for op in REGISTRY.values() if op.family in families} == {case.op for case in cases()}
