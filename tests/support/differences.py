"""Gradients against central differences, through the public interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

import lstm_lower as ll

Array = np.ndarray[Any, Any]


Run = Callable[[Mapping[str, Array]], dict[str, Array]]


def opened(model: onnx.ModelProto, *, optimise: bool = True) -> Run:
    """A model as a function of its feeds that returns its outputs by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, dict(feeds)), strict=True))


def run(model: onnx.ModelProto, feeds: Mapping[str, Array], *, optimise: bool = True) -> dict[str, Array]:
    """A model's outputs by name."""
    return opened(model, optimise=optimise)(feeds)


def initializers_as_inputs(model: onnx.ModelProto, names: Sequence[str]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model in which some initializers are inputs, and their values."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    values = {}
    for tensor in list(changed.graph.initializer):
        if tensor.name in names:
            values[tensor.name] = onnx.numpy_helper.to_array(tensor)
            changed.graph.initializer.remove(tensor)
            changed.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return changed, values


def check(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    *,
    of: str | None = None,
    wrt: Sequence[str] | None = None,
    step: float = 1e-5,
    tolerance: float = 1e-8,
    seed: int = 0,
    optimise: bool = True,
    engine: Callable[..., Run] = opened,
) -> onnx.ModelProto:
    """Checks every gradient along one random direction; returns the model with the gradients.

    Args:
        model: a model in float64.
        feeds: its inputs.
        of: the output to differentiate, along a random seed; `None` for the first.
        wrt: names of inputs and initializers; `None` for all inputs of a floating dtype.
        step: of the differences.
        tolerance: of the directional derivatives, relative to the largest and to 1.
        seed: of the random numbers.
        optimise: whether onnxruntime optimises.
        engine: makes a model a function, as `opened` does.
    """
    of = of or model.graph.output[0].name
    if wrt is None:
        wrt = [name for name, value in feeds.items() if value.dtype.kind == "f"]
    result = ll.gradient(model, of, list(wrt), seeds=True)
    # The checker asks for shapes.
    if all(value.type.tensor_type.HasField("shape") for value in [*model.graph.input, *model.graph.output]):
        onnx.checker.check_model(result, full_check=True)
    names = [x.name for x in model.graph.initializer if x.name in wrt]
    open_model, values = initializers_as_inputs(model, names)
    values |= dict(feeds)
    rng = np.random.default_rng(seed)
    evaluate = engine(open_model, optimise=optimise)
    y = evaluate(values)[of]
    weights = np.asarray(rng.standard_normal(y.shape), y.dtype)
    made = engine(result, optimise=optimise)({**feeds, f"seed/{of}": weights})
    taken = {value.name for value in model.graph.output}
    for name in wrt:
        # Of a gradient's gradient the plain name is taken.
        gradient, value = made[f"grad/{of}/{name}" if f"grad/{name}" in taken else f"grad/{name}"], values[name]
        assert gradient.shape == value.shape, f"{name}: {gradient.shape} of {value.shape}"
        assert gradient.dtype == value.dtype, name
        direction = np.asarray(rng.standard_normal(value.shape), value.dtype)

        def at(distance: float, name: str = name, direction: Array = direction) -> float:
            fed = {**values, name: np.asarray(values[name] + distance * direction, values[name].dtype)}
            return float((evaluate(fed)[of] * weights).sum())

        # Of fourth order.
        difference = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
        analytic = float((gradient * direction).sum())
        scale = max(1.0, abs(difference))
        assert abs(analytic - difference) <= tolerance * scale, f"{name}: {analytic} instead of {difference}"
    return result
