"""A GraphDef changed for a comparison, in place: float64 wherever it was float32, and fixed numbers for random ones.

In float64 TensorFlow says what its own rounding is; with fixed numbers two runtimes with streams of their own agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from lstm_lower.checkpoints import messages, values
from lstm_lower.tensorflow.graph import split_name

_FLOAT, _DOUBLE, _REFERENCE = 1, 2, 100
_INT32, _INT64 = 3, 9

# The numbers are `(i * _STEP % _PERIOD + _SHIFT) / _PARTS`: exact in every dtype of so many digits, and never 0, of
# which some graphs take the logarithm.
_STEP, _PERIOD, _PARTS, _SHIFT = 631, 1021, 1024, 0.5

# Op -> what is taken from those numbers, and by what that is multiplied.
_DRAWS = {"RandomUniform": (0.0, 1.0), "RandomStandardNormal": (0.5, 3.4), "TruncatedNormal": (0.5, 3.4)}

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


def fix_draws(graph_def: Any) -> list[str]:
    """Replaces the draws of a graph and its functions in place; returns the names of their nodes.

    Of each, element `i` becomes a fixed number between 0 and 1, or one of deviation 1. Their consumers, shapes and
    dtypes stay. Draws of other kinds (of categories, of candidates) are left as they are.
    """
    found = _fix(graph_def.node, in_function=False)
    for function in graph_def.library.function:
        found += _fix(function.node_def, in_function=True)
    return found


def _fix(nodes: Any, *, in_function: bool) -> list[str]:
    floats = (_FLOAT, _DOUBLE)
    drawing = [node for node in nodes if node.op in _DRAWS and messages.attribute(node, "dtype").type in floats]
    for node in drawing:
        _Fixed(nodes, node, in_function).replace()
    return [node.name for node in drawing]


class _Fixed:
    """The nodes that compute the numbers in one draw's place."""

    def __init__(self, nodes: Any, node: Any, in_function: bool) -> None:
        self.nodes, self.node, self.in_function = nodes, node, in_function
        self.shape = node.input[0]

    def replace(self) -> None:
        node, dtype = self.node, self.node.attr["dtype"].type
        integer = self.node.attr["T"].type or _INT32
        less, factor = _DRAWS[node.op]
        size = self.add("Prod", [self.shape, self.constant(0, _INT32)], T=integer, Tidx=_INT32)
        count = [self.constant(number, integer) for number in (0, 1)]
        whole = self.add("Range", [count[0], size, count[1]], Tidx=integer)
        whole = self.add("FloorMod", [whole, self.constant(_PERIOD, integer)], T=integer)
        whole = self.add("Mul", [whole, self.constant(_STEP, integer)], T=integer)
        whole = self.add("FloorMod", [whole, self.constant(_PERIOD, integer)], T=integer)
        part = self.add("Cast", [whole], SrcT=integer, DstT=dtype)
        part = self.add("AddV2", [part, self.constant(_SHIFT, dtype)], T=dtype)
        part = self.add("Mul", [part, self.constant(1 / _PARTS, dtype)], T=dtype)
        part = self.add("Sub", [part, self.constant(less, dtype)], T=dtype)
        part = self.add("Mul", [part, self.constant(factor, dtype)], T=dtype)
        node.op = "Reshape"
        node.input[:] = [part, *node.input]
        for key in ("seed", "seed2", "dtype"):
            node.attr.pop(key, None)
        node.attr["T"].type, node.attr["Tshape"].type = dtype, integer

    def constant(self, value: float, dtype: int) -> str:
        numpy_dtype = values.numpy_dtype(dtype, "a constant")
        array = np.asarray(value, numpy_dtype)
        tensor = messages.TensorProto(dtype=dtype, tensor_content=array.tobytes())
        tensor.tensor_shape.SetInParent()
        # Within a loop of TensorFlow 1 a constant is where it waits for something; a function's arguments cannot be
        # waited for, nor need be.
        waits = [] if self.in_function else [f"^{split_name(self.shape)[0]}"]
        name = self.add("Const", waits, dtype=dtype)
        self.nodes[-1].attr["value"].tensor.CopyFrom(tensor)
        return name

    def add(self, op: str, inputs: list[str], **types: int) -> str:
        node = self.nodes.add(name=f"{self.node.name}/fixed/{len(self.nodes)}", op=op, input=inputs)
        for name, number in types.items():
            node.attr[name].type = number
        return f"{node.name}:{_RESULTS.get(op, 'output')}:0" if self.in_function else node.name


# What the ops above call their results, as a function's tensors are named.
_RESULTS = {"FloorMod": "z", "AddV2": "z", "Mul": "z", "Sub": "z", "Cast": "y"}
