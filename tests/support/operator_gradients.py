"""Gradients of models of a single node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import helper
from onnx.reference.op_run import OpRun

import lstm_lower as ll
from tests.support.differences import Array, Run, check, opened, run

NEWEST = 24


def random(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    """Numbers of a normal distribution, the same in every run."""
    found = np.random.default_rng(seed + 7 * len(shape) + sum(shape)).standard_normal(shape)
    return np.asarray(found, dtype)


def model_of(
    op_type: str,
    feeds: Mapping[str, Array | None],
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = NEWEST,
    dims: Mapping[str, Sequence[Any] | None] | str = "open",
    constants: Sequence[str] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node.

    Args:
        op_type: the operator.
        feeds: the operands in order; `None` for one that is left out.
        outputs: names, empty for one that is left out.
        opset: version of `ai.onnx`.
        dims: `open` for dimensions of names of their own, `static` for sizes, `unranked`, or the shapes by name.
        constants: the operands that are initializers.
        **attributes: the node's.
    """
    inputs, initializers = [], []
    for name, value in feeds.items():
        if value is None:
            continue
        if name in constants:
            initializers.append(onnx.numpy_helper.from_array(value, name))
            continue
        shape: Sequence[Any] | None = [f"{name}_{axis}" for axis in range(value.ndim)]
        if dims == "static":
            shape = value.shape
        elif dims == "unranked":
            shape = None
        elif not isinstance(dims, str):
            shape = dims.get(name, value.shape)
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    node = helper.make_node(
        op_type, ["" if value is None else name for name, value in feeds.items()], list(outputs), **attributes
    )
    typed = [value for value in feeds.values() if value is not None and value.dtype.kind == "f"]
    dtype = helper.np_dtype_to_tensor_dtype(typed[0].dtype)
    made = [helper.make_tensor_value_info(name, dtype, None) for name in outputs[:1] if name]
    graph = helper.make_graph([node], "graph", inputs, made, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    del model.graph.output[:]
    model = onnx.shape_inference.infer_shapes(model)
    types = {value.name: value for value in model.graph.value_info}
    for name in outputs:
        if name:
            model.graph.output.append(types.get(name) or helper.make_tensor_value_info(name, dtype, None))
    return model


class Erf(OpRun):
    """onnx's own computes in float32."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class Gelu(OpRun):
    """Likewise."""

    def _run(self, x: Array, approximate: str | None = None) -> tuple[Array]:
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x * math.sqrt(0.5))),)


def evaluated(model: onnx.ModelProto, *, optimise: bool = True) -> Run:
    """A model as a function, see `opened`, by onnx's own evaluator, which has every operator in float64."""
    names = [value.name for value in model.graph.output]
    evaluator = onnx.reference.ReferenceEvaluator(model, new_ops=[Erf, Gelu])
    return lambda feeds: dict(zip(names, evaluator.run(names, dict(feeds)), strict=True))


def given(feeds: Mapping[str, Array | None], dtype: Any = None) -> dict[str, Array]:
    """The operands that are there, floating ones in another dtype."""
    return {
        name: value.astype(dtype) if dtype is not None and value.dtype.kind == "f" else value
        for name, value in feeds.items()
        if value is not None
    }


def check_node(
    op_type: str,
    feeds: Mapping[str, Array | None],
    *,
    outputs: Sequence[str] = ("y",),
    wrt: Sequence[str] | None = None,
    twice: bool = False,
    single: bool = False,
    tolerance: float = 1e-7,
    engine: Callable[..., Run] | None = None,
    **options: Any,
) -> None:
    """Checks the gradients of every output, in float64 where the runtime has that, by onnx's evaluator otherwise.

    Args:
        op_type: the operator.
        feeds: see `model_of`.
        outputs: names; gradients are taken of each of a floating dtype.
        wrt: operands; all of a floating dtype for `None`.
        twice: whether gradients of the gradients are checked as well.
        single: whether the runtime has the operator in float32 only.
        tolerance: see `check`.
        engine: what makes models functions instead, see `check`.
        **options: of `model_of`.
    """
    there = given(feeds)
    model = model_of(op_type, feeds, outputs=outputs, **options)
    fed = {name: value for name, value in there.items() if name not in options.get("constants", ())}
    wrt = [name for name, value in there.items() if value.dtype.kind == "f"] if wrt is None else wrt
    engine = engine or (evaluated if single else opened)
    for output in model.graph.output:
        if output.type.tensor_type.elem_type not in (onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT):
            continue
        once = check(model, fed, of=output.name, wrt=wrt, engine=engine, tolerance=tolerance)
        y = engine(model)(fed)[output.name]
        seed = np.asarray(np.random.default_rng(5).standard_normal(y.shape), y.dtype)
        if single:
            _check_float32(
                model_of(op_type, _in_float32(feeds), outputs=outputs, **options), once, fed, output.name, seed
            )
        if twice:
            name = f"seed/{output.name}"
            for first in wrt:
                check(
                    once, {**fed, name: seed}, of=f"grad/{first}", wrt=[*wrt, name], engine=engine, tolerance=tolerance
                )


def _in_float32(feeds: Mapping[str, Array | None]) -> dict[str, Array | None]:
    return {name: None if value is None else given({"x": value}, np.float32)["x"] for name, value in feeds.items()}


def _check_float32(
    model: onnx.ModelProto, once: onnx.ModelProto, fed: Mapping[str, Array], of: str, seed: Array
) -> None:
    """The runtime's gradients in float32 are those of float64."""
    names = [x.name.removeprefix("grad/") for x in once.graph.output if x.name.startswith("grad/")]
    wanted = evaluated(once)({**fed, f"seed/{of}": seed})
    found = run(ll.gradient(model, of, names, seeds=True), given({**fed, f"seed/{of}": seed}, np.float32))
    for name in names:
        expected = wanted[f"grad/{name}"]
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(found[f"grad/{name}"], expected, rtol=2e-5, atol=2e-5 * scale, err_msg=name)
