"""Eager calls: one op at a time, numpy in and out, through the same lowering and onnxruntime."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower import dims, forks, signatures
from lstm_lower.declarations import Slot
from lstm_lower.dtypes import DTYPES, is_complex, native, parts_of
from lstm_lower.errors import InvalidInputError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.values import stated
from lstm_lower.opdef import Arranged, OpDef, TensorInfo
from lstm_lower.passes.lower import lower
from lstm_lower.passes.opset.installed import newest_opset
from lstm_lower.passes.rules.registry import RULES, Rule
from lstm_lower.runtime.session import default_options

Array = np.ndarray[Any, Any]

# onnxruntime's numpy interface has no bfloat16; float32 holds every value of it exactly.
_CARRIERS = {ir.DataType.BFLOAT16: ir.DataType.FLOAT}


@functools.cache
def function(op: type[OpDef]) -> Callable[..., Any]:
    """An op as a function with its definition's signature: arrays in; a named tuple out, or the only output."""
    signature = inspect.Signature(signatures.parameters(op))
    fields = [(output.name, list[Array] if output.variadic else Array) for output in op.outputs]
    outputs = NamedTuple(f"{op.op_type}Outputs", fields)  # type: ignore[misc]  # the fields are known at run time only

    def run(**given: Any) -> Any:
        try:
            arguments = signature.bind(**given)
        except TypeError as error:
            raise TypeError(f"{op.op_type}() {error}") from None
        arguments.apply_defaults()
        name = arguments.arguments.pop("name")
        operands = {operand.name: arguments.arguments.pop(operand.name) for operand in op.inputs}
        results = call(op, operands, arguments.arguments, name)
        return results[op.outputs[0].name] if signatures.single(op) else outputs(**results)

    run.__name__ = run.__qualname__ = op.op_type
    run.__doc__ = signatures.docstring(op)
    run.__signature__ = signature.replace(return_annotation=Array if signatures.single(op) else outputs)  # type: ignore[attr-defined]
    return run


