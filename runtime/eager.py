"""Eager calls: one op at a time, numpy in and out, through the same lowering and onnxruntime."""

from __future__ import annotations

import enum
import functools
import math
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower import dims, opdef
from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.values import stated
from lstm_lower.passes.lower import lower
from lstm_lower.passes.opset.installed import newest_opset
from lstm_lower.runtime.session import default_options

Array = np.ndarray[Any, Any]

# onnxruntime's numpy interface has no bfloat16; float32 holds every value of it exactly.
_CARRIERS = {ir.DataType.BFLOAT16: ir.DataType.FLOAT}


def call(
    op_type: str, operands: Mapping[str, Any], attributes: Mapping[str, Any], name: str | None = None
) -> dict[str, Any]:
    """Runs one op.

    Sessions are cached by op, attributes and dtypes, not by sizes: a new batch size compiles nothing. Only what the
    lowering must know before the run (an op's `static_sizes` and `static_operands`) makes a session of its own.

    Args:
        op_type: a defined op.
        operands: operand name -> array; `None` for an optional one that is left out; a list of arrays for a variadic
            one.
        attributes: attribute name -> value.
        name: stands for the node in error messages.

    Returns:
        Output name -> array (a list of arrays for a variadic output), in TensorFlow's order.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
        UnsupportedOpError: this use of the op cannot be lowered.
    """
    definition = opdef.REGISTRY[op_type]
    arrays = _arrays(definition, operands)
    infos = {
        key: opdef.TensorInfo(_dtype(op_type, key, array), array.shape, array if array.dtype.kind in "iu" else None)
        for key, array in arrays.items()
    }
    attributes = {**_list_lengths(definition, operands), **attributes}
    bound = definition.bind(name, infos, attributes, error=InvalidInputError)
    signature = tuple((key, infos[key].dtype, array.ndim) for key, array in arrays.items())
    fixed = tuple(sorted((key, _hashable(value)) for key, value in bound.attributes.items()))
    count = definition.output_count(bound)
    dtypes = tuple(info.dtype for info in definition.output_infos(bound, count) if info.dtype is not None)
    known = Known(
        tuple((symbol, size) for symbol in definition.static_sizes if isinstance(size := bound.sizes.get(symbol), int)),
        tuple((key, arrays[key].item()) for key in definition.static_operands),
    )
    session = _session(op_type, signature, fixed, _window(definition, bound, arrays), dtypes, known)
    feeds = {key: _to_carrier(array, infos[key].dtype) for key, array in arrays.items()}
    results = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    outputs = [_from_carrier(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]
    return _grouped(definition.output_names(count, bound.attributes), outputs)


class Known(NamedTuple):
    """What a session is compiled for: sizes of dimension symbols, and values of scalar operands."""

    sizes: tuple[tuple[str, int], ...]
    scalars: tuple[tuple[str, int], ...]


def _arrays(definition: type[opdef.OpDef], operands: Mapping[str, Any]) -> dict[str, Array]:
    given: dict[str, tuple[str, Any]] = {}
    for declared in definition.inputs:
        value = operands.get(declared.name)
        if value is None:
            continue
        if declared.variadic:
            if not isinstance(value, (list, tuple)):
                got = type(value).__name__
                raise InvalidInputError(requires(definition.op_type, None, declared.name, "a list of arrays", got))
            given.update({f"{declared.name}[{index}]": (declared.dtype, part) for index, part in enumerate(value)})
        else:
            given[declared.name] = (declared.dtype, value)
    # Plain numbers and lists have no dtype of their own: they take that of the arrays beside them, as in TensorFlow.
    arrays = {name: native(value, f"{definition.op_type}: {name}") for name, (_, value) in given.items()}
    plain = {name for name, (_, value) in given.items() if _is_plain(value)}
    known = {dtype: arrays[name].dtype for name, (dtype, _) in reversed(given.items()) if name not in plain}
    known |= {name: dtype.numpy() for name in _fixed(definition) if (dtype := opdef.dtype_of(name)) is not None}
    return {
        name: _converted(arrays[name], known[dtype]) if name in plain and dtype in known else arrays[name]
        for name, (dtype, _) in given.items()
    }


def _list_lengths(definition: type[opdef.OpDef], operands: Mapping[str, Any]) -> dict[str, int]:
    """The attributes that say how long the operands are that are lists."""
    counted = [declared for declared in definition.inputs if declared.count is not None]
    return {str(declared.count): len(operands.get(declared.name) or ()) for declared in reversed(counted)}


def _fixed(definition: type[opdef.OpDef]) -> set[str]:
    return {declared.dtype for declared in definition.inputs} - set(definition.types)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, list, tuple))


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in a dtype that holds them; as they are where it does not, for the definition to refuse."""
    converted = array.astype(dtype) if array.dtype.kind in "biuf" else array
    exact = array.size == 0 or converted.dtype.kind not in "iub" or np.array_equal(converted, array)
    return converted if exact else array


def _dtype(op_type: str, name: str, array: Array) -> ir.DataType:
    try:
        return ir.DataType.from_numpy(array.dtype)
    except TypeError:
        raise InvalidInputError(requires(op_type, None, name, "a tensor of numbers", f"dtype {array.dtype}")) from None


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    # A NaN differs from itself; one and the same object of it is found again.
    return math.nan if isinstance(value, float) and math.isnan(value) else value


class Window(enum.Enum):
    """How much of its sequences an op with seq_len_max looks at; each has a session of its own."""

    NOTHING = enum.auto()
    PART = enum.auto()
    WHOLE = enum.auto()


def _window(definition: type[opdef.OpDef], bound: opdef.Call, arrays: Mapping[str, Array]) -> Window | None:
    if all(declared.name != "seq_len_max" for declared in definition.inputs):
        return None
    length = int(arrays["seq_len_max"])
    if length == 0:
        return Window.NOTHING
    return Window.WHOLE if length == bound.sizes["T"] else Window.PART


_lock = threading.Lock()


@functools.lru_cache(maxsize=256)
def _session(
    op_type: str,
    signature: tuple[tuple[str, ir.DataType, int], ...],
    attributes: tuple[tuple[str, Any], ...],
    window: Window | None,
    output_dtypes: tuple[ir.DataType, ...],
    known: Known,
) -> Any:
    with _lock:
        model = _model(op_type, signature, dict(attributes), output_dtypes, window, known)
        options = default_options()
        lowered = ir.to_proto(lower(model))
        return ort.InferenceSession(lowered.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _model(
    op_type: str,
    signature: tuple[tuple[str, ir.DataType, int], ...],
    attributes: dict[str, Any],
    output_dtypes: tuple[ir.DataType, ...],
    window: Window | None,
    known: Known,
) -> ir.Model:
    """A model of one composite node with symbolic sizes."""
    definition = opdef.REGISTRY[op_type]
    specs = {declared.name: definition.shape_spec(declared, attributes) for declared in definition.inputs}
    sizes: dict[str, dims.Dim] = dict(known.sizes)
    scalars = dict(known.scalars)
    inputs: list[ir.Value] = []
    nodes: list[ir.Node] = []
    operands: dict[str, ir.Value] = {}
    for name, dtype, rank in signature:
        spec = specs[name.partition("[")[0]]
        symbols: list[dims.Dim] = [None] * rank
        if spec is not None and spec.rest is None:
            symbols = [dim.symbol if (size := dim.value(sizes)) is None else size for dim in spec.dims]
        if name in scalars:
            operands[name] = _scalar(nodes, scalars[name], dtype)
            continue
        carrier = _CARRIERS.get(dtype, dtype)
        value = ir.Value(name=name, type=ir.TensorType(carrier), shape=stated(symbols))
        inputs.append(value)
        operands[name] = value if carrier == dtype else _cast(nodes, value, dtype)
    if window in (Window.WHOLE, Window.NOTHING):
        inputs = [value for value in inputs if value.name != "seq_len_max"]
        operands["seq_len_max"] = _steps(nodes, operands["x"]) if window is Window.WHOLE else _zero(nodes)
    given = [ir.convenience.convert_attribute(name, _plain(value)) for name, value in attributes.items()]
    absent = [o.name for o in definition.inputs if not o.variadic and o.name not in operands]
    ordered = [operands.get(name) for name in definition.operand_names(len(signature) + len(absent), attributes)]
    outputs = [ir.Value(name=f"output_{index}") for index in range(len(output_dtypes))]
    node = ir.Node(opdef.DOMAINS[0], op_type, ordered, given, outputs=outputs, name=op_type)
    nodes.append(node)
    results = []
    for output, dtype in zip(outputs, output_dtypes, strict=True):
        output.type = ir.TensorType(dtype)
        carrier = _CARRIERS.get(dtype, dtype)
        results.append(output if carrier == dtype else _cast(nodes, output, carrier))
    graph = ir.Graph(
        inputs, results, nodes=nodes, name=op_type, opset_imports={"": newest_opset(), opdef.DOMAINS[0]: 1}
    )
    return ir.Model(graph, ir_version=10)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _cast(nodes: list[ir.Node], value: ir.Value, dtype: ir.DataType) -> ir.Value:
    node = ir.Node("", std.Cast.op_type, [value], [ir.AttrInt64("to", int(dtype))])
    node.outputs[0].type = ir.TensorType(dtype)
    node.outputs[0].shape = value.shape
    nodes.append(node)
    return node.outputs[0]


def _steps(nodes: list[ir.Node], sequence: ir.Value) -> ir.Value:
    """T, as the graph's own size of x: the lowering sees that nothing is to be cut."""
    shape = ir.Node("", std.Shape.op_type, [sequence], [ir.AttrInt64("end", 1)])
    axes = ir.Node("", std.Constant.op_type, [], [ir.AttrInt64s("value_ints", [0])])
    steps = ir.Node("", std.Squeeze.op_type, [shape.outputs[0], axes.outputs[0]])
    steps.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    steps.outputs[0].shape = stated([])
    nodes += [shape, axes, steps]
    return steps.outputs[0]


