"""One loop in the forms that exporters give it: as a Loop that gathers its elements, and with no sizes declared."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.loop_models import LoopModel


def as_loop(case: LoopModel, *, carried: bool, extra: int = 0) -> LoopModel:
    """The model's Scan as a Loop.

    Args:
        case: a model of one Scan; its sequences need sizes.
        carried: whether sequences are carried along unchanged, else captured.
        extra: elements to skip at the start of each sequence that is captured.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    feeds = dict(case.feeds)
    (scan,) = [node for node in model.graph.node if node.op_type == "Scan"]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in scan.attribute}
    body = attributes["body"]
    count = attributes["num_scan_inputs"]
    states = len(scan.input) - count
    steps = 0
    walked = list(zip(scan.input[states:], list(body.input)[states:], strict=True))
    nodes: list[onnx.NodeProto] = []
    ranks = {value.name: value for value in model.graph.input}
    for position, (outer, parameter) in enumerate(walked):
        axis = attributes["scan_input_axes"][position]
        steps = feeds[outer].shape[axis]
        if extra and not carried:
            feeds[outer] = np.concatenate([np.zeros_like(feeds[outer]).take(range(extra), axis), feeds[outer]], axis)
            ranks[outer].type.tensor_type.shape.dim[axis].Clear()
        offset = 0 if carried else extra
        nodes += _gather(
            outer, parameter.name, axis, steps, offset, bool(attributes["scan_input_directions"][position])
        )
        if carried:
            for node in nodes[-1:]:
                node.input[0] = f"{outer}_carried"
    results = [
        *(helper.make_node("Identity", [f"{outer}_carried"], [f"{outer}_next"]) for outer, _ in walked if carried),
        helper.make_node("Identity", ["go"], ["go_on"]),
    ]
    kinds = [onnx.ValueInfoProto() for _ in walked] if carried else []
    loop_inputs = [
        helper.make_tensor_value_info("iteration", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        *list(body.input)[:states],
    ]
    loop_outputs = [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), *list(body.output)[:states]]
    for kind, (outer, _) in zip(kinds, walked, strict=False):
        kind.CopyFrom(ranks[outer])
        kind.name = f"{outer}_carried"
        loop_inputs.append(kind)
        updated = onnx.ValueInfoProto()
        updated.CopyFrom(kind)
        updated.name = f"{outer}_next"
        loop_outputs.append(updated)
    loop_outputs += list(body.output)[states:]
    loop_body = helper.make_graph([*nodes, *body.node, *results], "body", loop_inputs, loop_outputs, body.initializer)
    finals = list(scan.output)[:states] + [f"{outer}_last" for outer, _ in walked if carried]
    loop = helper.make_node(
        "Loop",
        ["steps", "", *scan.input[:states], *(outer for outer, _ in walked if carried)],
        [*finals, *list(scan.output)[states:]],
        name="loop",
        body=loop_body,
    )
    del model.graph.node[:]
    constant = helper.make_node("Constant", [], ["steps"], value=numpy_helper.from_array(np.asarray(steps, np.int64)))
    model.graph.node.extend([constant, loop])
    return LoopModel(model, feeds)


def _gather(outer: str, made: str, axis: int, steps: int, offset: int, reverse: bool) -> list[onnx.NodeProto]:
    """One element by the iteration number, counted from either end."""
    name = f"{made}_index"
    value = steps - 1 + offset if reverse else offset
    constant = helper.make_node(
        "Constant", [], [f"{name}_0"], value=numpy_helper.from_array(np.asarray(value, np.int64))
    )
    order = [f"{name}_0", "iteration"]
    index = helper.make_node("Sub" if reverse else "Add", order, [name])
    return [constant, index, helper.make_node("Gather", [outer, name], [made], axis=axis)]


def with_plain_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with sequences made as a Loop makes them: forward, time first."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    for node in work.graph.node:
        kept = [attribute for attribute in node.attribute if not attribute.name.startswith("scan_output_")]
        del node.attribute[:]
        node.attribute.extend(kept)
    return work


def without_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every size left open, at every nesting level; ranks stay."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    _open(work.graph)
    return work


def _open(graph: onnx.GraphProto) -> None:
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.HasField("shape"):
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _open(attribute.g)
