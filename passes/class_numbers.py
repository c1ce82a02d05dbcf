"""Class numbers of ONNX's losses: outside 0 .. C-1 they fail, unless they are the one to be ignored.

ONNX allows no others. The functions by which it defines these losses look scores up by GatherElements, though, for
which -1 is the last class.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.formulas.indices import from_front

_LABELS = 1


class ClassNumbersPass(Pass):
    """Makes the losses of class numbers refuse negative ones, at every nesting level."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Puts what refuses them in front of each loss."""
        modified = False
        for node in list(all_nodes(model.graph)):
            if not (std.SoftmaxCrossEntropyLoss.matches(node) or std.NegativeLogLikelihoodLoss.matches(node)):
                continue
            given = node.inputs[_LABELS]
            assert given is not None
            b = Builder.before(node, self.context.space)
            labels, ignored = b.wrap(given), node.attributes.get("ignore_index")
            checked = from_front(labels, but=None if ignored is None else labels.equals(ignored.as_int()))
            node.replace_input_with(_LABELS, checked.value)
            modified |= checked.value is not given
        return ir.passes.PassResult(model, modified=modified)
