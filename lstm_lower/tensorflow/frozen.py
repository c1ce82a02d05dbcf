"""Weights of frozen graphs: constants that were variables, recognised by what freezing leaves of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tensorflow as tf

from lstm_lower.tensorflow.graph import GraphDef, split_name

Array = np.ndarray[Any, Any]

# Freezing turns a variable into a Const and each read of it into an Identity that keeps its name.
_READS = re.compile(r"(^|/)(read|ReadVariableOp)(_\d+)?$")


def lift_frozen_weights(graph_def: GraphDef) -> dict[str, Array]:
    """Turns the constants that were variables into placeholders, in place, before anything is folded into them.

    Returns:
        Name of the node -> the value it had.
    """
    constants = {node.name: node for node in graph_def.node if node.op == "Const"}
    weights: dict[str, Array] = {}
    for node in graph_def.node:
        if node.op != "Identity" or not _READS.search(node.name) or node.name in weights:
            continue
        name = split_name(node.input[0])[0]
        constant = constants.get(name)
        if constant is None or not tf.as_dtype(constant.attr["dtype"].type).is_floating:
            continue
        value = tf.make_ndarray(constant.attr["value"].tensor)
        weights[name] = value
        dtype = constant.attr["dtype"].type
        constant.Clear()
        constant.name, constant.op = name, "Placeholder"
        constant.attr["dtype"].type = dtype
        constant.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
        del constants[name]
    return weights
