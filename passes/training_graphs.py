"""Rewrites what only onnxruntime-training understands in its graphs.

Three of its gradient operators and one layer stand in ONNX's own domain, where ONNX has no such operators. Its
accumulators and optimizers change their operands in place; here the changed values are outputs of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from lstm_lower.graph.names import Names
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.opdef import OpDef, definition
from lstm_lower.ops import ort_layers, ort_updates
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.ops.ort_recurrent import LSTMGrad, LSTMTraining
from lstm_lower.passes.model_pass import Pass

# Operand that is changed in place -> output that has it afterwards, which a node may leave out.
_IN_PLACE: Mapping[str, Mapping[int, int]] = {
    ort_updates.InPlaceAccumulatorV2.op_type: {0: 1},
    ort_updates.AdamWOptimizer.op_type: {2: 1, 4: 2, 5: 3},
    ort_updates.SGDOptimizerV2.op_type: {1: 1},
    ort_updates.InplaceClipGradNorm.op_type: {0: 0},
}


class MicrosoftDomainPass(Pass):
    """Moves those of onnxruntime's operators into its domain that it writes in ONNX's own."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Moves them."""
        misplaced = [
            node for node in all_nodes(model.graph) if node.domain == "" and node.op_type in ort_layers.IN_ONNX_DOMAIN
        ]
        for node in misplaced:
            node.domain = MICROSOFT
            model.graph.opset_imports.setdefault(MICROSOFT, 1)
        return ir.passes.PassResult(model, modified=bool(misplaced))


class TrainingGraphPass(Pass):
    """Makes a graph of onnxruntime-training one that follows ONNX.

    What a node changes in place where it came in as an input `name` leaves the graph as an output `name.updated`.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Moves operators into their domain and adds outputs."""
        modified = MicrosoftDomainPass()(model).modified
        for node in all_nodes(model.graph):
            if node.domain == MICROSOFT and node.op_type in _IN_PLACE:
                modified |= self._add_outputs(model, node)
            if node.domain == MICROSOFT and node.op_type == LSTMGrad.op_type:
                modified |= self._add_peepholes(node)
        return ir.passes.PassResult(model, modified=modified)

    @staticmethod
    def _add_peepholes(node: ir.Node) -> bool:
        """Gives a gradient the peephole weights of the layer whose gates it reads."""
        place, gates = (_place(LSTMGrad, name) for name in ("P", "iofc"))
        saved = node.inputs[gates] if gates < len(node.inputs) else None
        layer = None if saved is None else saved.producer()
        if layer is None or (layer.domain, layer.op_type) != (MICROSOFT, LSTMTraining.op_type):
            return False
        source = _place(LSTMTraining, "P")
        weights = layer.inputs[source] if source < len(layer.inputs) else None
        if weights is None or len(node.inputs) > place:
            return False
        node.resize_inputs(place + 1)
        node.replace_input_with(place, weights)
        return True

    def _add_outputs(self, model: ir.Model, node: ir.Node) -> bool:
        added = False
        op = definition(node.domain, node.op_type)
        assert op is not None
        for source, target in _IN_PLACE[node.op_type].items():
            operand = node.inputs[source] if source < len(node.inputs) else None
            if operand is None or not operand.is_graph_input() or operand not in model.graph.inputs:
                continue
            if len(node.outputs) <= target:
                node.resize_outputs(target + 1)
            output = node.outputs[target]
            if output.is_graph_output():
                continue
            output.name = Names.of(model).fresh(f"{operand.name}.updated")
            output.type, output.shape = operand.type, operand.shape
            model.graph.outputs.append(output)
            added = True
        return added


def _place(op: type[OpDef], name: str) -> int:
    """The position of an operand."""
    return next(index for index, operand in enumerate(op.inputs) if operand.name == name)
