"""Random numbers of a graph replaced by fixed ones, so that two runtimes with streams of their own can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_lower.tensorflow.files import messages, values
from lstm_lower.tensorflow.graph import split_name

_INT32, _INT64 = 3, 9

# The numbers are `(i * _STEP % _PERIOD + _SHIFT) / _PARTS`: exact in every dtype of so many digits, and never 0, of
# which some graphs take the logarithm.
_STEP, _PERIOD, _PARTS, _SHIFT = 631, 1021, 1024, 0.5

# Op -> what is taken from those numbers, and by what that is multiplied.
_DRAWS = {"RandomUniform": (0.0, 1.0), "RandomStandardNormal": (0.5, 3.4), "TruncatedNormal": (0.5, 3.4)}


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
    drawing = [node for node in nodes if node.op in _DRAWS and messages.attribute(node, "dtype").type in (1, 2)]
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
