"""A GraphDef in float64 wherever it was float32, for TensorFlow to say what its own rounding is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from lstm_lower.tensorflow.files import messages, values
from lstm_lower.tensorflow.graph import split_name

_FLOAT, _DOUBLE, _REFERENCE = 1, 2, 100

# A TensorArray's flow, which only orders its uses, is a float32 whatever its elements are: the last operand of those
# ops, and one of the results of some.
_FLOWING = re.compile(r"TensorArray\w*V[23]")
_FLOW_RESULT = {"TensorArrayV3": 1, "TensorArrayGradV3": 1, "TensorArrayWriteV3": 0, "TensorArrayScatterV3": 0,
                "TensorArraySplitV3": 0, "TensorArrayWriteV2": 0, "TensorArrayScatterV2": 0,
                "TensorArraySplitV2": 0}  # fmt: skip
_PASSING = re.compile(
    r"(Ref)?(Enter|Exit|Switch|Merge|NextIteration|Identity)|StopGradient|AddN|Add(V2)?|ZerosLike|Fill"
    r"|Stack(Push|Pop)?(V2)?|Const|Shape"
)


def widen(graph_def: Any) -> None:
    """Makes float64 of all float32 in a graph and its functions, in place."""
    for function in graph_def.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = _wider(argument.type)
    flows = _flows(graph_def.node)
    for node in all_nodes(graph_def):
        if node.name not in flows:
            for value in node.attr.values():
                _widen(value)


def all_nodes(graph_def: Any) -> Iterator[Any]:
    """The nodes of a graph and of its functions."""
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _flows(nodes: Any) -> set[str]:
    """Names of the nodes that hand flows on, or are the first of one."""
    named = {node.name: node for node in nodes}
    readers: dict[str, list[str]] = {}
    reads: dict[str, list[str]] = {}
    for node in nodes:
        given = [split_name(name)[0] for name in node.input if not name.startswith("^")]
        # What decides a switch, or how much is filled or stacked, is no part of what goes through.
        is_sized = node.op in ("Fill", "Stack", "StackV2")
        reads[node.name] = given[:1] if "Switch" in node.op else given[1:] if is_sized else given
        for name in reads[node.name]:
            readers.setdefault(name, []).append(node.name)
    pending = []
    for node in nodes:
        if _FLOWING.fullmatch(node.op):
            pending += reads[node.name][-1:] if node.op not in ("TensorArrayV3", "TensorArrayV2") else []
            tensor = f"{node.name}:{_FLOW_RESULT.get(node.op, -1)}".removesuffix(":0")
            pending += [name for name in readers.get(node.name, ()) if tensor in named[name].input]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        op = named[name].op
        if name not in found and _PASSING.fullmatch(op):
            found.add(name)
            # A flow's shape, which gradients of branches ask for, is none itself; others may read a constant, too.
            pending += [] if op in ("Const", "Shape") else reads[name] + readers.get(name, [])
    return found


def _widen(value: Any) -> None:
    kind = value.WhichOneof("value")
    if kind == "type":
        value.type = _wider(value.type)
    elif kind == "list" and value.list.type:
        value.list.type[:] = [_wider(number) for number in value.list.type]
    elif kind == "tensor" and value.tensor.dtype == _FLOAT:
        array = values.tensor_value(value.tensor).astype(np.float64)
        shape = value.tensor.tensor_shape
        value.tensor.CopyFrom(messages.TensorProto(dtype=_DOUBLE, tensor_shape=shape, tensor_content=array.tobytes()))


def _wider(number: int) -> int:
    return number - _FLOAT + _DOUBLE if number % _REFERENCE == _FLOAT else number
