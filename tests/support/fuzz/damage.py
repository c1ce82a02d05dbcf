"""Damaged models: bytes changed anywhere, and fields of the protobuf changed in ways that keep it one."""

from __future__ import annotations

import contextlib
import functools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx import TensorProto, helper, numpy_helper

from lstm_lower import opdef
from tests.support.fuzz.programs import newest_opset, program
from tests.support.fuzz.scope import Refused
from tests.support.models import DOMAIN, single_node_model, split_kwargs
from tests.support.op_inputs import OPS, valid_inputs

ROOT = Path(__file__).parents[3]

_INTEGERS = [0, 1, -1, 2, 3, 7, 13, 100, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63)]
_TEXTS = [
    "",
    " ",
    "x",
    "Scan",
    "Loop",
    "If",
    "Constant",
    "BlockLSTM",
    "BlockLSTMGrad",
    "tf",
    DOMAIN,
    "é\0\n",
    "{",
    "a" * 5000,
]
ODD = [
    None,
    True,
    -1,
    2**70,
    1.5,
    float("nan"),
    "",
    "x",
    "é\0",
    [],
    [[]],
    {},
    {"x": None},
    [None, None],
    ["float32", [-1]],
]
_HUGE = [250_000_000, 500_000_000, 2**31, 2**40, 2**62, -5]


def damaged(seed: int) -> bytes:
    """The damaged model of a seed, serialized; not necessarily one that a parser accepts."""
    draw = random.Random(seed)
    model = _sound(draw, seed)
    kind = draw.choice(["bytes", "fields", "fields", "fields", "fields", "huge", "composite"])
    if kind == "composite":
        model = _any_composite(draw)
    if kind == "huge":
        _make_huge(model, draw)
    if kind != "bytes":
        for _ in range(draw.choice([0, 1, 1, 2, 4]) if kind in ("composite", "huge") else draw.choice([1, 1, 2, 3, 6])):
            damage_message(model, draw)
        return bytes(model.SerializePartialToString())
    data = bytearray(model.SerializeToString())
    for _ in range(draw.choice([1, 1, 2, 5])):
        damage_bytes(data, draw)
    return bytes(data)


