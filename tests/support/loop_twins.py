"""Random pairs of Scans that carry the same recurrence and save different values of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.support.loop_models import B, H, LoopModel, loop_models

OPS = ["Neg", "Tanh", "Sigmoid", "Abs"]


@dataclasses.dataclass
class Twins:
    """Two Scans in one model.

    Attributes:
        case: the model and values for its inputs.
        recur: whether some state changes from step to step, so that the Scans are to be merged.
        apart: whether the second Scan reads a result of the first.
    """

    case: LoopModel
    recur: bool
    apart: bool


@st.composite
def twins(draw: Any) -> Twins:
    """A random loop twice: states and inputs in another order, other outputs, and states of their own."""
    case: LoopModel = draw(loop_models())
    graph = case.model.graph
    first = graph.node[0]
    body = _body(first)
    states = len(first.input) - _attribute(first, "num_scan_inputs").i
    recur = any(_source(body, body.output[index].name) != body.input[index].name for index in range(states))
    second = onnx.NodeProto()
    second.CopyFrom(first)
    second.name = "twin"
    del second.output[:]
    second.output.extend(f"twin_{name}" for name in first.output)
    if draw(st.booleans()):
        _rename(_body(second), {value.name: f"{value.name}_twin" for value in _body(second).input})
    _permute(draw, second, states)
    apart = draw(st.integers(0, 3)) == 0
    between = helper.make_node("Sigmoid", [first.output[0] if apart else "bias"], ["between"], name="between")
    for node in (first, second):
        for index in range(draw(st.integers(0, 2))):
            _add_output(draw, node, f"{node.name}_extra{index}")
        if draw(st.booleans()):
            _add_state(draw, node)
    _add_output(draw, second, "reads_between", also="between")
    graph.node.extend([between, second])
    # A state that only one loop has starts with this one.
    case.feeds["state_own"] = np.full((B, H), 0.25, np.float32)
    graph.input.append(helper.make_tensor_value_info("state_own", onnx.TensorProto.FLOAT, (B, H)))
    del graph.output[:]
    wanted = [name for name in (*first.output, *second.output[:-1]) if draw(st.integers(0, 3))] + [second.output[-1]]
    graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in wanted)
    return Twins(case, recur, apart)


def _body(scan: onnx.NodeProto) -> onnx.GraphProto:
    return _attribute(scan, "body").g


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(attribute for attribute in node.attribute if attribute.name == name)


def _source(body: onnx.GraphProto, name: str) -> str:
    """What a value is behind Identities."""
    makers = {output: node for node in body.node for output in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    names = {**names, **{name: f"{name}_twin" for node in graph.node for name in node.output}}
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, names)


def _reorder(field: Any, order: list[int], start: int) -> None:
    """Reorders entries of a repeated field from `start` on."""
    entries = [field[start + index] for index in order]
    if entries and not isinstance(entries[0], (str, int)):
        copies = [type(entry).FromString(entry.SerializeToString()) for entry in entries]
        for offset, entry in enumerate(copies):
            field[start + offset].CopyFrom(entry)
        return
    for offset, entry in enumerate(entries):
        field[start + offset] = entry


def _permute(draw: Any, scan: onnx.NodeProto, states: int) -> None:
    body, count = _body(scan), len(scan.input) - states
    order = draw(st.permutations(range(states)))
    for field in (scan.input, scan.output, body.input, body.output):
        _reorder(field, order, 0)
    order = draw(st.permutations(range(count)))
    for field in (scan.input, body.input):
        _reorder(field, order, states)
    for name in ("scan_input_axes", "scan_input_directions"):
        _reorder(_attribute(scan, name).ints, order, 0)


def _add_output(draw: Any, scan: onnx.NodeProto, name: str, also: str | None = None) -> None:
    """One more sequence, of a value of its own made from one of the body's results."""
    body = _body(scan)
    source = draw(st.sampled_from(list(body.output)))
    step = f"{name}_step"
    if also is None:
        body.node.append(helper.make_node(draw(st.sampled_from(OPS)), [source.name], [step]))
    else:
        body.node.append(helper.make_node("ReduceSum", [also], [f"{step}_sum"], keepdims=0))
        body.node.append(helper.make_node("Mul", [source.name, f"{step}_sum"], [step]))
    body.output.append(onnx.ValueInfoProto(name=step, type=source.type))
    scan.output.append(name)
    _attribute(scan, "scan_output_axes").ints.append(0)
    _attribute(scan, "scan_output_directions").ints.append(draw(st.integers(0, 1)))


def _add_state(draw: Any, scan: onnx.NodeProto) -> None:
    """A state of this loop's own, which also makes its last output."""
    body = _body(scan)
    count = len(scan.input) - _attribute(scan, "num_scan_inputs").i
    name, shape = f"{scan.name}_own", (B, H)
    fitting = [value.name for value in body.output if _dims(value) in (shape, (H,), (B, 1), ())]
    body.node.append(helper.make_node("Mul", [f"{name}_in", draw(st.sampled_from(fitting))], [f"{name}_product"]))
    body.node.append(helper.make_node("Sub", [f"{name}_product", "bias"], [f"{name}_out"]))
    parameter, update = (
        helper.make_tensor_value_info(f"{name}_{end}", onnx.TensorProto.FLOAT, shape) for end in ("in", "out")
    )
    _insert(body.input, count, parameter)
    _insert(body.output, count, update)
    scan.input.insert(count, "state_own")
    scan.output.insert(count, f"{name}_final")


def _insert(field: Any, index: int, entry: Any) -> None:
    field.append(entry)
    _reorder(field, [len(field) - 1 - index, *range(len(field) - 1 - index)], index)


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    shape = value.type.tensor_type
    return tuple(dim.dim_value for dim in shape.shape.dim) if shape.HasField("shape") else None
