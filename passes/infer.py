"""Shape and dtype inference of the primitive operators that rules and passes emit.

Only what follows from ranks, sizes and constants at hand; what is not known stays unknown. Nodes of other operators
keep the types they came with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import Dim
from lstm_lower.graph.values import stated

Shape = tuple[Dim, ...]
Result = tuple[ir.DataType | None, Shape | None]


def shape_of(value: ir.Value | None) -> Shape | None:
    """A value's dimensions as sizes, names or `None`; `None` when its rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple([dim if isinstance(dim, int) else dim.value for dim in value.shape.dims])


def constant_of(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The value of a constant (an initializer that is no graph input, or a Constant node), else `None`."""
    if value is None:
        return None
    if value.const_value is not None:
        return None if value.is_graph_input() else value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain != "":
        return None
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value":
            # Not as_tensor(), whose protocol check takes longer than all the rest.
            return np.asarray(attribute.value.numpy())
        if name in ("value_int", "value_ints"):
            return np.asarray(attribute.value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(attribute.value, np.float32)
    return None


def infer(node: ir.Node) -> None:
    """Sets dtype and shape of a node's outputs where they follow from its inputs."""
    for output, (dtype, shape) in zip(node.outputs, inferred(node), strict=False):
        if dtype is not None and output.type is None:
            output.type = ir.TensorType(dtype)
        if shape is not None and output.shape is None:
            output.shape = stated(shape)


def inferred(node: ir.Node) -> list[Result]:
    """What follows from a node's inputs about its outputs, whatever they are declared as; empty without a rule."""
    rule = _RULES.get(node.op_type) if node.domain == "" else None
    return [] if rule is None else rule(node)


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """An attribute's value, or the default when it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def broadcast(*shapes: Shape | None) -> Shape | None:
    """The shape of an elementwise result."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes):
        return None
    if all(shape == known[0] for shape in known):
        return known[0]
    rank = max(len(shape) for shape in known)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        dims = [shape[axis] for shape in known if -axis <= len(shape)]
        large = [dim for dim in dims if dim != 1]
        sizes = [dim for dim in large if isinstance(dim, int)]
        if sizes:
            result.append(sizes[0])
        elif not large:
            result.append(1)
        elif all(dim == large[0] for dim in large):
            result.append(large[0])
        else:
            result.append(None)
    return tuple(result)


def _dtype(node: ir.Node, index: int = 0) -> ir.DataType | None:
    value = node.inputs[index]
    return None if value is None else value.dtype


def _shape(node: ir.Node, index: int = 0) -> Shape | None:
    return shape_of(node.inputs[index]) if index < len(node.inputs) else None


def _input_constant(node: ir.Node, index: int) -> np.ndarray[Any, Any] | None:
    return constant_of(node.inputs[index]) if index < len(node.inputs) else None


def _elementwise(node: ir.Node) -> list[Result]:
    return [(_dtype(node), broadcast(*[shape_of(value) for value in node.inputs]))]


def _comparison(node: ir.Node) -> list[Result]:
    return [(ir.DataType.BOOL, broadcast(*[shape_of(value) for value in node.inputs]))]


def _same(node: ir.Node) -> list[Result]:
    return [(_dtype(node), _shape(node))]


def _dropout(node: ir.Node) -> list[Result]:
    return [(_dtype(node), _shape(node)), (ir.DataType.BOOL, _shape(node))]


def _is_nan(node: ir.Node) -> list[Result]:
    return [(ir.DataType.BOOL, _shape(node))]


def _cast(node: ir.Node) -> list[Result]:
    return [(ir.DataType(attribute(node, "to", 1)), _shape(node))]


def _where(node: ir.Node) -> list[Result]:
    return [(_dtype(node, 1), broadcast(*[shape_of(value) for value in node.inputs]))]


def _matmul(node: ir.Node) -> list[Result]:
    a, b = _shape(node, 0), _shape(node, 1)
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return [(_dtype(node), None)]
    batch = broadcast(a[:-2], b[:-2])
    return [(_dtype(node), None if batch is None else (*batch, a[-2], b[-1]))]


def _gemm(node: ir.Node) -> list[Result]:
    a, b = _shape(node, 0), _shape(node, 1)
    if a is None or b is None:
        return [(_dtype(node), None)]
    rows = a[1] if attribute(node, "transA", 0) else a[0]
    columns = b[0] if attribute(node, "transB", 0) else b[1]
    return [(_dtype(node), (rows, columns))]


def _concat(node: ir.Node) -> list[Result]:
    shapes = [shape_of(value) for value in node.inputs]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return [(_dtype(node), None)]
    rank = len(known[0])
    axis = attribute(node, "axis", 0) % max(rank, 1)
    result: list[Dim] = []
    for index in range(rank):
        dims = [shape[index] for shape in known]
        if index == axis:
            sizes = [dim for dim in dims if isinstance(dim, int)]
            result.append(sum(sizes) if len(sizes) == len(shapes) else None)
        else:
            result.append(next((d for d in dims if isinstance(d, int)), next((d for d in dims if d is not None), None)))
    return [(_dtype(node), tuple(result))]


def _split(node: ir.Node) -> list[Result]:
    shape, count = _shape(node), len(node.outputs)
    if shape is None:
        return [(_dtype(node), None)] * count
    axis = attribute(node, "axis", 0) % len(shape)
    sizes: list[Dim] = [None] * count
    given = _input_constant(node, 1)
    total = shape[axis]
    if given is not None:
        sizes = [int(size) for size in given]
    elif len(node.inputs) < 2 and isinstance(total, int) and total % count == 0:
        sizes = [total // count] * count
    return [(_dtype(node), (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _slice(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    if shape is None:
        return [(_dtype(node), None)]
    starts, ends = _input_constant(node, 1), _input_constant(node, 2)
    axes, steps = _input_constant(node, 3), _input_constant(node, 4)
    result = list(shape)
    if axes is None:
        if len(node.inputs) > 3 and node.inputs[3] is not None:
            return [(_dtype(node), (None,) * len(shape))]
        count = None if starts is None else len(starts)
        axes = np.arange(len(shape) if count is None else count)
    for position, axis in enumerate(int(axis) % len(shape) for axis in axes):
        dim = result[axis]
        step = 1 if steps is None else int(steps[position])
        if len(node.inputs) > 4 and node.inputs[4] is not None and steps is None:
            result[axis] = None
        elif isinstance(dim, int) and starts is not None and ends is not None:
            bounds = slice(int(starts[position]), int(ends[position]), step)
            # An end below -size means "past the first element" when walking backwards; Python wants None for it.
            if step < 0 and int(ends[position]) < -dim:
                bounds = slice(int(starts[position]), None, step)
            result[axis] = len(range(*bounds.indices(dim)))
        else:
            result[axis] = None
    return [(_dtype(node), tuple(result))]


def _gather(node: ir.Node) -> list[Result]:
    shape, indices = _shape(node, 0), _shape(node, 1)
    if shape is None or indices is None:
        return [(_dtype(node), None)]
    axis = attribute(node, "axis", 0) % len(shape)
    return [(_dtype(node), (*shape[:axis], *indices, *shape[axis + 1 :]))]


def _transpose(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    if shape is None:
        return [(_dtype(node), None)]
    order = attribute(node, "perm", None) or tuple(reversed(range(len(shape))))
    return [(_dtype(node), tuple(shape[axis] for axis in order))]


def _reshape(node: ir.Node) -> list[Result]:
    target, shape = _input_constant(node, 1), _shape(node)
    if target is None:
        length = _shape(node, 1)
        rank = length[0] if length is not None else None
        return [(_dtype(node), (None,) * rank if isinstance(rank, int) else None)]
    allow_zero = attribute(node, "allowzero", 0)
    dims: list[Dim] = []
    for axis, size in enumerate(int(size) for size in target):
        if size == 0 and not allow_zero:
            dims.append(shape[axis] if shape is not None and axis < len(shape) else None)
        else:
            dims.append(None if size == -1 else size)
    if -1 in target and shape is not None:
        total = [dim for dim in shape if isinstance(dim, int)]
        rest = [dim for dim in dims if isinstance(dim, int)]
        if len(total) == len(shape) and len(rest) == len(dims) - 1 and 0 not in rest:
            dims[list(target).index(-1)] = int(np.prod(total, dtype=np.int64)) // int(np.prod(rest, dtype=np.int64))
    return [(_dtype(node), tuple(dims))]


def _axes(node: ir.Node, rank: int) -> list[int] | None:
    """Axes given as an attribute or as a constant second input; `None` when not known, all when absent."""
    given = attribute(node, "axes", None)
    if given is None:
        if len(node.inputs) < 2 or node.inputs[1] is None:
            return list(range(rank))
        constant = _input_constant(node, 1)
        if constant is None:
            return None
        given = constant.reshape(-1)
    return [int(axis) % rank for axis in given] if rank else []


def _flatten(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    if shape is None:
        return [(_dtype(node), (None, None))]
    axis = attribute(node, "axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return [(_dtype(node), (_product(shape[:axis]), _product(shape[axis:])))]


def _product(dims: Shape) -> Dim:
    """The number of elements; a lone symbolic dimension keeps its name."""
    open_dims = [dim for dim in dims if not isinstance(dim, int)]
    sizes = [dim for dim in dims if isinstance(dim, int)]
    if not open_dims:
        return int(np.prod(sizes, dtype=np.int64))
    return open_dims[0] if len(open_dims) == 1 and all(size == 1 for size in sizes) else None


def _squeeze(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    if shape is None or len(node.inputs) < 2:
        return [(_dtype(node), None)]
    axes = _axes(node, len(shape))
    if axes is None:
        return [(_dtype(node), None)]
    return [(_dtype(node), tuple(dim for axis, dim in enumerate(shape) if axis not in axes))]


def _unsqueeze(node: ir.Node) -> list[Result]:
    shape, given = _shape(node), _input_constant(node, 1)
    if shape is None or given is None:
        return [(_dtype(node), None)]
    rank = len(shape) + given.size
    axes = {int(axis) % rank for axis in given.reshape(-1)}
    rest = iter(shape)
    return [(_dtype(node), tuple(1 if axis in axes else next(rest) for axis in range(rank)))]


def _reduce(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    if shape is None:
        return [(_dtype(node), None)]
    axes = _axes(node, len(shape))
    if axes is None:
        return [(_dtype(node), None)]
    if not axes and attribute(node, "noop_with_empty_axes", 0) == 0:
        axes = list(range(len(shape)))
    if attribute(node, "keepdims", 1):
        return [(_dtype(node), tuple(1 if axis in axes else dim for axis, dim in enumerate(shape)))]
    return [(_dtype(node), tuple(dim for axis, dim in enumerate(shape) if axis not in axes))]


def _expand(node: ir.Node) -> list[Result]:
    target, shape = _input_constant(node, 1), _shape(node)
    if target is None:
        return [(_dtype(node), None)]
    return [(_dtype(node), broadcast(shape, tuple(int(size) for size in target)))]


def _constant_of_shape(node: ir.Node) -> list[Result]:
    value = attribute(node, "value", None)
    dtype = ir.DataType.FLOAT if value is None else value.dtype
    target = _input_constant(node, 0)
    if target is not None:
        return [(dtype, tuple(int(size) for size in target))]
    # The zeros of another value's shape: ConstantOfShape(Shape(x)).
    source = node.inputs[0].producer() if node.inputs[0] is not None else None
    if source is not None and source.op_type == "Shape" and not source.attributes:
        return [(dtype, shape_of(source.inputs[0]))]
    rank = _shape(node)
    if rank is not None and isinstance(rank[0], int):
        return [(dtype, (None,) * rank[0])]
    return [(dtype, None)]


def _shape_op(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    if shape is None:
        return [(ir.DataType.INT64, (None,))]
    bounds = slice(attribute(node, "start", 0), attribute(node, "end", None))
    return [(ir.DataType.INT64, (len(shape[bounds]),))]


def _size(_node: ir.Node) -> list[Result]:
    return [(ir.DataType.INT64, ())]


def _gather_elements(node: ir.Node) -> list[Result]:
    return [(_dtype(node), _shape(node, 1))]


def _non_zero(node: ir.Node) -> list[Result]:
    shape = _shape(node)
    return [(ir.DataType.INT64, (None if shape is None else len(shape), None))]


def _constant(node: ir.Node) -> list[Result]:
    tensor = attribute(node, "value", None)
    if tensor is not None:
        return [(tensor.dtype, tuple(tensor.shape.numpy()))]
    value = constant_of(node.outputs[0])
    return [(None, None)] if value is None else [(ir.DataType.from_numpy(value.dtype), value.shape)]


def _pad(node: ir.Node) -> list[Result]:
    shape, pads = _shape(node), _input_constant(node, 1)
    if shape is None:
        return [(_dtype(node), None)]
    if pads is None or len(pads) != 2 * len(shape):
        return [(_dtype(node), (None,) * len(shape))]
    rank = len(shape)
    return [
        (
            _dtype(node),
            tuple(
                dim + int(pads[axis]) + int(pads[axis + rank])
                if isinstance(dim, int)
                else (dim if pads[axis] == pads[axis + rank] == 0 else None)
                for axis, dim in enumerate(shape)
            ),
        )
    ]


def _windowed(node: ir.Node) -> list[Result]:
    """Convolutions and poolings: batch and channels; how many windows there are is left to who emits the node."""
    shape, weights = _shape(node), _shape(node, 1)
    if shape is None:
        return [(_dtype(node), None), (ir.DataType.INT64, None)]
    channels = shape[1]
    if node.op_type != "MaxPool":
        channels = None if weights is None else weights[0]
    if node.op_type == "ConvTranspose":
        each, groups = None if weights is None else weights[1], attribute(node, "group", 1)
        channels = each * groups if isinstance(each, int) else None
    result = (shape[0], channels, *(None,) * (len(shape) - 2))
    return [(_dtype(node), result), (ir.DataType.INT64, result)]


def _range(node: ir.Node) -> list[Result]:
    bounds = [_input_constant(node, index) for index in range(3)]
    if any(bound is None for bound in bounds):
        return [(_dtype(node), (None,))]
    return [(_dtype(node), (len(np.arange(*[np.asarray(bound).item() for bound in bounds])),))]


def _scan(node: ir.Node) -> list[Result]:
    """States keep their type; scan outputs stack the body's over the scan axis."""
    body = node.attributes["body"].as_graph()
    count = attribute(node, "num_scan_inputs", 0)
    states = len(node.inputs) - count
    outputs = len(body.outputs) - states
    input_axes = attribute(node, "scan_input_axes", None) or [0] * count
    output_axes = attribute(node, "scan_output_axes", None) or [0] * outputs
    length: Dim = None
    for value, axis in zip(node.inputs[states:], input_axes, strict=True):
        shape = shape_of(value)
        if shape is not None and not isinstance(length, int) and shape[axis] is not None:
            length = shape[axis]
    results: list[Result] = [(_dtype(node, index), _shape(node, index)) for index in range(states)]
    for value, axis in zip(body.outputs[states:], output_axes, strict=True):
        shape = shape_of(value)
        if shape is not None:
            at = axis % (len(shape) + 1)
            shape = (*shape[:at], length, *shape[at:])
        results.append((value.dtype, shape))
    return results


def _if(node: ir.Node) -> list[Result]:
    """What both branches agree on."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    results: list[Result] = []
    for a, b in zip(branches[0].outputs, branches[1].outputs, strict=True):
        first, second = shape_of(a), shape_of(b)
        shape = None
        if first is not None and second is not None and len(first) == len(second):
            shape = tuple(x if x == y else None for x, y in zip(first, second, strict=True))
        results.append((a.dtype, shape))
    return results


def _recurrent(node: ir.Node) -> list[Result]:
    """Y `[T, D, B, H]`, Y_h and Y_c `[D, B, H]` of LSTM, GRU and RNN, time-major."""
    x, dtype = _shape(node) or (None, None, None), _dtype(node)
    directions = 2 if attribute(node, "direction", "forward") == "bidirectional" else 1
    state = (directions, x[1], attribute(node, "hidden_size", None))
    return [(dtype, (x[0], *state)), (dtype, state), (dtype, state)]


_RULES: dict[str, Callable[[ir.Node], list[Result]]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mod", "Sum", "And", "Or"), _elementwise),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift"), _elementwise),
    **dict.fromkeys(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"), _comparison),
    **dict.fromkeys(
        (
            "Sigmoid",
            "Tanh",
            "Relu",
            "Exp",
            "Log",
            "Sqrt",
            "Neg",
            "Abs",
            "Sign",
            "Reciprocal",
            "Identity",
            "Not",
        ),
        _same,
    ),
    **dict.fromkeys(
        ("Sin", "Cos", "Erf", "Softmax", "LogSoftmax", "Clip", "Floor", "Ceil", "CumSum", "ReverseSequence"), _same
    ),
    **dict.fromkeys(("ScatterND", "ScatterElements", "Softplus", "Elu", "Selu", "LeakyRelu"), _same),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"), _reduce),
    "Dropout": _dropout,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "IsNaN": _is_nan,
    "Cast": _cast,
    "Where": _where,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape_op,
    "Size": _size,
    "GatherElements": _gather_elements,
    "NonZero": _non_zero,
    "Constant": _constant,
    "Pad": _pad,
    **dict.fromkeys(("Conv", "ConvTranspose", "MaxPool"), _windowed),
    "Range": _range,
    "If": _if,
    "Scan": _scan,
}
