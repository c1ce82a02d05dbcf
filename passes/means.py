"""Means of nothing, which onnxruntime makes zeros of."""

from __future__ import annotations

import functools
import operator

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.decompose import DecomposePass

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class MeansOfNothingPass(Pass):
    """Writes a mean as the sum over the number of elements, where there may be none: PyTorch's mean is NaN then.

    ONNX leaves open what a ReduceMean of nothing is.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        facts = self.context.space.facts

        def rewritten(node: ir.Node) -> bool:
            view = std.ReduceMean.of(node, facts) if std.ReduceMean.matches(node) else None
            return view is not None and _may_be_of_nothing(view)

        if not any(map(rewritten, all_nodes(model.graph))):
            return ir.passes.PassResult(model, modified=False)
        return _ByCountPass(rewritten).share(self.context)(model)


class _ByCountPass(DecomposePass):
    def formula(self, node: ir.Node, builder: Builder) -> list[Expr] | None:
        view = std.ReduceMean.of(node, builder.facts)
        return None if view is None else mean_by_count(view, builder)


def mean_by_count(view: std.ReduceMean, b: Builder) -> list[Expr]:
    """The sum over the number of elements: NaN where there are none."""
    x, axes = b.wrap(view.data), view.axes
    assert axes is not None
    wide = x.cast(ir.DataType.FLOAT) if x.dtype in _HALVES else x
    total = wide.sum(axes, keepdims=bool(view.keepdims))
    count = functools.reduce(operator.mul, [x.size(axis) for axis in axes], b.ints(1))
    return [(total / count.reshape().cast(wide.dtype)).cast(x.dtype)]


def is_of_nothing(view: std.ReduceMean) -> bool:
    """Whether there are surely no elements in what a mean of floats is of."""
    shape, axes = view.shape(), view.axes
    return _is_of_floats(view) and shape is not None and axes is not None and any(shape[axis] == 0 for axis in axes)


def _may_be_of_nothing(view: std.ReduceMean) -> bool:
    shape, axes = view.shape(), view.axes
    if not _is_of_floats(view) or shape is None or axes is None:
        return False
    return not all(isinstance(shape[axis], int) and shape[axis] for axis in axes)


def _is_of_floats(view: std.ReduceMean) -> bool:
    dtype = view.dtype()
    return dtype is not None and dtype.is_floating_point()
