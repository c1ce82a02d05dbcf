"""Which outputs of a model depend on random numbers, and so differ from run to run and from runtime to runtime."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)
from lstm_lower.passes.infer import attribute, constant_of

_GENERATORS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def random_outputs(model: ir.Model) -> set[str]:
    """Names of the outputs that depend on a random number generator."""
    work = model.clone()
    common_passes.InlinePass()(work)
    drawn: set[ir.Value] = set()
    for node in work.graph:
        inner = [node, *(n for graph in _subgraphs(node) for n in graph.all_nodes())]
        if any(_draws(n) or any(value in drawn for value in n.inputs) for n in inner):
            drawn.update(node.outputs)
    return {value.name or "" for value in work.graph.outputs if value in drawn}


def _subgraphs(node: ir.Node) -> list[ir.Graph]:
    graphs: list[ir.Graph] = []
    for attr in node.attributes.values():
        if attr.type == ir.AttributeType.GRAPH:
            graphs.append(attr.as_graph())
        elif attr.type == ir.AttributeType.GRAPHS:
            graphs += attr.as_graphs()
    return graphs


def _draws(node: ir.Node) -> bool:
    definition = opdef.definition(node.domain, node.op_type)
    if definition is not None:
        # Masks between layers are drawn by the forward ops; the backward ops read them.
        forward = not node.op_type.startswith("CudnnRNNBackprop")
        return forward and attribute(node, "dropout", 0.0) > 0 and bool(attribute(node, "is_training", 1))
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Dropout":
        mode = node.inputs[2] if len(node.inputs) > 2 else None
        constant = constant_of(mode)
        return mode is not None and (constant is None or bool(constant.reshape(-1)[0]))
    return node.op_type in _GENERATORS
