"""Models of one node, for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.support.differences import Array, check, run
from tests.support.operator_gradients import model_of


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
    named = {f"x{i}": array for i, array in enumerate(operands)}
    dims = {
        name: [None] * array.ndim if open_sizes and array.dtype.kind == "f" else array.shape
        for name, array in named.items()
        if array is not None
    }
    fixed = [f"x{i}" for i in constant]
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    model = model_of(op, named, outputs=results, opset=opset, dims=dims, constants=fixed, **attributes)
    for name, value in zip(results, model.graph.output, strict=True):
        if not value.type.tensor_type.HasField("shape"):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray([-1]), f"{name}/flat"))
            model.graph.node[0].output[results.index(name)] = f"{name}/unknown"
            model.graph.node.append(helper.make_node("Reshape", [f"{name}/unknown", f"{name}/flat"], [name]))
    feeds = {name: array for name, array in named.items() if array is not None and name not in fixed}
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
