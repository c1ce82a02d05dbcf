"""Constant folding and reading sizes off known shapes, for tensors up to a size limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.passes.infer import attribute, constant_of, shape_of

Array = np.ndarray[Any, Any]
# Constants up to this many elements are folded: sizes, axes, biases, but no weights.
LARGEST = 1 << 12


def fold(node: ir.Node) -> Array | None:
    """The value of a node's one output where it is known now, else `None`."""
    op = node.op_type
    rule = _RULES.get(op)
    if (rule is None and op != "Shape") or node.domain != "" or len(node.outputs) != 1:
        return None
    if rule is None:
        return _shape(node)
    inputs: list[Array | None] = []
    for value in node.inputs:
        array = constant_of(value)
        if array is None and value is not None:
            return _gathered_size(node) if op in ("Gather", "Slice") else None
        inputs.append(array)
    if any(array is not None and (array.size > LARGEST or array.dtype.kind not in "iufb") for array in inputs):
        return None
    with np.errstate(all="ignore"):
        result = rule(node, inputs)
    if result is None or result.size > LARGEST:
        return None
    return np.asarray(result)


def _shape(node: ir.Node) -> Array | None:
    shape = shape_of(node.inputs[0])
    if shape is None:
        return None
    dims = shape[attribute(node, "start", 0) : attribute(node, "end", None)]
    if not all(isinstance(dim, int) for dim in dims):
        return None
    return np.asarray(dims, np.int64)


def _gathered_size(node: ir.Node) -> Array | None:
    """Some sizes of a shape: those may be known where others are not."""
    source = node.inputs[0].producer() if node.inputs[0] is not None else None
    if source is None or source.op_type != "Shape" or source.domain != "":
        return None
    shape = shape_of(source.inputs[0])
    if shape is None:
        return None
    positions = np.arange(len(shape))[attribute(source, "start", 0) : attribute(source, "end", None)]
    rest = [constant_of(value) for value in node.inputs[1:]]
    if any(array is None for array in rest):
        return None
    rule = _RULES[node.op_type]
    chosen = rule(node, [positions, *rest])
    if chosen is None:
        return None
    dims = [shape[int(position)] for position in chosen.reshape(-1)]
    if not all(isinstance(dim, int) for dim in dims):
        return None
    return np.asarray(dims, np.int64).reshape(chosen.shape)


def _cast(node: ir.Node, inputs: list[Array | None]) -> Array | None:
    return None if inputs[0] is None else inputs[0].astype(ir.DataType(attribute(node, "to", 1)).numpy())


def _gather(node: ir.Node, inputs: list[Array | None]) -> Array | None:
    data, indices = inputs
    if data is None or indices is None:
        return None
    axis = attribute(node, "axis", 0)
    if indices.size and (indices.max() >= data.shape[axis] or indices.min() < -data.shape[axis]):
        return None
    return np.take(data, indices, axis=axis)


def _slice(_: ir.Node, inputs: list[Array | None]) -> Array | None:
    data, starts, ends = inputs[:3]
    if data is None or starts is None or ends is None:
        return None
    axes = inputs[3] if len(inputs) > 3 and inputs[3] is not None else np.arange(len(starts))
    steps = inputs[4] if len(inputs) > 4 and inputs[4] is not None else np.ones(len(starts), np.int64)
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), axes.tolist(), steps.tolist(), strict=True):
        if step != 1:
            return None
        index = [slice(None)] * data.ndim
        index[axis] = slice(start, end)
        data = data[tuple(index)]
    return data


def _reshape(_: ir.Node, inputs: list[Array | None]) -> Array | None:
    data, target = inputs
    if data is None or target is None or 0 in target:
        return None
    return data.reshape(target.tolist())


def _unsqueeze(_: ir.Node, inputs: list[Array | None]) -> Array | None:
    data, axes = inputs
    return None if data is None or axes is None else np.expand_dims(data, tuple(axes.reshape(-1).tolist()))


def _squeeze(_: ir.Node, inputs: list[Array | None]) -> Array | None:
    if inputs[0] is None:
        return None
    axes = None if len(inputs) < 2 or inputs[1] is None else tuple(inputs[1].reshape(-1).tolist())
    return np.squeeze(inputs[0], axes)


def _constant_of_shape(node: ir.Node, inputs: list[Array | None]) -> Array | None:
    target = inputs[0]
    if target is None or int(np.prod(target, dtype=np.int64)) > LARGEST:
        return None
    value = attribute(node, "value", None)
    fill = np.zeros(1, np.float32) if value is None else value.numpy()
    return np.full(target.tolist(), fill.reshape(-1)[0], fill.dtype)


def _transpose(node: ir.Node, inputs: list[Array | None]) -> Array | None:
    return None if inputs[0] is None else np.transpose(inputs[0], attribute(node, "perm", None))


def _concat(node: ir.Node, inputs: list[Array | None]) -> Array | None:
    return np.concatenate([x for x in inputs if x is not None], axis=attribute(node, "axis", 0))


def _divide(_: ir.Node, inputs: list[Array | None]) -> Array | None:
    a, b = inputs
    if a is None or b is None or (a.dtype.kind in "iu" and (b == 0).any()):
        return None
    # Integer division rounds towards zero in ONNX, towards minus infinity in numpy.
    return np.trunc(a / b).astype(a.dtype) if a.dtype.kind in "iu" else a / b


def _elementwise(function: Callable[..., Any]) -> Callable[[ir.Node, list[Array | None]], Array | None]:
    def rule(_: ir.Node, inputs: list[Array | None]) -> Array | None:
        result: Array = np.asarray(function(*inputs))
        return result

    return rule


def _range(_: ir.Node, inputs: list[Array | None]) -> Array | None:
    start, limit, delta = (float(np.asarray(x).item()) for x in inputs)
    if not delta or abs((limit - start) / delta) > LARGEST:
        return None
    return np.arange(start, limit, delta).astype(np.asarray(inputs[0]).dtype)


def _reduce_prod(node: ir.Node, inputs: list[Array | None]) -> Array | None:
    if len(inputs) > 1 or attribute(node, "axes", None) is not None or inputs[0] is None:
        return None
    result: Array = np.prod(inputs[0], keepdims=bool(attribute(node, "keepdims", 1)), dtype=inputs[0].dtype)
    return np.asarray(result)


_RULES: dict[str, Callable[[ir.Node, list[Array | None]], Array | None]] = {
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "ConstantOfShape": _constant_of_shape,
    "Transpose": _transpose,
    "Concat": _concat,
    "Range": _range,
    "ReduceProd": _reduce_prod,
    "Div": _divide,
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Neg": _elementwise(np.negative),
    "Not": _elementwise(np.logical_not),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Equal": _elementwise(np.equal),
    "Less": _elementwise(np.less),
    "Greater": _elementwise(np.greater),
    "LessOrEqual": _elementwise(np.less_equal),
    "GreaterOrEqual": _elementwise(np.greater_equal),
    "Where": _elementwise(np.where),
    "Identity": _elementwise(np.array),
}
