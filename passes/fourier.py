"""Fourier transforms that onnxruntime computes with less than float32's accuracy."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.decompositions.fourier import is_inexact


class ExactFourierPass(Pass):
    """Writes transforms of lengths that may be no powers of two as `decompositions.fourier` has them."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        facts = self.context.space.facts
        if not any(is_inexact(node, facts) for node in all_nodes(model.graph)):
            return ir.passes.PassResult(model, modified=False)
        return DecomposePass(lambda node: is_inexact(node, facts)).share(self.context)(model)
