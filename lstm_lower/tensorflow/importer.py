"""`from_tensorflow`: a TensorFlow training graph as ONNX, its recurrent ops as nodes that `lower` takes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import onnx
import tensorflow as tf

from lstm_lower.errors import InvalidInputError
from lstm_lower.records.state import Role, StatePair
from lstm_lower.tensorflow import checks, finish
from lstm_lower.tensorflow.convert import check_opset, convert, fold
from lstm_lower.tensorflow.frozen import lift_frozen_weights
from lstm_lower.tensorflow.graph import Graph, GraphDef, Tensor, Writer, split_name
from lstm_lower.tensorflow.inline import inline
from lstm_lower.tensorflow.interface import Interface, resolve
from lstm_lower.tensorflow.sources import Array, Source, Variable, open_source
from lstm_lower.tensorflow.state import Explicit, make_explicit

Weights = Literal["inputs", "initializers"]
Shape = Sequence[int | str | None]


def from_tensorflow(
    source: Any,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int = 18,
    *,
    weights: Weights = "initializers",
    signature: str | None = None,
    specs: Sequence[Any] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    state: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Converts a TensorFlow graph, gradients and optimizer included, to an ONNX model with recurrent ops as nodes.

    Functions are inlined. Variables and what a run assigns to them become explicit: the model has an output for the new
    value of every variable that the graph assigns, named `<variable>/new`, and records which input it belongs to (see
    `lstm_lower.state`).

    Args:
        source: a GraphDef, a `.pb` or `.pbtxt` file of one, the folder of a SavedModel, a ConcreteFunction, or a
            `tf.function`.
        inputs: names of the tensors that become graph inputs, in order, for example `["ids:0"]`. They may lie inside
            the graph, which is then cut there. By default the source's own: a signature's or function's arguments, a
            GraphDef's placeholders.
        outputs: names of the tensors that become graph outputs, in order; the name of an operation without a colon
            asks for its assignments only. By default the source's own: what a signature or function returns, what
            nothing in a GraphDef reads.
        opset: version of `ai.onnx`, 13 to 18; `lower` can raise it further.
        weights: what becomes of variables: `"initializers"` of the model, or `"inputs"` with the values they have now
            as initial values (an initializer of the same name). With `"inputs"`, weights that a frozen graph holds as
            constants become inputs too.
        signature: which signature of a SavedModel; may be left out when there is only one, or the usual one.
        specs: a `tf.TensorSpec` for each argument of a `tf.function` that was made without an input signature.
        shapes: sizes and names for dimensions of inputs, for example `{"ids:0": [20, "batch"]}`.
        state: further pairs of an input and the output that holds its next value, for the record in the metadata.

    Returns:
        The model, verified. Its inputs and outputs have the names that were asked for.

    Raises:
        InvalidModelError: the source is broken: truncated, cyclic, or with a function or node missing.
        InvalidInputError: a name or option does not fit the source.
        UnsupportedOpError: the graph holds ops that cannot be converted; every one is named.
    """
    check_opset(opset)
    planned = plan(source, inputs, outputs, weights=weights, signature=signature, specs=specs, shapes=shapes)
    folded = fold(planned.graph_def, planned.inputs, planned.outputs)
    model = convert(folded, planned.inputs, planned.outputs, opset)
    return finish.finish(model, planned, weights=weights, shapes=shapes or {}, state=state or {})


