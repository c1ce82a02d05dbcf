"""Feeds that belong together: the forward output that a cuDNN backward op is fed with.

CudnnRNNBackprop takes `output` as an operand, and where no forward op in the graph makes it, the lowered model trusts
it: the gates of the top layer come from it. A random one would be no output of any forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.bindings import bind_node, composite_nodes
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.standard.view import constant_of
from lstm_lower.opdef import Arranged
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.oracles.registry import ORACLES

Array = np.ndarray[Any, Any]


def with_forward_outputs(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Replaces random forward outputs by true ones.

    Args:
        model: the model, shapes inferred.
        feeds: input name -> array for every input.

    Returns:
        The feeds, with those inputs replaced that a CudnnRNNBackprop op of the main graph reads as `output`.
    """
    result = dict(feeds)
    for node, definition in composite_nodes(model.graph):
        forward = definition.forward
        if forward is None or not forward.startswith("CudnnRNN") or node.graph is not model.graph:
            continue
        operands = Arranged.of(definition.inputs, node.inputs, {}).single
        output = operands.get("output")
        if output is None or output.name is None or output.name not in feeds or not output.is_graph_input():
            continue
        wanted = ("input", "input_h", "input_c", "params", "sequence_lengths")
        values = {name: _value(model, value, result) for name in wanted if (value := operands.get(name)) is not None}
        call = bind_node(node, definition, Facts(0))
        attributes = {name: value for name, value in call.attributes.items() if not name.startswith("_")}
        if call.attributes["dropout"] > 0 and (masks := operands.get("reserve_space")) is not None:
            attributes["masks"] = _value(model, masks, result)
        result[output.name] = ORACLES[forward](**values, **attributes)["output"].astype(feeds[output.name].dtype)
    return result


def _value(model: ir.Model, value: ir.Value, feeds: Mapping[str, Array]) -> Array:
    """The value of an operand under the feeds."""
    if value.name is not None and value.name in feeds:
        return feeds[value.name]
    constant = constant_of(value)
    if constant is not None:
        return constant
    part = copy_model(model)
    part.graph.outputs[:] = [next(made for node in part.graph for made in node.outputs if made.name == value.name)]
    return next(iter(reference.evaluate(part, feeds).values()))