def _sound(draw: random.Random, seed: int) -> onnx.ModelProto:
    """A sound model: a random program, one of the examples, or a composite node."""
    while True:
        match draw.choice(["program", "program", "program", "file", "node"]):
            case "file":
                return onnx.load_from_string(_contents(draw.choice(_files())))
            case "node":
                op = draw.choice(OPS)
                operands = valid_inputs(op)
                names = [name for name in split_kwargs(op, operands)[0] if draw.random() < 0.2]
                return single_node_model(op, operands, symbolic=draw.random() < 0.5, constants=tuple(names))
            case _:
                # Programs take longer to make than to damage.
                made = _program(seed // 16 * 4 + draw.randrange(4))
                if made:
                    return onnx.ModelProto.FromString(made)


@functools.lru_cache(8)
def _program(number: int) -> bytes:
    """A random program, made in a process of its own, which onnxruntime may end; empty where there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with contextlib.suppress(Refused), os.fdopen(writing, "wb") as stream:
                stream.write(program(number).model.SerializeToString())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        made = stream.read()
    return made if os.waitpid(child, 0)[1] == 0 else b""


@functools.cache
def _files() -> list[Path]:
    folders = ["examples/graphs", "tests/data/graphs/onnx", "tests/data/foreign"]
    return sorted(path for folder in folders for path in (ROOT / folder).glob("*.onnx"))


@functools.cache
def _contents(path: Path) -> bytes:
    return path.read_bytes()


def _any_composite(draw: random.Random) -> onnx.ModelProto:
    """A node of any composite op, with operands and attributes of random kinds."""
    definition = opdef.REGISTRY[draw.choice(sorted(opdef.REGISTRY))]
    op = definition.op_type
    inputs, names = [], []
    for operand in definition.inputs:
        if draw.random() < 0.05:
            names.append("")
            continue
        element = draw.choice([TensorProto.FLOAT] * 6 + [TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT16])
        shape = [draw.choice([None, "N", 0, 1, 2, 4, 8]) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4]))]
        names.append(operand.name)
        inputs.append(helper.make_tensor_value_info(operand.name, element, shape))
    outputs = [f"{output.name}_out" for output in definition.outputs]
    values: list[Any] = [0, 1, 2, -1, 1.5, b"lstm", b"SAME", [1, 2, 2, 1], [0.5]]
    fields = {name: draw.choice(values) for name in _attribute_names(definition) if draw.random() < 0.6}
    node = helper.make_node(op, names, outputs, draw.choice(["", "node"]), domain=draw.choice([DOMAIN, "tf"]), **fields)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs[: draw.randint(1, 9)]]
    imports = [helper.make_opsetid("", draw.randint(9, newest_opset() + 1)), helper.make_opsetid(node.domain, 1)]
    return helper.make_model(helper.make_graph([node], "graph", inputs, results), opset_imports=imports, ir_version=10)


def _attribute_names(definition: Any) -> list[str]:
    return [attribute.name for attribute in getattr(definition, "attributes", ())]


def _make_huge(model: onnx.ModelProto, draw: random.Random) -> None:
    """Numbers in the model that no array could follow."""
    tensors = [tensor for tensor in _messages(model) if isinstance(tensor, TensorProto)]
    integers = [tensor for tensor in tensors if tensor.data_type == TensorProto.INT64]
    if integers and draw.random() < 0.6:
        tensor = draw.choice(integers)
        try:
            array = numpy_helper.to_array(tensor).copy()
        except (ValueError, TypeError):
            return
        array[...] = draw.choice(_HUGE)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        return
    graph = model.graph
    size, name = draw.choice(_HUGE), f"huge{len(graph.node)}"
    vector = draw.random() < 0.5
    graph.initializer.append(numpy_helper.from_array(np.array([size] if vector else size, np.int64), f"{name}/size"))
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), f"{name}/zero"))
    graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), f"{name}/one"))
    if vector:
        nodes = [helper.make_node("ConstantOfShape", [f"{name}/size"], [name])]
    elif draw.random() < 0.5:
        nodes = [helper.make_node("Range", [f"{name}/zero", f"{name}/size", f"{name}/one"], [name])]
    else:
        state = helper.make_tensor_value_info("state", TensorProto.INT64, [])
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["going"], ["on"]),
                helper.make_node("Add", ["state", "i"], ["next"]),
                helper.make_node("Identity", ["next"], ["each"]),
            ],
            "body",
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("going", TensorProto.BOOL, []),
                state,
            ],
            [
                helper.make_tensor_value_info("on", TensorProto.BOOL, []),
                helper.make_tensor_value_info("next", TensorProto.INT64, []),
                helper.make_tensor_value_info("each", TensorProto.INT64, []),
            ],
        )
        nodes = [helper.make_node("Loop", [f"{name}/size", "", f"{name}/zero"], [f"{name}/last", name], body=body)]
    nodes.append(helper.make_node(draw.choice(["Shape", "Size", "ReduceSum", "Identity"]), [name], [f"{name}/out"]))
    graph.node.extend(nodes)
    graph.output.append(helper.make_tensor_value_info(f"{name}/out", TensorProto.INT64, [None] if vector else []))


def _messages(message: Any) -> Iterator[Any]:
    """A message and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field, of_scalars=True):
            for inner in value.values() if _is_map(field) else value if _repeated(field) else [value]:
                yield from _messages(inner)


def _is_map(field: Any, *, of_scalars: bool = False) -> bool:
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return False
    return not (of_scalars and field.message_type.fields_by_name["value"].message_type)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def damage_message(model: Any, draw: random.Random) -> None:
    """Changes one field anywhere: deletes, repeats, exchanges, renames, or gives it an odd value."""
    messages = list(_messages(model))
    # Nodes, attributes and types are what matters; most messages are dimensions.
    by_type: dict[str, list[Any]] = {}
    for message in messages:
        by_type.setdefault(type(message).__name__, []).append(message)
    message = draw.choice(draw.choice(list(by_type.values())))
    present = message.ListFields()
    if not present or draw.random() < 0.15:
        _set_something(message, draw)
        return
    field, value = draw.choice(present)
    if _is_map(field):
        del value[draw.choice(sorted(value))]
    elif _repeated(field):
        _damage_list(field, value, messages, draw)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        alike = [other for other in messages if type(other) is type(value) and other is not value]
        if alike and draw.random() < 0.6:
            copied = type(value)()
            copied.CopyFrom(draw.choice(alike))
            if copied.ByteSize() < 100_000:
                value.CopyFrom(copied)
        else:
            message.ClearField(field.name)
    elif draw.random() < 0.2:
        message.ClearField(field.name)
    else:
        _assign(message, field, messages, draw)