def plan(
    source: Any,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    weights: Weights = "initializers",
    signature: str | None = None,
    specs: Sequence[Any] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> finish.Plan:
    """What comes before the conversion: a graph without calls and effects, and names for what goes in and out.

    The arguments are those of `from_tensorflow`.

    Raises:
        InvalidModelError, InvalidInputError, UnsupportedOpError: as `from_tensorflow` does.
    """
    if weights not in get_args(Weights):
        raise InvalidInputError(f"weights requires one of {', '.join(get_args(Weights))}, got {weights!r}")
    opened = open_source(source, signature=signature, specs=specs)
    checks.check_constants(opened.graph_def)
    inlined = inline(opened.graph_def)
    graph = Graph(inlined.graph_def)
    interface = resolve(opened, inlined, graph, inputs, outputs)
    needed = graph.ancestors([*_nodes(interface.outputs), *interface.targets])
    checks.check_nodes(graph, needed, interface)
    explicit, fed = _explicit(opened, inlined.graph_def, graph, needed, interface, shapes or {})
    frozen = lift_frozen_weights(explicit.writer.graph_def) if weights == "inputs" else {}
    named = _named(opened, interface, explicit, fed, frozen)
    checks.check_values(named, weights)
    if interface.demanded:
        checks.check_connected(named.graph_def, interface.inputs, fed, named.outputs)
    return named


def _nodes(tensors: Mapping[str, str]) -> list[str]:
    return [split_name(tensor)[0] for tensor in tensors.values()]


def _explicit(
    source: Source,
    graph_def: GraphDef,
    graph: Graph,
    needed: set[str],
    interface: Interface,
    shapes: Mapping[str, Shape],
) -> tuple[Explicit, dict[str, str]]:
    """The graph without effects, and the placeholder of each input by public name."""
    variable_names = {name for name, node in graph.nodes.items() if name in source.variables}
    writer = Writer(name for name in graph.nodes if name not in variable_names)
    writer.graph_def.versions.CopyFrom(graph_def.versions)
    writer.graph_def.library.CopyFrom(graph_def.library)
    replaced: dict[str, Tensor] = {}
    fed: dict[str, str] = {}
    for public, tensor in interface.inputs.items():
        node = graph.nodes[split_name(tensor)[0]]
        whole = node.op in ("Placeholder", *checks.VARIABLES)
        dtype, shape = checks.input_type(graph_def, node, tensor)
        name = node.name if whole else writer.fresh(f"{node.name}/input")
        placeholder = writer.placeholder(dtype, _override(public, shape, shapes.get(public)), name)
        replaced[tensor] = placeholder
        fed[public] = placeholder.name
    for node_name, value in source.constants.items():
        if node_name in needed:
            dtype = tf.as_dtype(value.dtype).as_datatype_enum
            replaced[f"{node_name}:0"] = writer.constant(value, dtype, node_name)
    walked = _reached(graph, needed, interface, replaced)
    taken = {split_name(tensor)[0] for tensor in replaced if graph.nodes[split_name(tensor)[0]].op == "Placeholder"}
    explicit = make_explicit(graph, walked - taken, source.variables, replaced, writer)
    explicit.tensors.update(replaced)
    return explicit, fed


def _reached(graph: Graph, needed: set[str], interface: Interface, replaced: Mapping[str, Tensor]) -> set[str]:
    """The needed nodes that are still needed when the inputs cut the graph."""
    roots = [*_nodes(interface.outputs), *interface.targets]
    found: set[str] = set()
    stack = [name for name in roots if name in needed]
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found.add(name)
        for source in graph.nodes[name].input:
            node, number = split_name(source)
            cut = number is not None and f"{node}:{number}" in replaced
            if not cut or graph.nodes[node].op == "Placeholder":
                stack.append(node)
    return found


def _override(public: str, shape: Any, asked: Shape | None) -> Any:
    """The shape that the caller asks for: numbers replace sizes; names leave them open."""
    if asked is None:
        return shape
    known = None if shape is None else [dim.size for dim in shape.dim]
    if known is not None and len(known) != len(asked):
        raise InvalidInputError(f"shapes['{public}'] requires rank {len(known)}, got {list(asked)}")
    sizes = [size if isinstance(size, int) else None for size in asked]
    for axis, size in enumerate(sizes):
        before = -1 if known is None else known[axis]
        if before >= 0 and size is not None and size != before:
            raise InvalidInputError(f"shapes['{public}'] requires {before} along axis {axis}, got {size}")
        if size is None and before >= 0:
            sizes[axis] = before
    return tf.TensorShape(sizes).as_proto()


def _named(
    source: Source, interface: Interface, explicit: Explicit, fed: dict[str, str], frozen: Mapping[str, Array]
) -> finish.Plan:
    """Names for everything: inputs, outputs, and the old and new values of state."""
    taken = {*interface.inputs, *interface.outputs}
    both = set(interface.inputs) & set(interface.outputs)
    if both:
        raise InvalidInputError(f"outputs requires names that no input has, got {', '.join(sorted(both))}")
    outputs = {name: explicit.tensors[tensor].name for name, tensor in interface.outputs.items()}
    new: dict[str, str] = {}
    for entry in explicit.states.values():
        if entry.written:
            new[entry.variable.name] = _free(f"{entry.variable.name}/new", source.suffix, taken)
            outputs[new[entry.variable.name]] = entry.now.name
    read = Graph(explicit.writer.graph_def).ancestors(_nodes(outputs))
    inputs, values, states = dict(fed), dict[str, Array | None](), []

    def add_input(name: str, tensor: str, value: Array | None) -> str:
        public = _free(name, source.suffix, taken)
        inputs[public], values[public] = tensor, value
        return public

    for entry in explicit.states.values():
        variable = entry.variable
        public = next((name for name, tensor in fed.items() if tensor == entry.start.name), None)
        if public is None and split_name(entry.start.name)[0] in read:
            public = add_input(variable.name, entry.start.name, variable.value)
        # What is assigned without being read has no old value, and so nothing to carry on.
        if public is not None:
            role = _role(variable, entry.start.dtype)
            states.append(StatePair(public, new.get(variable.name), role, variable=variable.name))
    for node, value in frozen.items():
        if node in read:
            states.append(StatePair(add_input(node, f"{node}:0", value), None, variable=node))
    graph_def, outputs = finish.separate_outputs(explicit.writer, read | set(_nodes(fed)), outputs)
    return finish.Plan(source.label, graph_def, inputs, outputs, values, states)


def _role(variable: Variable, dtype: int) -> Role:
    if variable.trainable:
        return "weight"
    return "counter" if tf.as_dtype(dtype).is_integer else "slot"


def _free(name: str, suffix: str, taken: set[str]) -> str:
    """A public name for a variable's value: its own, unless an argument or a result has that one."""
    candidates = itertools.chain([name], (f"{name}/value{number or ''}" for number in itertools.count()))
    public = next(f"{candidate}{suffix}" for candidate in candidates if f"{candidate}{suffix}" not in taken)
    taken.add(public)
    return public