def call(
    definition: type[OpDef], operands: Mapping[str, Any], attributes: Mapping[str, Any], name: str | None = None
) -> dict[str, Any]:
    """Runs one op.

    Sessions are cached by op, attributes and dtypes, not by sizes: a new batch size compiles nothing. Only what the
    lowering must know before the run (an op's `static_sizes` and `static_operands`) makes a session of its own.

    Args:
        definition: the op.
        operands: operand name -> array; `None` for an optional one that is left out; a list of arrays for a variadic
            one.
        attributes: attribute name -> value.
        name: names the node in error messages.

    Returns:
        Output name -> array (a list of arrays for a variadic output), in TensorFlow's order.

    Raises:
        InvalidInputError: an operand or attribute does not fit.
        UnsupportedOpError: this use of the op cannot be lowered.
    """
    arrays = _arrays(definition, operands)
    infos = [(slot, _info(definition, slot, array)) for slot, array in arrays.items()]
    arranged: Arranged[TensorInfo | None] = Arranged.at(infos)
    counted = [declared for declared in reversed(definition.inputs) if declared.count]
    lengths = {str(declared.count): len(arranged.lists.get(declared.name, ())) for declared in counted}
    bound = definition.bind(name, arranged, {**lengths, **attributes}, error=InvalidInputError)
    length = next((int(x) for slot, x in arrays.items() if slot.operand.name == "seq_len_max"), None)
    # Of no steps and of all of them the lowering makes less than of a part.
    static = (*definition.static_operands, *(["seq_len_max"] if length == 0 else []))
    known = Known(
        tuple((symbol, size) for symbol in definition.static_sizes if isinstance(size := bound.sizes.get(symbol), int)),
        tuple((slot, x.shape, x.tobytes()) for slot, x in arrays.items() if slot.operand.name in static),
        whole=bool(length) and length == bound.sizes["T"],
    )
    dtypes = tuple(info.dtype for info in bound.outputs if info.dtype is not None)
    # onnxruntime opens no session for a graph without any value.
    if not dtypes:
        return Arranged.of(definition.outputs, [], bound.attributes).named()
    signature = tuple(
        (slot, info.dtype, array.ndim) for (slot, info), array in zip(infos, arrays.values(), strict=True)
    )
    fixed = tuple(sorted((key, _hashable(value)) for key, value in bound.attributes.items()))
    # In a notebook a rule may be replaced, so that it tells sessions apart, too.
    key: Any = definition, RULES.get(definition)
    session = _session(key, signature, fixed, dtypes, known)
    feeds = {
        str(slot): _to_carrier(array, info.dtype) for (slot, info), array in zip(infos, arrays.values(), strict=True)
    }
    try:
        results = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    except Exception as error:
        raise InvalidInputError(f"{definition.op_type}: onnxruntime failed on these operands: {error}") from error
    outputs = [_from_carrier(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]
    return Arranged.of(definition.outputs, outputs, bound.attributes).named()


class Known(NamedTuple):
    """All that a session is compiled for.

    Attributes:
        sizes: sizes of dimension symbols.
        operands: values of operands, each its shape and bytes.
        whole: whether `seq_len_max` is the size of T.
    """

    sizes: tuple[tuple[str, int], ...]
    operands: tuple[tuple[Slot, tuple[int, ...], bytes], ...]
    whole: bool


def _arrays(definition: type[OpDef], operands: Mapping[str, Any]) -> dict[Slot, Array]:
    given: dict[Slot, Any] = {}
    for declared in definition.inputs:
        value = operands.get(declared.name)
        if value is None:
            continue
        if declared.variadic:
            if not isinstance(value, (list, tuple)):
                got = type(value).__name__
                raise InvalidInputError(requires(definition.op_type, None, declared.name, "a list of arrays", got))
            given.update({Slot(declared, index): part for index, part in enumerate(value)})
        else:
            given[Slot(declared)] = value
    # Plain numbers and lists have no dtype of their own: they take that of the arrays beside them, as in TensorFlow.
    arrays = {slot: native(value, f"{definition.op_type}: {slot}") for slot, value in given.items()}
    plain = {slot for slot, value in given.items() if _is_plain(value)}
    known: dict[str, np.dtype[Any]] = {name: dtype.numpy() for name, dtype in DTYPES.items()}
    for slot, array in arrays.items():
        if slot not in plain:
            known.setdefault(slot.operand.dtype, array.dtype)
    return {
        slot: _converted(array, known[slot.operand.dtype]) if slot in plain and slot.operand.dtype in known else array
        for slot, array in arrays.items()
    }


def _info(definition: type[OpDef], slot: Slot, array: Array) -> TensorInfo:
    try:
        dtype = ir.DataType.from_numpy(array.dtype)
    except TypeError:
        text = requires(definition.op_type, None, str(slot), "a tensor of numbers", f"dtype {array.dtype}")
        raise InvalidInputError(text) from None
    return TensorInfo(dtype, array.shape, array if array.dtype.kind in "iu" else None)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, list, tuple))


