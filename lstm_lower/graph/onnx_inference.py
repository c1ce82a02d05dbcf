"""onnx's own inference, node by node, for operators that have no rule of ours.

Some of it treats an open size as zero: where the length of Attention's keys or past keys is open, it says that both
together are as long as the other. So it is asked a second time with a number for each open size, and sizes that differ
from the first answer are discarded. Of other sizes the views of operators know that onnxruntime makes others.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.inference import Inferred
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import Dim, Partial, stated

# Larger operands are data; inference reads sizes, axes and the like.
_LARGEST = 256

# Open sizes are tried as numbers that no other size is likely to be, nor a sum, product or quotient of others.
_FIRST_TRIED, _BETWEEN = 10_007, 1_013


def inferred(node: ir.Node, facts: std.Knowledge) -> Inferred:
    """A node's outputs by onnx; nothing where it does not know the operator or refuses the operands."""
    if subgraphs_of(node) or any(attribute.is_ref() for attribute in node.attributes.values()):
        return []
    identities: dict[str, Dim] = {}
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    proto = onnx.NodeProto(op_type=node.op_type)
    for attribute in node.attributes.values():
        ir.serde.serialize_attribute_into(proto.attribute.add(), attribute)
    for index, value in enumerate(node.inputs):
        name = "" if value is None else f"in_{index}"
        proto.input.append(name)
        if value is None:
            continue
        type_ = facts.type(value)
        if type_ is None:
            return []
        types[name] = _typed(value, type_, facts, identities)
        array = facts.constant(value)
        # No shape follows from strings.
        if array is not None and array.size <= _LARGEST and array.dtype.kind not in "OSU":
            data[name] = onnx.numpy_helper.from_array(array, name)
    proto.output.extend([f"out_{index}" for index in range(len(node.outputs))])
    answers = _asked(proto, types, data, facts.opset) or _asked_as_float32(proto, types, data, facts.opset)
    if identities and answers:
        tried = {name: _FIRST_TRIED + _BETWEEN * place for place, name in enumerate(identities)}
        again = _asked(proto, {name: _with_sizes(type_, tried) for name, type_ in types.items()}, data, facts.opset)
        for name, type_ in answers.items():
            _doubt(type_, again.get(name), tried)
    view = facts.view(node)
    for axis in () if view is None else view.disputed_axes:
        for type_ in filter(_has_shape, answers.values()):
            type_.tensor_type.shape.dim[axis].Clear()
    return [_read(answers.get(name), identities) for name in proto.output]


def _asked(
    proto: onnx.NodeProto, types: dict[str, onnx.TypeProto], data: dict[str, onnx.TensorProto], opset: int
) -> dict[str, onnx.TypeProto]:
    """Results of onnx's inference; nothing where it refuses.

    Attributes that are left out are given: STFT's `onesided` is 1 by its schema, and 0 to its inference.
    """
    try:
        schema = onnx.defs.get_schema(proto.op_type, max(opset, 1), "")
        given = {attribute.name for attribute in proto.attribute}
        defaults = {name: attribute.default_value for name, attribute in schema.attributes.items()}
        proto.attribute.extend(value for name, value in defaults.items() if value.type and name not in given)
        opsets = [onnx.helper.make_opsetid("", opset)]
        return onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=opsets)
    except (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return {}


def _asked_as_float32(
    proto: onnx.NodeProto, types: dict[str, onnx.TypeProto], data: dict[str, onnx.TensorProto], opset: int
) -> dict[str, onnx.TypeProto]:
    """Results in bfloat16 of an operator that by its schema has none: it is computed in float32."""
    narrow, wide = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    if not any(_is_of(type_, narrow) for type_ in types.values()):
        return {}
    answers = _asked(proto, {name: _in_place_of(narrow, wide, type_) for name, type_ in types.items()}, data, opset)
    return {name: _in_place_of(wide, narrow, type_) for name, type_ in answers.items()}


def _is_of(type_: onnx.TypeProto, dtype: int) -> bool:
    return type_.HasField("tensor_type") and type_.tensor_type.elem_type == dtype


def _in_place_of(old: int, new: int, type_: onnx.TypeProto) -> onnx.TypeProto:
    copy = onnx.TypeProto()
    copy.CopyFrom(type_)
    if _is_of(copy, old):
        copy.tensor_type.elem_type = new
    return copy


def _with_sizes(type_: onnx.TypeProto, tried: dict[str, int]) -> onnx.TypeProto:
    """A type with numbers for its open sizes."""
    copy = onnx.TypeProto()
    copy.CopyFrom(type_)
    for dim in copy.tensor_type.shape.dim if copy.HasField("tensor_type") else ():
        if dim.dim_param in tried:
            dim.dim_value = tried[dim.dim_param]
    return copy


def _doubt(type_: onnx.TypeProto, again: onnx.TypeProto | None, tried: dict[str, int]) -> None:
    """Forgets sizes that are others once open ones are numbers; without an answer then they stay."""
    if again is None or not (_has_shape(type_) and _has_shape(again)):
        return
    dims, numbers = type_.tensor_type.shape.dim, again.tensor_type.shape.dim
    for dim, number in zip(dims, numbers, strict=False):
        told = dim.dim_value if dim.HasField("dim_value") else tried.get(dim.dim_param)
        if told is not None and number.HasField("dim_value") and number.dim_value != told:
            dim.Clear()


def _has_shape(proto: onnx.TypeProto) -> bool:
    return bool(proto.HasField("tensor_type") and proto.tensor_type.HasField("shape"))


def _typed(value: ir.Value, type_: ir.TypeProtocol, facts: std.Knowledge, identities: dict[str, Dim]) -> onnx.TypeProto:
    shape = facts.shape(value)
    if shape is not None:
        # Open dimensions go through onnx under names of their own.
        names = [dim if isinstance(dim, int | str) else f"?{id(dim)}" for dim in shape]
        identities.update((name, dim) for name, dim in zip(names, shape, strict=True) if isinstance(name, str))
        shape = tuple(names)
    proto = onnx.ValueInfoProto()
    stand_in = ir.Value(name="x", type=type_, shape=None if shape is None else stated(shape))
    ir.serde.serialize_value_into(proto, stand_in)
    return proto.type


def _read(proto: onnx.TypeProto | None, identities: dict[str, Dim]) -> tuple[ir.TypeProtocol | None, Partial | None]:
    if proto is None or proto.WhichOneof("value") is None:
        return None, None
    type_ = ir.serde.deserialize_type_proto_for_type(proto)
    if not _has_shape(proto):
        return type_, None
    dims = proto.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else identities.get(dim.dim_param) for dim in dims]
    return type_, tuple(shape)
