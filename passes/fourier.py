"""Fourier transforms that onnxruntime computes with less than float32's accuracy."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.decompositions.fourier import is_inexact


class ExactFourierPass(Pass):
    """Writes transforms of lengths that may be no powers of two as `decompositions.fourier` has them."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        modified = self._decompose(model, std.STFT)
        return ir.passes.PassResult(model, self._decompose(model, std.DFT) or modified)

    def _decompose(self, model: ir.Model, kind: type[std.Standard]) -> bool:
        """Rewrites nodes of a kind, but not those that come of it, whose lengths are powers of two."""
        facts = self.context.space.facts
        found = {node for node in all_nodes(model.graph) if kind.matches(node) and is_inexact(node, facts)}
        if not found:
            return False
        return bool(DecomposePass(found.__contains__).share(self.context)(model).modified)
