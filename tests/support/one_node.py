"""Models of one node, for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.support.differences import Array, check, run


def one_node(
    op: str,
    operands: Sequence[Array | None],
    *,
    constant: Sequence[int] = (),
    open_sizes: bool = False,
    outputs: int = 1,
    opset: int = 18,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model and its feeds; an output whose rank is not known becomes a vector.

    Args:
        op: the operator.
        operands: values, `None` for one left out.
        constant: positions of those that are initializers.
        open_sizes: whether floating inputs say nothing but their ranks.
        outputs: the number of outputs, `y`, `y1`, ...
        opset: of `ai.onnx`.
        attributes: of the node.
    """
    names = ["" if array is None else f"x{i}" for i, array in enumerate(operands)]
    inputs, initializers, feeds = [], [], {}
    for i, (name, array) in enumerate(zip(names, operands, strict=True)):
        if array is None:
            continue
        if i in constant:
            initializers.append(numpy_helper.from_array(array, name))
            continue
        sizes = [None] * array.ndim if open_sizes and array.dtype.kind == "f" else array.shape
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes))
        feeds[name] = array
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    node = helper.make_node(op, names, results, "node", **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in results], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    for name, value in zip(results, model.graph.output, strict=True):
        if not value.type.tensor_type.HasField("shape"):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray([-1]), f"{name}/flat"))
            model.graph.node[0].output[results.index(name)] = f"{name}/unknown"
            model.graph.node.append(helper.make_node("Reshape", [f"{name}/unknown", f"{name}/flat"], [name]))
    return onnx.shape_inference.infer_shapes(model), feeds


def check_node(
    op: str,
    operands: Sequence[Array | None],
    *,
    of: str = "y",
    wrt: Sequence[str] | None = None,
    twice: bool = False,
    open_sizes: Sequence[bool] = (False, True),
    step: float = 1e-5,
    tolerance: float = 1e-8,
    **form: Any,
) -> None:
    """Checks a node's gradients, with all sizes known and with `open_sizes`; `twice`: also those of the gradients."""
    for is_open in open_sizes:
        model, feeds = one_node(op, operands, open_sizes=is_open, **form)
        once = check(model, feeds, of=of, wrt=wrt, step=step, tolerance=tolerance)
        if twice:
            y = run(model, feeds)[of]
            fed = {**feeds, f"seed/{of}": np.random.default_rng(5).standard_normal(y.shape).astype(y.dtype)}
            for value in once.graph.output:
                if value.name.startswith("grad/"):
                    check(
                        once,
                        fed,
                        of=value.name,
                        wrt=None if wrt is None else [*wrt, f"seed/{of}"],
                        step=step,
                        tolerance=tolerance,
                    )
