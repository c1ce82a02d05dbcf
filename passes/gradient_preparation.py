"""Passes that a model goes through before its gradients are added."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import LiftSubgraphInitializersToMainGraphPass

from lstm_lower.dtypes import is_floating
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.edit import detach
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated
from lstm_lower.passes.composites import LowerCompositesPass
from lstm_lower.passes.gradients.ranks import DemandedRanksPass
from lstm_lower.passes.gradients.sequences_to_tensors import SequencesToTensorsPass
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.induction_variables import InductionVariables
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.loops.trip_count import TripCount
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.tidy import NameOutputsPass, SortPass, StatedDefaultsPass, UniqueNamesPass, VerifyPass
from lstm_lower.passes.training_graphs import MicrosoftDomainPass

# The first opset whose scatters add, as gradients of elements do that are read more than once. Before it, that takes a
# matrix of all elements by all places that are read.
ADDING_SCATTER = 16


def preparing_passes() -> list[Pass]:
    """The passes that a model goes through before its gradients are added."""
    return [
        MicrosoftDomainPass(),
        SortPass(),
        VerifyPass(),
        InlineFunctionsPass(),
        ConvertOpsetPass(at_least=ADDING_SCATTER),
        NameOutputsPass(),
        UniqueNamesPass(),
        StatedDefaultsPass(),
        DemandedRanksPass(),
        InferShapesPass(),
        # Ops of ours have gradients by their formulas.
        LowerCompositesPass(standard_rnn=False),
        SequencesToTensorsPass(),
        CountedLoopsPass(),
        LiftWeightsPass(),
    ]


class CountedLoopsPass(Pass):
    """Makes Scans of Loops whose number of steps is known before the run.

    What a Scan walks along has its gradient step by step; of what a Loop reads at a place of its own all of it would be
    carried along. What a Loop only passes from step to step is read from outside: the backward pass would have it from
    every step.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts."""
        modified = False
        if any(std.Loop.matches(node) for node in all_nodes(model.graph)):
            for step in (DeadCodeElimination, TripCount, InductionVariables, LoopToScan):
                modified |= step(self.context)(model).modified
        return ir.passes.PassResult(model, modified)


class LiftWeightsPass(Pass):
    """Makes initializers of the main graph of all weights, wherever they stand.

    Some exporters write weights as Constant nodes, in branches too: those of a floating dtype that are no single number
    of rank 0.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lifts them."""
        space = self.context.space
        modified = LiftSubgraphInitializersToMainGraphPass()(model).modified
        for node in [node for node in all_nodes(model.graph) if std.Constant.matches(node)]:
            array, value = space.facts.constant(node.outputs[0]), node.outputs[0]
            dtype = space.facts.dtype(value)
            if array is None or array.ndim == 0 or not is_floating(dtype):
                continue
            name = value.name
            if value.is_graph_output():
                # The output keeps its name.
                name = space.names.fresh(f"{name}/weight")
            else:
                value.name = space.names.fresh(f"{name}/constant")
            weight = ir.Value(name=name, type=ir.TensorType(dtype), shape=stated(array.shape))
            weight.const_value = ir.tensor(array, dtype=dtype, name=name)
            model.graph.register_initializer(weight)
            replace(value, weight, space)
            detach(node)
            modified = True
        return ir.passes.PassResult(model, modified)
