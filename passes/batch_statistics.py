"""Batch normalizations in training whose running statistics onnxruntime would write over another value's memory.

onnxruntime's kernel on CPUs writes the new running mean and variance into the memory of the old ones (measured on
1.32) wherever the new ones are no outputs of the graph. That memory may be an initializer, which optimisation has
joined with an equal scale, or the caller's array: results change from run to run.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.inline import InlineFunctionsPass


class BatchStatisticsPass(Pass):
    """Writes such normalizations as formulas of the batch's mean and variance.

    Precondition: ranks and dtypes are known; other nodes stay as they are.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        if std.BatchNormalization.op_type not in {node.op_type for node in all_nodes(model.graph)}:
            return ir.passes.PassResult(model, modified=False)
        facts = self.context.space.facts
        return DecomposePass(lambda node: _writes_over(node, facts)).share(self.context)(model)

    def ensures(self, model: ir.Model) -> None:
        """None of them is left of which enough is known.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        facts = Facts.of(model)
        for node in all_nodes(model.graph):
            if _writes_over(node, facts):
                raise ir.passes.PostconditionError(f"{node.op_type} '{node_label(node)}' overwrites its operands")


class InlineStatisticsPass(Pass):
    """Inlines functions where such normalizations need it: dtypes and ranks are known only in the functions' callers.

    Precondition: the model is well formed.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inlines all functions or none.

        Raises:
            InvalidModelError: see `InlineFunctionsPass`.
            UnsupportedOpError: see `InlineFunctionsPass`.
        """
        nodes = itertools.chain(all_nodes(model.graph), *(all_nodes(function) for function in model.functions.values()))
        if not model.functions or not any(_is_training(node) for node in nodes):
            return ir.passes.PassResult(model, modified=False)
        return InlineFunctionsPass().share(self.context)(model)


def _is_training(node: ir.Node) -> bool:
    mode = node.attributes.get("training_mode") if std.BatchNormalization.matches(node) else None
    # A function's attribute stands for a caller's.
    return mode is not None and (mode.is_ref() or mode.value != 0)


def _writes_over(node: ir.Node, facts: Facts) -> bool:
    view = std.BatchNormalization.of(node, facts) if std.BatchNormalization.matches(node) else None
    if view is None or not view.training_mode or view.rank() is None or None in map(facts.dtype, node.inputs):
        return False
    # Halves are cast: what the kernel makes of them is never an output itself.
    is_cast = any(facts.dtype(value) in COMPUTE_DTYPES for value in node.inputs)
    return is_cast or not all(value.is_graph_output() for value in node.outputs[1:3])