def _damage_list(field: Any, values: Any, messages: list[Any], draw: random.Random) -> None:
    index = draw.randrange(len(values))
    match draw.choice(["delete", "repeat", "exchange", "change", "change", "clear"]):
        case "clear" if draw.random() < 0.5:
            del values[:]
        case "delete":
            del values[index]
        case "repeat" if len(values) < 10_000:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                copied = type(values[index])()
                copied.CopyFrom(values[index])
                values.append(copied)
            else:
                values.append(values[index])
        case "exchange":
            other = draw.randrange(len(values))
            kept = list(values) if field.type != FieldDescriptor.TYPE_MESSAGE else [_copied(value) for value in values]
            kept[index], kept[other] = kept[other], kept[index]
            del values[:]
            values.extend(kept)
        case _ if field.type == FieldDescriptor.TYPE_MESSAGE:
            alike = [other for other in messages if type(other) is type(values[index])]
            values[index].CopyFrom(_copied(draw.choice(alike)))
        case _:
            values[index] = _odd(field, messages, draw)


def _copied(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _set_something(message: Any, draw: random.Random) -> None:
    """Gives a field a value that may not have had one."""
    fields = [field for field in message.DESCRIPTOR.fields if field.type != FieldDescriptor.TYPE_MESSAGE]
    if not fields:
        return
    field = draw.choice(fields)
    if _repeated(field):
        getattr(message, field.name).append(_odd(field, [], draw))
    else:
        _assign(message, field, [], draw)


def _assign(message: Any, field: Any, messages: list[Any], draw: random.Random) -> None:
    setattr(message, field.name, _odd(field, messages, draw))


def _odd(field: Any, messages: list[Any], draw: random.Random) -> Any:
    """A value of the field's kind that is probably wrong there."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return draw.choice([b"", b"\xff\xfe", b"forward", draw.randbytes(7), draw.randbytes(64)])
        case FieldDescriptor.CPPTYPE_STRING:
            nodes = [message for message in messages if type(message).__name__ in ("NodeProto", "NodeDef")]
            names = [name for node in nodes for name in [*node.input, *getattr(node, "output", [node.name])]]
            names += [getattr(node, "op_type", "") or node.op for node in nodes]
            return draw.choice(_TEXTS + names * 2)
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return draw.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
        case FieldDescriptor.CPPTYPE_ENUM:
            return draw.choice([value.number for value in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_INT64:
            return draw.choice(_INTEGERS)
        case FieldDescriptor.CPPTYPE_UINT64 | FieldDescriptor.CPPTYPE_UINT32:
            return draw.choice([0, 1, 2**31])
        case _:
            return draw.choice([value for value in _INTEGERS if -(2**31) <= value < 2**31] + list(range(28)))


def damage_bytes(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data) + 1)
    length = draw.choice([1, 2, 8, 50])
    match draw.choice(["flip", "flip", "flip", "cut", "zero", "insert", "repeat", "remove", "splice"]):
        case "flip" if data:
            data[start % len(data)] ^= 1 << draw.randrange(8)
        case "cut":
            del data[start:]
        case "zero":
            data[start : start + length] = bytes(len(data[start : start + length]))
        case "insert":
            data[start:start] = draw.randbytes(length)
        case "repeat":
            data[start:start] = data[max(0, start - length) : start]
        case "remove":
            del data[start : start + length]
        case _:
            other = _contents(draw.choice(_files()))
            begin = draw.randrange(len(other))
            data[start:] = other[begin:]


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes, some of them changed."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5])):
        damage_bytes(changed, draw)
    return bytes(changed)


def damage_json(data: Any, draw: random.Random) -> Any:
    """The data with something in it changed."""
    if draw.random() < 0.2:
        return draw.choice(ODD)
    if isinstance(data, dict) and data:
        key = draw.choice(sorted(data))
        match draw.choice(["change", "change", "change", "delete", "rename"]):
            case "delete":
                return {name: value for name, value in data.items() if name != key}
            case "rename":
                return {draw.choice(["x", "op", "attributes"]) if name == key else name: data[name] for name in data}
            case _:
                return {name: damage_json(value, draw) if name == key else value for name, value in data.items()}
    if isinstance(data, list) and data:
        index = draw.randrange(len(data))
        return [damage_json(value, draw) if i == index else value for i, value in enumerate(data)]
    return draw.choice(ODD)
