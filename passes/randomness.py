"""Which outputs of a model depend on random numbers, and so differ from run to run and from runtime to runtime."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import definition_of, given_attributes
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.opset.installed import MIN_OPSET


def random_outputs(model: ir.Model) -> set[str]:
    """Names of the outputs that depend on a random number generator.

    Raises:
        InvalidModelError: the model is of an old opset and cannot be converted to one that is supported.
    """
    work = copy_model(model)
    InlineFunctionsPass()(work)
    if work.opset_imports.get("", MIN_OPSET) < MIN_OPSET:
        # Views know no older forms.
        ConvertOpsetPass()(work)
    facts = Facts.of(work)
    drawn: set[ir.Value] = set()
    for node in work.graph:
        inner = [node, *(n for graph in subgraphs_of(node) for n in graph.all_nodes())]
        if any(draws(n, facts) or any(value in drawn for value in n.inputs) for n in inner):
            drawn.update(node.outputs)
    return {value.name or "" for value in work.graph.outputs if value in drawn}


def draws(node: ir.Node, facts: Facts) -> bool:
    """Whether a node by itself, those within it aside, draws random numbers."""
    definition = definition_of(node)
    if definition is not None:
        return definition.draws(given_attributes(node))
    view = facts.view(node)
    if isinstance(view, std.Dropout):
        training_mode = view.constant(2)
        return view.operand(2) is not None and (training_mode is None or bool(training_mode.reshape(-1)[0]))
    return isinstance(view, std.Random)
