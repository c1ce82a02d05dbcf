"""Gradients of convolutions, poolings and batch normalisation against TensorFlow, and against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lstm_lower.opdef import REGISTRY
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from lstm_lower.spatial import spatial_axes, spatial_positions
from tests.rules.test_gradients import DOMAIN, ROUNDING, assert_as_exact, lowered_results
from tests.support.examples import by_op, in_some_forms
from tests.support.gradient_cases import Array, Case
from tests.support.recorded import assert_recorded
from tests.support.spatial_cases import IMAGES, SIZES, WINDOWS_SIZES, cases, has_contents, on_cpu, recording

CASES = [pytest.param(case, id=case.id) for case in cases()]


def exact_results(case: Case) -> dict[str, Array]:
    results = ORACLES[case.op](**case.operands, **case.attributes)
    return {name: value for name, value in results.items() if has_contents(case, name)}


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


@pytest.mark.parametrize("group", by_op(filter(on_cpu, cases())))
def test_oracle_equals_tensorflow(group: list[Case]) -> None:
    for case in group:
        assert_oracle_equals_tensorflow(case)


def assert_oracle_equals_tensorflow(case: Case) -> None:
    exact, recorded = exact_results(case), recording()[case.id]
    assert list(exact) == list(recorded), case.id
    for name, kernel in recorded.items():
        value = np.asarray(exact[name])
        assert value.shape == kernel.shape, case.id
        scale = np.abs(value).max(initial=1)
        tolerance = {"float16": 4e-3, "float32": 4e-6, "float64": 1e-13}[kernel.dtype.name]
        np.testing.assert_allclose(kernel, value, rtol=0, atol=tolerance * scale, err_msg=case.id)


@pytest.mark.parametrize(("group", "opset", "symbolic"), in_some_forms(cases()))
def test_lowered_equals_tensorflow(group: list[Case], opset: int, symbolic: bool) -> None:
    def make(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
        # Before, windows must not overlap: a test of its own.
        return model_of(case, max(opset, 16) if case.op.startswith("MaxPool") else opset, symbolic=symbolic)

    for case, results in lowered_results(group, make):
        for (name, value), ours in zip(exact_results(case).items(), results, strict=True):
            label = f"{case.id}: {name}"
            if on_cpu(case):
                assert_as_exact(label, ours, recording()[case.id][name], np.asarray(value))
                continue
            assert ours.shape == np.shape(value), label
            tolerance = ROUNDING[ours.dtype.name] * np.abs(value).max(initial=0)
            np.testing.assert_allclose(ours, value, rtol=0, atol=tolerance, err_msg=label)


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


def _has_derivative(case: Case) -> bool:
    """Batch normalization has a test of its own; of equal elements of volumes each gets the whole gradient."""
    return "FusedBatch" not in case.op and not (case.op == "MaxPool3DGrad" and "tied" in case.what)


def _attributes(case: Case) -> dict[str, Any]:
    """The attributes, and those that are operands here."""
    operands = {name: case.operands[name].tolist() for name in WINDOWS_SIZES if name in case.operands}
    return {"data_format": default_format(case), "explicit_paddings": []} | dict(case.attributes) | operands


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases() if _has_derivative(case)])
def test_oracle_is_the_derivative(case: Case) -> None:
    """Along a random direction, which for the linear ops needs no difference."""
    given, rng = case.operands, np.random.default_rng(1)
    (gradient,) = exact_results(case).values()
    cotangent = _nhwc(given["grad" if "Pool" in case.op else "out_backprop"], case)
    direction = rng.standard_normal(gradient.shape)
    along = np.vdot(gradient, direction)
    if "BackpropFilter" in case.op:
        derivative = np.vdot(forward(case, _nhwc(given["input"], case), direction), cotangent)
    elif case.op.startswith("MaxPool"):
        image = _nhwc(given["input" if "input" in given else "orig_input"], case)
        if "tied" in case.what:  # the first of equal elements becomes the only one
            image = image - 1e-4 * np.arange(image[0].size).reshape(image.shape[1:])
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
    np.testing.assert_allclose(along, derivative, rtol=1e-7, atol=1e-7)


def test_oracle_of_batch_normalization_is_the_derivative() -> None:
    rng = np.random.default_rng(0)
    for data_format, training in [("NHWC", True), ("NCHW", True), ("NHWC", False)]:
        x, cotangent, moved = rng.standard_normal((3, 2, 3, 4, 5))
        channels = x.shape[data_format.index("C")]
        scale, offset, mean, variance = rng.random((4, channels)) + 0.5
        shared = {"data_format": data_format, "is_training": training, "epsilon": 0.01}

        def loss(
            x: Array, scale: Array, offset: Array, mean: Array = mean, variance: Array = variance,
            shared: dict[str, Any] = shared, cotangent: Array = cotangent,
        ) -> tuple[float, dict[str, Array]]:  # fmt: skip
            results = ORACLES["FusedBatchNormV3"](
                x=x, scale=scale, offset=offset, mean=mean, variance=variance, **shared
            )
            return float(np.vdot(results["y"], cotangent)), results

        _, saved = loss(x, scale, offset)
        results = ORACLES["FusedBatchNormGradV3"](
            y_backprop=cotangent,
            x=x,
            scale=scale,
            reserve_space_1=saved["reserve_space_1"],
            reserve_space_2=saved["reserve_space_2"],
            reserve_space_3=0.0,
            **shared,
        )
        step, towards = 1e-6, rng.standard_normal(channels)
        pairs = [
            (results["x_backprop"], moved, lambda h, m=moved: loss(x + h * m, scale, offset)[0]),  # noqa: B023
            (results["scale_backprop"], towards, lambda h, m=towards: loss(x, scale + h * m, offset)[0]),  # noqa: B023
            (results["offset_backprop"], towards, lambda h, m=towards: loss(x, scale, offset + h * m)[0]),  # noqa: B023
        ]
        evaluate: Callable[[float], float]
        for gradient, direction, evaluate in pairs:
            difference = (evaluate(step) - evaluate(-step)) / (2 * step)
            np.testing.assert_allclose(np.vdot(gradient, direction), difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", [case for case in CASES if on_cpu(case.values[0])][::7])  # type: ignore[arg-type]
def test_recording_is_what_tensorflow_computes(case: Case) -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_spatial import filled

    for name, value in filled(case).items():
        assert_recorded(value, recording()[case.id][name], 1e-5, name)


def test_every_op_has_a_case() -> None:
    families = ("convolution", "pooling", "normalization")
    assert {op.op_type for op in REGISTRY.values() if op.family in families} == {case.op for case in cases()}
