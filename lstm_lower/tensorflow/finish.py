"""The last steps of an import: names, initial values and metadata of the ONNX model, and its verification."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import tensorflow as tf
from onnx import helper, numpy_helper

from lstm_lower import opdef, schemas
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError
from lstm_lower.graph.verify import verify
from lstm_lower.passes.composites import unsupported_nodes
from lstm_lower.records import state as training_state
from lstm_lower.records.state import StatePair, TrainingState
from lstm_lower.tensorflow.graph import GraphDef, Tensor, Writer, output_dtypes, split_name

Array = np.ndarray[Any, Any]


@dataclasses.dataclass
class Plan:
    """A graph ready for conversion.

    Attributes:
        label: the source for messages.
        graph_def: the graph, without calls and variables.
        inputs: public name -> placeholder, variables after the inputs proper.
        outputs: public name -> tensor, new values of variables after the outputs proper.
        values: public name of a variable's input -> its value, or `None` where the source has none.
        states: the record for the metadata.
    """

    label: str
    graph_def: GraphDef
    inputs: dict[str, str]
    outputs: dict[str, str]
    values: dict[str, Array | None]
    states: list[StatePair]


def separate_outputs(writer: Writer, kept: set[str], outputs: Mapping[str, str]) -> tuple[GraphDef, dict[str, str]]:
    """Drops nodes that nothing needs, and gives each output a tensor of its own.

    An output is renamed when it is converted, so it must be no input, no other output, and no tensor of another name.
    """
    pruned = tf.compat.v1.GraphDef()
    pruned.versions.CopyFrom(writer.graph_def.versions)
    pruned.library.CopyFrom(writer.graph_def.library)
    nodes = {node.name: node for node in writer.graph_def.node if node.name in kept}
    separate: dict[str, str] = {}
    for public, tensor in outputs.items():
        node = nodes[split_name(tensor)[0]]
        own = public == tensor and node.op not in ("Placeholder", "Const")
        if not own:
            dtype = output_dtypes(node)[split_name(tensor)[1] or 0]
            tensor = writer.op("Identity", [Tensor(writer, tensor, dtype)], dtype, T=dtype).name
            made = writer.graph_def.node[-1]
            nodes[made.name] = made
        separate[public] = tensor
    pruned.node.extend(nodes.values())
    return pruned, separate


def finish(
    model: onnx.ModelProto,
    plan: Plan,
    *,
    weights: str,
    shapes: Mapping[str, Sequence[int | str | None]],
    state: Mapping[str, str],
) -> onnx.ModelProto:
    """Completes and verifies the converted model.

    Raises:
        InvalidInputError: `state` or `shapes` names something that the model does not have.
        UnsupportedOpError: the model holds nodes that are neither standard nor ours.
        InvalidModelError: the model is not valid; the conversion is at fault.
    """
    _order_inputs(model, plan)
    _check_outputs(model, plan)
    _name_dimensions(model, shapes)
    _set_initial_values(model, plan, weights)
    constants = set(plan.values) if weights == "initializers" else set()
    pairs = [pair for pair in plan.states if pair.input not in constants] + _extra_pairs(model, state)
    if pairs:
        helper.set_model_props(model, training_state.metadata(TrainingState(tuple(pairs))))
    _drop_foreign_domain(model.graph)
    _drop_unused_opsets(model)
    _drop_notes(model)
    return _verified(model)


def _order_inputs(model: onnx.ModelProto, plan: Plan) -> None:
    """The planned order; an input of which only the known shape is used is kept all the same."""
    made = {value.name: value for value in model.graph.input}
    nodes = {node.name: node for node in plan.graph_def.node}
    ordered = []
    for public, tensor in plan.inputs.items():
        value = made.get(public)
        if value is None:
            value = _value_info(public, nodes[split_name(tensor)[0]])
        ordered.append(value)
    del model.graph.input[:]
    model.graph.input.extend(ordered)


def _value_info(name: str, placeholder: Any) -> onnx.ValueInfoProto:
    shape = tf.TensorShape(placeholder.attr["shape"].shape)
    dtype = np.dtype(tf.as_dtype(placeholder.attr["dtype"].type).as_numpy_dtype)
    dims = None if shape.rank is None else shape.as_list()
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), dims)


def _check_outputs(model: onnx.ModelProto, plan: Plan) -> None:
    made = [value.name for value in model.graph.output]
    if sorted(made) != sorted(plan.outputs):
        lost = sorted(set(plan.outputs) - set(made))
        raise InvalidModelError(f"{plan.label}: outputs {lost} require to be in the converted model, got {made}")
    by_name = {value.name: value for value in model.graph.output}
    ordered = [onnx.ValueInfoProto.FromString(by_name[name].SerializeToString()) for name in plan.outputs]
    del model.graph.output[:]
    model.graph.output.extend(ordered)


def _name_dimensions(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int | str | None]]) -> None:
    """Names open dimensions after their input, or as asked; clears the numbered names that the converter gave."""
    known = {value.name for value in model.graph.input}
    unknown = set(shapes) - known
    if unknown:
        raise InvalidInputError(f"shapes requires names of inputs, got {', '.join(sorted(unknown))}")
    for value in model.graph.input:
        asked = shapes.get(value.name)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                continue
            name = asked[axis] if asked is not None else None
            dim.dim_param = name if isinstance(name, str) else f"{value.name.removesuffix(':0')}_dim{axis}"
    for value in [*model.graph.output, *model.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.ClearField("dim_param")


def _set_initial_values(model: onnx.ModelProto, plan: Plan, weights: str) -> None:
    for public, value in plan.values.items():
        if value is not None:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), public))
    if weights == "initializers":
        kept = [value for value in model.graph.input if value.name not in plan.values]
        del model.graph.input[:]
        model.graph.input.extend(kept)


def _extra_pairs(model: onnx.ModelProto, state: Mapping[str, str]) -> list[StatePair]:
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    for old, new in state.items():
        if old not in inputs or new not in outputs:
            raise InvalidInputError(f"state requires pairs of an input and an output, got '{old}' and '{new}'")
    return [StatePair(old, new, variable=old.removesuffix(":0")) for old, new in state.items()]


def _drop_unused_opsets(model: onnx.ModelProto) -> None:
    used = {""} | {node.domain for graph in (model.graph, *_subgraphs(model.graph)) for node in graph.node}
    kept = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _drop_foreign_domain(graph: onnx.GraphProto) -> None:
    """Makes Range a standard operator where tf2onnx takes onnxruntime's own, which says the same."""
    for inner in (graph, *_subgraphs(graph)):
        for node in inner.node:
            if node.domain == "com.microsoft" and node.op_type == "Range":
                node.domain = ""


def _subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graphs within a graph, at every level."""
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield subgraph
                yield from _subgraphs(subgraph)


def _drop_notes(model: onnx.ModelProto) -> None:
    """Drops TensorFlow's own notes, types and attributes that start with `_`, from nodes that are left as they were."""
    for node in (node for graph in (model.graph, *_subgraphs(model.graph)) for node in graph.node):
        definition = opdef.definition(node.domain, node.op_type)
        if definition is not None:
            own = {attribute.name for attribute in definition.attributes}
            kept = [
                attribute
                for attribute in node.attribute
                if attribute.name in own or not (attribute.name.startswith("_") or attribute.name in definition.types)
            ]
            del node.attribute[:]
            node.attribute.extend(kept)


def _verified(model: onnx.ModelProto) -> onnx.ModelProto:
    view = ir.from_proto(model)
    reasons = unsupported_nodes(view)
    if reasons:
        raise UnsupportedOpError("\n".join(reasons))
    verify(view)
    schemas.register()
    try:
        onnx.checker.check_model(model, full_check=model.ByteSize() < 2**30)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidModelError(f"the converted model requires to be valid ONNX, got: {reason}") from error
    return model
