"""Means of nothing, which onnxruntime makes zeros of."""

from __future__ import annotations

import functools
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import replace
from lstm_lower.graph.expressions import Builder
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class MeansOfNothingPass(Pass):
    """Writes a mean as the sum over the number of elements, where there may be none: PyTorch's mean is NaN then.

    ONNX leaves open what a ReduceMean of nothing is.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        means = [node for node in all_nodes(model.graph) if std.ReduceMean.matches(node)]
        modified = [self._rewrite(node) for node in means]
        return ir.passes.PassResult(model, any(modified))

    def _rewrite(self, node: ir.Node) -> bool:
        space = self.context.space
        op = std.ReduceMean.of(node, space.facts)
        b = Builder.before(node, space)
        x = b.wrap(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if op is None or x is None or x.shape is None or op.axes is None or not x.dtype.is_floating_point():
            return False
        if all(isinstance(x.shape[axis], int) and x.shape[axis] for axis in op.axes):
            return False
        wide = x.cast(ir.DataType.FLOAT) if x.dtype in _HALVES else x
        total = wide.sum(op.axes, keepdims=bool(op.keepdims))
        count = functools.reduce(operator.mul, [x.size(axis) for axis in op.axes], b.ints(1))
        mean = total / count.reshape().cast(wide.dtype)
        replace(node.outputs[0], mean.cast(x.dtype).value, space)
        detach(node)
        return True