def _converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in a dtype that holds them; as they are where it does not, for the definition to refuse."""
    converted = array.astype(dtype) if array.dtype.kind in "biuf" or dtype.kind == "c" else array
    exact = array.size == 0 or converted.dtype.kind not in "iub" or np.array_equal(converted, array)
    return converted if exact else array


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    # A NaN differs from itself; one and the same object of it is found again.
    return math.nan if isinstance(value, float) and math.isnan(value) else value


_lock = threading.Lock()

# What a session was compiled for of each operand: its place, dtype and rank.
Signature = tuple[tuple[Slot, ir.DataType | None, int], ...]


@functools.lru_cache(maxsize=256)
def _session(
    defined: tuple[type[OpDef], Rule | None],
    signature: Signature,
    attributes: tuple[tuple[str, Any], ...],
    output_dtypes: tuple[ir.DataType, ...],
    known: Known,
) -> Any:
    with forks.uncut(), _lock:
        model = _model(defined[0], signature, dict(attributes), output_dtypes, known)
        options = default_options()
        lowered = ir.to_proto(lower(model))
        return ort.InferenceSession(lowered.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _model(
    definition: type[OpDef],
    signature: Signature,
    attributes: dict[str, Any],
    output_dtypes: tuple[ir.DataType, ...],
    known: Known,
) -> ir.Model:
    """A model of one composite node with symbolic sizes."""
    sizes: dict[str, dims.Dim] = dict(known.sizes)
    values = {slot: (shape, data) for slot, shape, data in known.operands}
    inputs: list[ir.Value] = []
    nodes: list[ir.Node] = []
    operands: dict[Slot, ir.Value] = {}
    for slot, dtype, rank in signature:
        assert dtype is not None
        if slot in values:
            shape, data = values[slot]
            operands[slot] = _constant(nodes, np.frombuffer(data, dtype.numpy()).reshape(shape))
            continue
        spec = definition.shape_spec(slot.operand, attributes)
        symbols: list[dims.Dim] = [None] * rank
        if spec is not None and spec.rest is None:
            symbols = [dim.symbol if (size := dim.value(sizes)) is None else size for dim in spec.dims]
        carrier = _CARRIERS.get(dtype, dtype)
        value = ir.Value(name=str(slot), type=ir.TensorType(carrier), shape=stated(symbols))
        inputs.append(value)
        operands[slot] = value if carrier == dtype else _cast(nodes, value, dtype)
    if known.whole:
        inputs = [value for value in inputs if value.name != "seq_len_max"]
        place = {slot.operand.name: slot for slot in operands}
        operands[place["seq_len_max"]] = _steps(nodes, operands[place["x"]])
    given = [_attribute(name, value) for name, value in attributes.items()]
    absent = sum(Slot(declared) not in operands for declared in definition.inputs if not declared.variadic)
    ordered = [operands.get(slot) for slot in definition.input_slots(len(signature) + absent, attributes)]
    outputs = [ir.Value(name=f"output_{index}") for index in range(len(output_dtypes))]
    domain = definition.domain
    node = ir.Node(domain, definition.op_type, ordered, given, outputs=outputs, name=definition.op_type)
    nodes.append(node)
    results = []
    for output, dtype in zip(outputs, output_dtypes, strict=True):
        output.type = ir.TensorType(dtype)
        carrier = _CARRIERS.get(dtype, dtype)
        results.append(output if carrier == dtype else _cast(nodes, output, carrier))
    imports = {"": newest_opset(), domain: 1}
    graph = ir.Graph(inputs, results, nodes=nodes, name=definition.op_type, opset_imports=imports)
    return ir.Model(graph, ir_version=10)


def _attribute(name: str, value: Any) -> ir.Attr:
    # An empty list has no type of its own.
    if value == ():
        return ir.AttrInt64s(name, [])
    return ir.convenience.convert_attribute(name, list(value) if isinstance(value, tuple) else value)


def _cast(nodes: list[ir.Node], value: ir.Value, dtype: ir.DataType) -> ir.Value:
    node = ir.Node("", std.Cast.op_type, [value], [ir.AttrInt64("to", int(dtype))])
    node.outputs[0].type = ir.TensorType(dtype)
    node.outputs[0].shape = value.shape
    nodes.append(node)
    return node.outputs[0]


def _steps(nodes: list[ir.Node], sequence: ir.Value) -> ir.Value:
    """T, as the graph's own size of x: the lowering sees that nothing is to be cut."""
    shape = ir.Node("", std.Shape.op_type, [sequence], [ir.AttrInt64("end", 1)])
    steps = ir.Node("", std.Squeeze.op_type, [shape.outputs[0], _constant(nodes, np.array([0]))])
    steps.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    steps.outputs[0].shape = stated([])
    nodes += [shape, steps]
    return steps.outputs[0]


def _constant(nodes: list[ir.Node], array: Array) -> ir.Value:
    tensor = ir.Tensor(array)
    nodes.append(ir.Node("", std.Constant.op_type, [], [ir.AttrTensor("value", tensor)]))
    nodes[-1].outputs[0].type = ir.TensorType(tensor.dtype)
    return nodes[-1].outputs[0]


def _to_carrier(array: Array, dtype: ir.DataType | None) -> Array:
    if is_complex(dtype):
        return parts_of(array)
    return array.astype(np.float32) if dtype in _CARRIERS else np.ascontiguousarray(array).reshape(array.shape)


def _from_carrier(array: Array, dtype: ir.DataType | None) -> Array:
    if is_complex(dtype) and dtype is not None:
        return np.ascontiguousarray(array).view(dtype.numpy()).reshape(array.shape[:-1])
    return array.astype(dtype.numpy()) if dtype in _CARRIERS and dtype is not None else array