def _zero(nodes: list[ir.Node]) -> ir.Value:
    nodes.append(ir.Node("", std.Constant.op_type, [], [ir.AttrInt64("value_int", 0)]))
    return nodes[-1].outputs[0]


def _scalar(nodes: list[ir.Node], value: int, dtype: ir.DataType) -> ir.Value:
    tensor = ir.Tensor(np.asarray(value, dtype.numpy()))
    nodes.append(ir.Node("", std.Constant.op_type, [], [ir.AttrTensor("value", tensor)]))
    nodes[-1].outputs[0].type = ir.TensorType(dtype)
    return nodes[-1].outputs[0]


def _to_carrier(array: Array, dtype: ir.DataType | None) -> Array:
    return array.astype(np.float32) if dtype in _CARRIERS else np.ascontiguousarray(array).reshape(array.shape)


def _from_carrier(array: Array, dtype: ir.DataType | None) -> Array:
    return array.astype(dtype.numpy()) if dtype in _CARRIERS and dtype is not None else array


def _grouped(names: list[str], results: list[Array]) -> dict[str, Any]:
    """Output name -> array; those of a variadic output as a list."""
    grouped: dict[str, Any] = {}
    for name, result in zip(names, results, strict=True):
        base, bracket, _ = name.partition("[")
        if bracket:
            grouped.setdefault(base, []).append(result)
        else:
            grouped[base] = result
    return grouped
