"""Weights of frozen graphs: constants that were variables, recognised by what freezing leaves of them."""

from __future__ import annotations

import re

from lstm_lower.tensorflow.files.values import base_dtype, onnx_dtype, tensor_value
from lstm_lower.tensorflow.graph import label, split_name
from lstm_lower.tensorflow.sources import Source, Variable
from lstm_lower.tensorflow.state import is_write

# Freezing turns a variable into a Const and each read of it into an Identity that keeps its name.
_READS = re.compile(r"(^|/)(read|ReadVariableOp)(_\d+)?$")


def lift_frozen_weights(source: Source, *, read: bool) -> None:
    """Makes variables of a graph's constants that were some: of those that ops write to always.

    Args:
        source: the graph, to whose variables they are added.
        read: whether constants that are only read as variables are count, too.

    Raises:
        InvalidModelError: a constant is broken.
    """
    constants = {node.name: node for node in source.graph_def.node if node.op == "Const"}
    found: dict[str, bool] = {}
    for node in source.graph_def.node:
        if is_write(node.op):
            written = [split_name(name)[0] for name in node.input if not name.startswith("^")]
            # The variable itself, and the slots that follow it up to the first operand that was none.
            for position, name in enumerate(written):
                if name in constants and (position == 0 or name.startswith(f"{written[0]}/")):
                    found[name] = True
        elif read and node.op == "Identity" and _READS.search(node.name):
            found.setdefault(split_name(node.input[0])[0], True)
    for name in constants.keys() & found.keys():
        node = constants[name]
        dtype = onnx_dtype(node.attr["dtype"].type)
        if dtype is None or not dtype.is_floating_point():
            continue
        value = tensor_value(node.attr["value"].tensor, label(node))
        source.variables[name] = Variable(
            name, value, trainable=True, shape=value.shape, dtype=base_dtype(node.attr["dtype"].type)
        )
