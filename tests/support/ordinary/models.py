"""Models of one node, made from a case, what is right, and how exact their results must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lstm_lower.dtypes import parts_of
from lstm_lower.opdef import REGISTRY
from lstm_lower.registry import DOMAIN
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.gradient_cases import Array
from tests.support.ordinary.case import BFLOAT16, Case, flat, recording

# Relative to an element's magnitude, or to the largest: how far a kernel may be from the exact result, and what a few
# roundings cost on top of that.
TOLERANCE = {"float16": 5e-3, "bfloat16": 4e-2, "float32": 5e-6, "float64": 1e-13}
TOLERANCE.update(complex64=TOLERANCE["float32"], complex128=TOLERANCE["float64"])


def results_of(family: str, case: Case) -> dict[str, Array]:
    """What is right, entries of lists numbered."""
    if case.oracle:
        with np.errstate(all="ignore"):
            return flat(ORACLES[case.op](**case.operands, **case.attributes))
    return recording(family)[case.id] if case.expected is None else flat(case.expected)


def model_of(
    case: Case, opset: int, outputs: Sequence[np.dtype[Any]], *, symbolic: bool, unranked: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of the one node, and its feeds.

    Args:
        case: the call.
        opset: version of `ai.onnx`.
        outputs: dtypes of the node's outputs. onnxruntime takes and gives bfloat16 as float32 only.
        symbolic: whether no size of an operand is known and what steers the op is fed, see `Case`.
        unranked: whether not even a rank is known, but for what steers the op.
    """
    inputs, initializers, names, nodes, feeds = [], [], [], [], {}
    attributes: dict[str, Any] = {name: value for name, value in case.attributes.items() if value != []}
    for declared in REGISTRY[case.op].inputs:
        value = case.operands.get(declared.name)
        if declared.count and isinstance(value, list):
            attributes[declared.count] = len(value)
        parts = [] if value is None else value if isinstance(value, list) else [value]
        names += [""] * (value is None)
        for number, part in enumerate(parts):
            name = f"{declared.name}:{number}"
            names.append(name)
            if declared.name in case.constants or (declared.name in case.steering and not symbolic):
                initializers.append(numpy_helper.from_array(part, name))
                continue
            fed = name
            if part.dtype == BFLOAT16:
                part, fed = part.astype(np.float32), f"{name}.wide"
                nodes.append(helper.make_node("Cast", [fed], [name], to=TensorProto.BFLOAT16))
            dims: list[Any] = list(part.shape)
            if declared.name not in case.steering and unranked:
                # An input must have a rank; what a Reshape makes may have any.
                shape, flat_name = np.array(part.shape, np.int64), f"{name}.flat"
                inputs.append(helper.make_tensor_value_info(f"{name}.shape", TensorProto.INT64, [f"{name}.rank"]))
                nodes.insert(0, helper.make_node("Reshape", [flat_name, f"{name}.shape"], [fed], allowzero=1))
                feeds[f"{name}.shape"] = shape
                part, fed, dims = part.reshape(-1), flat_name, [None]
            elif declared.name not in case.steering and symbolic:
                dims = [f"{name}.{axis}" for axis in range(part.ndim)]
            inputs.append(helper.make_tensor_value_info(fed, helper.np_dtype_to_tensor_dtype(part.dtype), dims))
            # Lowering makes real numbers of complex ones.
            feeds[fed] = parts_of(part) if part.dtype.kind == "c" else np.asarray(part)
    while names and not names[-1]:
        names.pop()
    made = [f"out:{number}" for number in range(len(outputs))]
    nodes.append(helper.make_node(case.op, names, made, name="node", domain=DOMAIN, **attributes))
    results = []
    for name, dtype in zip(made, outputs, strict=True):
        if dtype == BFLOAT16:
            nodes.append(helper.make_node("Cast", [name], [f"{name}.wide"], to=TensorProto.FLOAT))
            name, dtype = f"{name}.wide", np.dtype(np.float32)
        results.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None))
    graph = helper.make_graph(nodes, "one", inputs, results, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), feeds


def assert_close(case: Case, name: str, ours: Array, right: Array) -> None:
    """As close as kernels are; integers are equal, and so is what is not finite."""
    assert ours.shape == right.shape, name
    tolerance = TOLERANCE.get(ours.dtype.name, 0)
    if ours.dtype.kind == "c":
        ours, right = parts_of(ours), parts_of(np.asarray(right, ours.dtype))
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, right, err_msg=name)
        return
    with np.errstate(over="ignore"):
        rounded = right.astype(ours.dtype).astype(np.float64)
    wide, finite = ours.astype(np.float64), np.isfinite(rounded)
    np.testing.assert_array_equal(wide[~finite], rounded[~finite], err_msg=name)
    if not finite.any():
        return
    exact = right.astype(np.float64)[finite]
    error, scale = np.abs(wide[finite] - exact), np.abs(exact)
    if not case.relative:
        error, scale = error.max(), scale.max()
    # Kernels and onnxruntime alike flush what is below the least normal number.
    too_far = error > tolerance * scale + float(ml_dtypes.finfo(ours.dtype).tiny)
    assert not np.any(too_far), (name, wide[finite][too_far], exact[too_far])
