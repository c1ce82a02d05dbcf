"""TensorFlow's stateful random numbers as ONNX's generators: right in distribution, not TensorFlow's own stream.

tf2onnx alone would make one draw of two without seeds, take a TruncatedNormal for a constant, and forget the seeds of
numbers that are scaled. Here each node keeps a generator of its own, seeded with the node's seeds or, where it has
none, with its place in the graph. What is drawn once is read by forward and backward ops alike, and differs from run to
run of a session.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import tensorflow as tf
from onnx import TensorProto

from lstm_lower.tensorflow.graph import GraphDef, split_name, tensor_name

OPS = ("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal")

# tf2onnx folds what depends on constants alone, unless the op's name starts with Random.
_HIDDEN = {"TruncatedNormal": "RandomStandardNormal"}
_KIND, _SEED = "_lstm_lower_kind", "_lstm_lower_seed"

# Numbers outside two standard deviations are one in 22, so that none of so many will do once in 5e10.
_ATTEMPTS = 8


def mark(graph_def: GraphDef) -> GraphDef:
    """A graph whose random nodes carry a seed each, behind nodes that keep tf2onnx from rewriting them.

    Args:
        graph_def: a graph after TensorFlow's own optimiser; it is not changed.
    """
    marked = tf.compat.v1.GraphDef()
    marked.CopyFrom(graph_def)
    drawn = {node.name: node for node in marked.node if node.op in OPS}
    if not drawn:
        return marked
    for node in marked.node:
        for index, name in enumerate(node.input):
            if not name.startswith("^") and split_name(tensor_name(name))[0] in drawn:
                node.input[index] = f"{split_name(tensor_name(name))[0]}/drawn"
    for number, node in enumerate(drawn.values()):
        guard = marked.node.add(name=f"{node.name}/drawn", op="PreventGradient", input=[f"{node.name}:0"])
        guard.attr["T"].type = node.attr["Tout" if node.op == "RandomUniformInt" else "dtype"].type
        seeds = (node.attr["seed"].i, node.attr["seed2"].i)
        node.attr[_SEED].i = zlib.crc32(repr(seeds if any(seeds) else ("place", number)).encode()) % 2**24
        node.attr[_KIND].s = node.op.encode()
        node.op = _HIDDEN.get(node.op, node.op)
    return marked


def handlers() -> dict[str, Any]:
    """What tf2onnx is to do with random nodes."""
    return {op: (_draw, []) for op in OPS}


def _draw(context: Any, node: Any, name: str, args: list[str]) -> None:  # noqa: ARG001 (tf2onnx's signature)
    kind = node.get_attr_value(_KIND).decode()
    seed = float(node.get_attr_value(_SEED))
    dtype, shape = context.get_dtype(node.output[0]), context.get_shape(node.output[0])
    inputs, outputs = list(node.input), list(node.output)
    context.remove_node(node.name)

    def emit(op: str, *operands: str, **attributes: Any) -> str:
        made: str = context.make_node(op, list(operands), attr=attributes, op_name_scope=name).output[0]
        return made

    def constant(value: Any, kind: Any) -> str:
        made: str = context.make_const(f"{name}/{len(context.get_nodes())}", np.asarray(value, kind)).output[0]
        return made

    sizes = emit("Cast", inputs[0], to=TensorProto.INT64)
    if kind == "TruncatedNormal":
        sizes = emit("Concat", constant([_ATTEMPTS], np.int64), sizes, axis=0)
    precise = TensorProto.DOUBLE if kind == "RandomUniformInt" or dtype == TensorProto.DOUBLE else TensorProto.FLOAT
    zeros = emit("Cast", emit("ConstantOfShape", sizes), to=precise)
    normal = kind in ("RandomStandardNormal", "TruncatedNormal")
    numbers = emit("RandomNormalLike" if normal else "RandomUniformLike", zeros, dtype=precise, seed=seed)
    if kind == "TruncatedNormal":
        two = constant(2, np.float64 if precise == TensorProto.DOUBLE else np.float32)
        within = emit("Cast", emit("Less", emit("Abs", numbers), two), to=TensorProto.INT32)
        first = emit("ArgMax", within, axis=0, keepdims=1)
        chosen = emit("GatherElements", numbers, first, axis=0)
        numbers = emit("Squeeze", emit("Max", emit("Min", chosen, two), emit("Neg", two)), constant([0], np.int64))
    if kind == "RandomUniformInt":
        low, high = (emit("Cast", bound, to=TensorProto.DOUBLE) for bound in inputs[1:3])
        scaled = emit("Floor", emit("Add", low, emit("Mul", numbers, emit("Sub", high, low))))
        numbers = emit("Min", scaled, emit("Sub", high, constant(1, np.float64)))
    context.make_node("Cast", [numbers], attr={"to": dtype}, name=name, outputs=outputs, shapes=[shape], dtypes=[dtype])
