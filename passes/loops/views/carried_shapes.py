"""Which values that a Loop carries keep their shape.

ONNX lets every carried value change its shape from step to step, so that nothing follows for it from its initial value
alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.graph.values import Shape


def tell_shapes(graph: ir.Graph, facts: Facts) -> None:
    """Makes known the shapes that carried values keep, of all Loops of a graph, outer ones first."""
    for node in graph:
        if std.Loop.matches(node) and "body" in node.attributes and not _all_known(node, facts):
            told = False
            for parameter, shape in staying(node, facts).items():
                if facts.shape(parameter) != shape:
                    facts.tell(parameter, shape)
                    told = True
            if told:
                facts.look_again()
        for subgraph in subgraphs_of(node):
            tell_shapes(subgraph, facts)


def _all_known(node: ir.Node, facts: Facts) -> bool:
    """Whether there is nothing to find out, as when it was before."""
    parameters = node.attributes["body"].as_graph().inputs[2:]
    return all(facts.same_shape(*pair) for pair in zip(node.inputs[2:], parameters, strict=False))


def staying(node: ir.Node, facts: Facts) -> dict[ir.Value, Shape]:
    """The shapes of a Loop's carried values that keep the first one: having it before a step, they do after it.

    Args:
        node: a Loop.
        facts: what is known outside its body.

    Returns:
        Shapes by the body's inputs.
    """
    return staying_known(node, facts)[0]


def staying_known(node: ir.Node, facts: Facts) -> tuple[dict[ir.Value, Shape], Facts]:
    """The same as `staying`, and what is then known of the values of the body."""
    body = node.attributes["body"].as_graph()
    carried = list(zip(node.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False))
    tensors = {parameter for _, parameter, _ in carried if isinstance(facts.type(parameter), ir.TensorType)}
    first = {parameter: facts.shape(initial) if parameter in tensors else None for initial, parameter, _ in carried}
    inside = set(values_of(body))
    while True:
        # What may change has no shape to count on; then what is made of it may have none either.
        assumed = facts.assuming(first, inside)
        tell_shapes(body, assumed)
        changing = [
            parameter
            for _, parameter, update in carried
            if first[parameter] is not None and assumed.shape(update) != first[parameter]
        ]
        if not changing:
            return {parameter: shape for parameter, shape in first.items() if shape is not None}, assumed
        first.update(dict.fromkeys(changing))


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """What a graph and those within it take in and make."""
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
        for subgraph in subgraphs_of(node):
            yield from values_of(subgraph)
