"""Draws of 0 and 1, which onnxruntime makes the wrong way round."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.decompose import DecomposePass


class BernoulliPass(Pass):
    """Writes Bernoulli as a comparison with uniform numbers.

    onnxruntime (1.32) follows the operator's function in onnx, which gives 1 with the probability of 0, and merges two
    of the same operand.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        if not any(std.Bernoulli.matches(node) for node in all_nodes(model.graph)):
            return ir.passes.PassResult(model, modified=False)
        return DecomposePass(std.Bernoulli.matches).share(self.context)(model)
