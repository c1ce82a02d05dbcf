"""Float64 oracles of onnxruntime-training's ops beside the recurrent ones: tables from ops to numpy.

Gradients of convolutions and resizes, which are linear in each operand, are found by `onnx.reference` on unit vectors,
those of normalizations by their closed form.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.reference

from lstm_lower.graph import standard as std
from lstm_lower.opdef import OpDef
from lstm_lower.ops import ort_arrays, ort_elementwise, ort_layers, ort_updates
from lstm_lower.runtime.proof.oracles.numerics import Values, ints, sigmoid, wide
from lstm_lower.runtime.proof.oracles.registry import oracle

# From operands, floating ones in float64, and attributes by name to the outputs in order.
Function = Callable[..., Any]


def register_all(table: Mapping[type[OpDef], Function]) -> None:
    """Registers a table from ops to functions as oracles; parameters have the names of operands and attributes.

    Raises:
        TypeError: a function leaves out an operand, or asks for what its op has not.
    """
    for op, function in table.items():
        _register(op, function)


def _register(op: type[OpDef], function: Function) -> None:
    known = inspect.signature(function).parameters
    everything = any(parameter.kind == parameter.VAR_KEYWORD for parameter in known.values())
    operands, variadic = ([x.name for x in op.inputs if x.variadic or each] for each in (True, False))
    asked = {name for name, parameter in known.items() if parameter.default is parameter.empty}
    if asked - {*operands, *(x.name for x in op.attributes)} and not everything:
        raise TypeError(f"the oracle of {op.op_type} requires names of operands and attributes, got {sorted(asked)}")
    if not everything and not known.keys() >= set(operands):
        raise TypeError(f"the oracle of {op.op_type} requires parameters for {operands}, got {sorted(known)}")

    @oracle(op)
    def evaluate(**given: Any) -> dict[str, Any]:
        call = {attribute.name: attribute.default for attribute in op.attributes if not attribute.required}
        for name, value in given.items():
            call[name] = [wide(v) for v in value] if name in variadic else wide(value) if name in operands else value
        with np.errstate(all="ignore"):
            results = function(**{name: value for name, value in call.items() if everything or name in known})
        results = results if isinstance(results, tuple) else (results,)
        return {output.name: result for output, result in zip(op.outputs, results, strict=False)}


def _normal(x: Values) -> Values:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)) + 1) / 2


def _gelu_slope(x: Values) -> Values:
    return _normal(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _tanh_of(x: Values) -> Values:
    return np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _fast_gelu_slope(x: Values) -> Values:
    t = _tanh_of(x)
    return np.asarray((1 + t) / 2 + x / 2 * (1 - t**2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2))


def _quick_gelu_slope(x: Values, alpha: float) -> Values:
    s = sigmoid(alpha * x)
    return s + alpha * x * s * (1 - s)


def _summed_to(gradient: Values, shape: tuple[int, ...]) -> Values:
    """The sum over what an operand of a shape was repeated along."""
    lead = gradient.ndim - len(shape)
    gradient = gradient.sum(tuple(range(lead)))
    return np.asarray(gradient.sum(tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True).reshape(shape))


def _over(x: Values, axis: int, *, only: bool) -> tuple[int, ...]:
    return (axis,) if only else tuple(range(axis % x.ndim, x.ndim))


def _softmax_grad(*, only: bool) -> Function:
    def gradient(dY: Values, Y: Values, axis: int) -> Values:
        return np.asarray(Y * (dY - (dY * Y).sum(_over(Y, axis, only=only), keepdims=True)))

    return gradient


def _log_softmax_grad(*, only: bool) -> Function:
    def gradient(dY: Values, Y: Values, axis: int) -> Values:
        return np.asarray(dY - np.exp(Y) * dY.sum(_over(Y, axis, only=only), keepdims=True))

    return gradient


def _scaled(**operands: Any) -> Values:
    factor = float(np.ravel(operands["scale"])[0])
    return np.asarray(operands["input"] * (1 / factor if operands["scale_down"] else factor))


def _batch_scaled(**operands: Any) -> tuple[Values, ...]:
    return tuple(operands["input"] * operands[f"scale_{i}"] for i in range(3))


def _divided(**operands: Any) -> tuple[list[Values]]:
    places = np.cumsum(operands["split"])[:-1]
    return ([*np.split(operands["input"], places, operands["axis"])],)


def _dropout_grad(dY: Values, mask: Values, ratio: Any = 0.5, training_mode: Any = False) -> Values:
    return np.where(mask, dY / (1 - float(np.ravel(ratio)[0])), 0) if np.ravel(training_mode)[0] else dY


register_all(
    {
        ort_elementwise.ReluGrad: lambda dY, Y: np.where(Y > 0, dY, 0),
        ort_elementwise.LeakyReluGrad: lambda dY, Y, alpha: np.where(Y > 0, dY, alpha * dY),
        ort_elementwise.SigmoidGrad: lambda dY, Y: dY * Y * (1 - Y),
        ort_elementwise.TanhGrad: lambda dY, Y: dY * (1 - Y**2),
        ort_elementwise.SoftmaxGrad: _softmax_grad(only=False),
        ort_elementwise.SoftmaxGrad_13: _softmax_grad(only=True),
        ort_elementwise.LogSoftmaxGrad: _log_softmax_grad(only=False),
        ort_elementwise.LogSoftmaxGrad_13: _log_softmax_grad(only=True),
        ort_elementwise.Gelu: lambda X: X * _normal(X),
        ort_elementwise.GeluGrad: lambda dY, X: dY * _gelu_slope(X),
        ort_elementwise.BiasGelu: lambda X, B: (X + B) * _normal(X + B),
        ort_elementwise.BiasGeluGrad_dX: lambda dY, X, B: dY * _gelu_slope(X + B),
        ort_elementwise.FastGelu: lambda X, B=0.0: (X + B) * (1 + _tanh_of(X + B)) / 2,
        ort_elementwise.FastGeluGrad: lambda dY, X: dY * _fast_gelu_slope(X),
        ort_elementwise.BiasFastGeluGrad_dX: lambda dY, X, B: dY * _fast_gelu_slope(X + B),
        ort_elementwise.QuickGelu: lambda X, alpha: X * sigmoid(alpha * X),
        ort_elementwise.QuickGeluGrad: lambda dY, X, alpha: dY * _quick_gelu_slope(X, alpha),
        ort_elementwise.DivGrad: lambda dY, A, B: (_summed_to(dY / B, A.shape), _summed_to(-dY * A / B**2, B.shape)),
        ort_elementwise.Scale: _scaled,
        ort_elementwise.ScaledSum: lambda input_0, input_1, scale_0, scale_1, scale_2, input_2=0.0: (
            input_0 * scale_0 + input_1 * scale_1 + input_2 * scale_2
        ),
        ort_elementwise.BatchScale: _batch_scaled,
        ort_elementwise.DropoutGrad: _dropout_grad,
        ort_elementwise.ZeroGradient: lambda old_gradient, **_: old_gradient * 0,
    }
)


def _broadcast_axes(s0: Values, s1: Values) -> tuple[Values, ...]:
    rank = max(len(s0), len(s1))
    whole = [[1] * (rank - len(sizes)) + ints(sizes) for sizes in (s0, s1)]
    found = []
    for own, other in (whole, whole[::-1]):
        missing = rank - len(s0 if own is whole[0] else s1)
        found.append(np.array([i for i in range(rank) if i < missing or (own[i] == 1 and other[i] != 1)], np.int64))
    return tuple(found)


def _added(find: Callable[..., Values]) -> Function:
    """Where a look-up finds the numbers of elements, these are added up."""

    def gradient(dY: Values, shape: Values, **operands: Any) -> Values:
        numbers = np.arange(math.prod(ints(shape))).reshape(ints(shape))
        result = np.zeros(numbers.shape)
        np.add.at(result.reshape(-1), find(numbers, **operands).reshape(-1), dY.reshape(-1))
        return result

    return gradient


def _gathered(x: Values, indices: Values, batch_dims: int) -> Values:
    if batch_dims:
        return np.stack([_gathered(part, own, batch_dims - 1) for part, own in zip(x, indices, strict=True)])
    return np.asarray(x[tuple(np.moveaxis(indices, -1, 0))])


def _sliced(x: Values, starts: Values, ends: Values, axes: Values | None = None, steps: Values | None = None) -> Values:
    for place, (start, end) in enumerate(zip(ints(starts), ints(ends), strict=True)):
        axis = place if axes is None else ints(axes)[place]
        step = 1 if steps is None else ints(steps)[place]
        stop = None if step < 0 and end < -x.shape[axis] else end
        x = np.moveaxis(np.moveaxis(x, axis, 0)[slice(start, stop, step)], 0, axis)
    return x


def _matrix(x: Values, turned: int, batch: int = 0) -> Values:
    if x.ndim < 2:
        return x
    x = np.moveaxis(x, 0, -2) if batch else x
    return np.swapaxes(x, -1, -2) if turned else x


def _product(
    A: Values, B: Values, alpha: float, transA: int, transB: int, transBatchA: int = 0, transBatchB: int = 0
) -> Values:
    return np.asarray(alpha * (_matrix(A, transA, transBatchA) @ _matrix(B, transB, transBatchB)))


def _sum(data: Values, axes: Values, keepdims: int, noop_with_empty_axes: int) -> Values:
    if not len(axes):
        return data if noop_with_empty_axes else np.asarray(data.sum(keepdims=bool(keepdims)))
    return np.asarray(data.sum(tuple(ints(axes)), keepdims=bool(keepdims)))


register_all(
    {
        ort_arrays.BroadcastGradientArgs: _broadcast_axes,
        ort_arrays.GatherGrad: _added(np.take),
        ort_arrays.GatherElementsGrad: _added(
            lambda x, indices, axis: np.take_along_axis(x, indices % x.shape[axis], axis)
        ),
        ort_arrays.GatherNDGrad: _added(_gathered),
        ort_arrays.SliceGrad: _added(_sliced),
        ort_arrays.ConcatTraining: lambda inputs, axis: (
            np.concatenate(inputs, axis),
            np.array([part.shape[axis] for part in inputs], np.int64),
        ),
        ort_arrays.SplitTraining: _divided,
        ort_arrays.ReduceSumTraining: _sum,
        ort_arrays.FusedMatMul: _product,
        ort_arrays.TransposeMatMul: _product,
        ort_arrays.ReduceAllL2: lambda X: np.asarray(np.sqrt(sum((x**2).sum() for x in X))),
    }
)


def _evaluate(operator: type[std.Standard], operands: list[Values | None], attributes: Mapping[str, Any]) -> Values:
    """One of ONNX's operators by onnx's own reference, in float64."""
    names = [f"x{index}" if operand is not None else "" for index, operand in enumerate(operands)]
    given = {name: value for name, value in attributes.items() if value not in ([], ())}
    node = onnx.helper.make_node(operator.op_type, names, ["y"], **given)
    types = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape)
        for name, operand in zip(names, operands, strict=True)
        if operand is not None
    ]
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, None)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "one", types, [result]), opset_imports=[onnx.helper.make_opsetid("", 18)]
    )
    feeds = {name: operand for name, operand in zip(names, operands, strict=True) if operand is not None}
    (result_value,) = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(result_value)


def _by_unit_vectors(
    operator: type[std.Standard], dY: Values, operands: list[Values | None], place: int, **attributes: Any
) -> Values:
    """The gradient of an operand in which an operator is linear, and of which nothing else than that is added up."""
    operand = operands[place]
    assert operand is not None
    result = np.zeros(operand.shape)
    for element in np.ndindex(operand.shape):
        unit = np.zeros(operand.shape)
        unit[element] = 1
        result[element] = np.vdot(
            dY, _evaluate(operator, [*operands[:place], unit, *operands[place + 1 :]], attributes)
        )
    return result


def _convolved(operator: type[std.Standard]) -> Function:
    def gradient(dY: Values, X: Values, W: Values, **attributes: Any) -> tuple[Values, ...]:
        dX, dW = (_by_unit_vectors(operator, dY, [X, W], place, **attributes) for place in range(2))
        return dX, dW, dY.sum((0, *range(2, dY.ndim)))

    return gradient


def _resized(dY: Values, X: Values, roi: Any = None, scales: Any = None, **attributes: Any) -> Values:
    scales = None if scales is None else np.asarray(scales, np.float32)
    return _by_unit_vectors(std.Resize, dY, [X, roi, scales], 0, **attributes)


def _normalized(
    dY: Values, X: Values, scale: Values, epsilon: float, axes: tuple[int, ...], *, centered: bool
) -> tuple[Values, Values]:
    """The gradients of x over its deviation times a scale; that of the scale before it is summed."""
    c = X - X.mean(axes, keepdims=True) if centered else X
    inverse = 1 / np.sqrt((c**2).mean(axes, keepdims=True) + epsilon)
    normal, d = c * inverse, dY * scale
    d = d - normal * (d * normal).mean(axes, keepdims=True) - (d.mean(axes, keepdims=True) if centered else 0)
    return d * inverse, dY * normal


def _layer_norm_grad(dY: Values, X: Values, scale: Values, axis: int, epsilon: float, **_: Any) -> tuple[Values, ...]:
    dX, dscale = _normalized(dY, X, scale, epsilon, _over(X, axis, only=False), centered=True)
    return dX, _summed_to(dscale, scale.shape), _summed_to(dY, scale.shape)


def _simplified(X: Values, scale: Values, axis: int, epsilon: float) -> tuple[Values, Values]:
    inverse = 1 / np.sqrt((X**2).mean(_over(X, axis, only=False), keepdims=True) + epsilon)
    return X * inverse * scale, inverse


def _simplified_grad(
    dY: Values, X: Values, scale: Values, axis: int, epsilon: float, **_: Any
) -> tuple[Values, Values]:
    dX, dscale = _normalized(dY, X, scale, epsilon, _over(X, axis, only=False), centered=False)
    return dX, _summed_to(dscale, scale.shape)


def _channels(vector: Values, X: Values) -> Values:
    return vector.reshape(-1, *[1] * (X.ndim - 2))


def _batch_norm(
    X: Values, scale: Values, B: Values, input_mean: Values, input_var: Values, epsilon: float, momentum: float
) -> tuple[Values, ...]:
    axes = (0, *range(2, X.ndim))
    mean, variance = X.mean(axes), X.var(axes)
    inverse = 1 / np.sqrt(variance + epsilon)
    y = (X - _channels(mean, X)) * _channels(inverse * scale, X) + _channels(B, X)
    running = [old * momentum + new * (1 - momentum) for old, new in ((input_mean, mean), (input_var, variance))]
    return y, *running, mean, inverse


def _batch_norm_grad(dY: Values, X: Values, scale: Values, epsilon: float, **_: Any) -> tuple[Values, ...]:
    axes = (0, *range(2, X.ndim))
    dX, dscale = _normalized(dY, X, _channels(scale, X), epsilon, axes, centered=True)
    return dX, dscale.sum(axes), dY.sum(axes)


def _label_weights(label: Values, weight: Values | None, ignored: Any) -> Values:
    found = np.ones(label.shape) if weight is None else weight[np.where(label == ignored, 0, label)]
    return np.where(label == ignored, 0, found)


def _cross_entropy(
    scores: Values, labels: Values, reduction: str, weights: Values | None = None, ignore_index: Any = -1
) -> tuple[Values, Values]:
    shifted = scores - scores.max(1, keepdims=True)
    log_prob = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    w = _label_weights(labels, weights, ignore_index)
    chosen = np.where(labels == ignore_index, 0, labels)
    loss = -w * np.take_along_axis(log_prob, np.expand_dims(chosen, 1), 1).squeeze(1)
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / w.sum()}[reduction], log_prob


def _cross_entropy_grad(
    dY: Values, log_prob: Values, label: Values, reduction: str, weight: Values | None = None, ignore_index: Any = -1
) -> Values:
    w = _label_weights(label, weight, ignore_index)
    scaled = w * dY / (w.sum() if reduction == "mean" else 1)
    classes = np.arange(log_prob.shape[1]).reshape(-1, *[1] * (label.ndim - 1))
    return np.asarray((np.exp(log_prob) - (np.expand_dims(label, 1) == classes)) * np.expand_dims(scaled, 1))


register_all(
    {
        ort_layers.ConvGrad: _convolved(std.Conv),
        ort_layers.ConvTransposeGrad: _convolved(std.ConvTranspose),
        ort_layers.ResizeGrad: _resized,
        ort_layers.LayerNormalizationGrad: _layer_norm_grad,
        ort_layers.SimplifiedLayerNormalization: _simplified,
        ort_layers.SimplifiedLayerNormalizationGrad: _simplified_grad,
        ort_layers.BatchNormInternal: _batch_norm,
        ort_layers.BatchNormalizationGrad: _batch_norm_grad,
        ort_layers.SoftmaxCrossEntropyLossGrad: _cross_entropy_grad,
        ort_layers.SoftmaxCrossEntropyLossInternal: _cross_entropy,
        ort_layers.SoftmaxCrossEntropyLossInternalGrad: _cross_entropy_grad,
        ort_updates.InPlaceAccumulator: lambda old_sum, value, update_signal=True: (
            old_sum + value if np.ravel(update_signal)[0] else old_sum
        ),
        ort_updates.InPlaceAccumulatorV2: lambda accumulation_buffer, value, overwrite_flag=False: (
            np.array([True]),
            value if np.ravel(overwrite_flag)[0] else accumulation_buffer + value,
        ),
    }
)
