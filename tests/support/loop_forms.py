"""One loop in the forms that exporters give it: as a Loop that gathers its elements, and with no sizes declared."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lstm_lower.graph.standard import AT_LEAST_ONE, STEPS
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


def as_while(case: LoopModel, *, counter: str, marked: bool, backwards: bool) -> LoopModel:
    """The model's Scan as a Loop that ends when a counter reaches a limit; the number of steps is open.

    Args:
        case: a model of one Scan.
        counter: the counter's dtype.
        marked: whether the Loop is marked never to run without a step.
        backwards: whether the counter goes from the number of steps to 0, else from 0 upwards.
    """
    case = as_loop(case, carried=False)
    model, loop = case.model, onnx.NodeProto()
    loop.CopyFrom(next(node for node in model.graph.node if node.op_type == "Loop"))
    body, dtype = loop.attribute[0].g, getattr(TensorProto, counter.upper())
    del model.graph.node[:]
    before = model.graph.node
    gathers = [node for node in body.node if node.op_type == "Gather" and node.input[1].endswith("_index")]
    sequence, axis = gathers[0].input[0], gathers[0].attribute[0].i
    declared = {value.name: value for value in model.graph.input}
    for gather in gathers:
        declared[gather.input[0]].type.tensor_type.shape.dim[gather.attribute[0].i].dim_param = "steps"
    number = numpy_helper.from_array
    for name, value in (("zero", 0), ("one", 1), ("step", -1 if backwards else 1)):
        constant = number(np.asarray(value, helper.tensor_dtype_to_np_dtype(dtype)))
        before.append(helper.make_node("Constant", [], [name], value=constant))
    before.append(helper.make_node("Constant", [], ["axis"], value=number(np.asarray(axis))))
    before.append(helper.make_node("Shape", [sequence], ["sizes"]))
    before.append(helper.make_node("Gather", ["sizes", "axis"], ["steps64"], axis=0))
    before.append(helper.make_node("Cast", ["steps64"], ["steps"], to=dtype))
    first, test = ("steps", ["zero", "counter_next"]) if backwards else ("zero", ["counter_next", "steps"])
    before.append(helper.make_node("Less", ["zero", "steps"], ["start"]))
    # Where the counter goes down, the step's number is what is left to the number of steps.
    done = [helper.make_node("Sub", ["steps", "counter"], ["done"])] if backwards else []
    made = [
        *done,
        helper.make_node("Cast", ["done" if backwards else "counter"], ["number"], to=TensorProto.INT64),
        helper.make_node("Add", ["counter", "step"], ["counter_next"]),
        helper.make_node("Less", test, ["go_on"]),
    ]
    kept = []
    for node in body.node:
        for at, name in enumerate(node.input):
            node.input[at] = "number" if name == "iteration" else name
        turned = any(user.op_type == "Sub" and node.output[0] in user.input[:1] for user in body.node)
        if node.op_type == "Constant" and node.output[0].endswith("_index_0") and turned:
            last = [helper.make_node("Constant", [], [f"{node.output[0]}_1"], value=number(np.asarray(1)))]
            kept += [*last, helper.make_node("Sub", ["steps64", f"{node.output[0]}_1"], list(node.output))]
        elif "go_on" not in node.output:
            kept.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in [*made, *kept]]
    del body.node[:]
    body.node.extend(copies)
    states = len(loop.input) - 2
    body.input.append(helper.make_tensor_value_info("counter", dtype, []))
    outputs = list(body.output)
    outputs.insert(1 + states, helper.make_tensor_value_info("counter_next", dtype, []))
    del body.output[:]
    body.output.extend(outputs)
    loop.input[:] = ["", "start", *list(loop.input)[2:], first]
    results = list(loop.output)
    loop.output[:] = [*results[:states], "counter_last", *results[states:]]
    model.graph.output.append(helper.make_tensor_value_info("counter_last", dtype, []))
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    if marked:
        loop.metadata_props.add(key=STEPS, value=AT_LEAST_ONE)
    before.append(loop)
    model.ir_version = max(model.ir_version, 10)
    return LoopModel(model, case.feeds)


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
