"""Adding scatters that onnxruntime computes right on more than one thread.

onnxruntime's ScatterND on CPUs divides the updates among its threads and takes no care that two of them may meet at one
place (measured on 1.31: with two threads, 3,200 rows added into 27 lose some in one run of a few; reported for 1.16 as
microsoft/onnxruntime issue 18048). A gradient of an embedding is just that, and rows are lost silently. ScatterElements
adds in order, on one thread.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.formulas.rows import INT64, flatten_rows, reshape_to, row_numbers


class OrderedScatterPass(Pass):
    """Writes ScatterND with a reduction as ScatterElements.

    Precondition: ranks and the size of the last axis of `indices` are known; other nodes stay as they are.

    Postcondition: rows, numbered over the axes that `indices` speaks of, are combined along one axis. Results are equal
    to those of ScatterND where that loses nothing.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites, at every nesting level."""
        if std.ScatterND.op_type not in {node.op_type for node in all_nodes(model.graph)}:
            return ir.passes.PassResult(model, modified=False)
        space = self.context.space
        found = _adding(model, space.facts)
        for scatter in found:
            _rewrite(scatter, Builder.before(scatter.node, space))
        return ir.passes.PassResult(model, modified=bool(found))

    def ensures(self, model: ir.Model) -> None:
        """None of them is left of which enough is known.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        for scatter in _adding(model, Facts.of(model)):
            raise ir.passes.PostconditionError(f"{scatter.op_type} '{node_label(scatter.node)}' adds without order")


def _adding(model: ir.Model, facts: Facts) -> list[std.ScatterND]:
    """Every ScatterND that combines and of which enough is known, at every nesting level."""
    nodes = [node for node in all_nodes(model.graph) if std.ScatterND.matches(node)]
    views = [std.ScatterND.of(node, facts) for node in nodes]
    return [view for view in views if view is not None and view.reduction != "none" and _is_known(view)]


def _is_known(scatter: std.ScatterND) -> bool:
    """Whether enough is known of the operands."""
    table, places = scatter.shape(0), scatter.shape(1)
    if table is None or not places or scatter.shape(2) is None or None in map(scatter.dtype, range(3)):
        return False
    depth = places[-1]
    return isinstance(depth, int) and 0 < depth <= len(table)


def _rewrite(scatter: std.ScatterND, b: Builder) -> None:
    data, indices, updates = b.wrap(scatter.data), b.wrap(scatter.indices), b.wrap(scatter.updates)
    assert data.shape is not None
    assert indices.shape is not None
    rank, depth = len(data.shape), indices.shape[-1]
    assert isinstance(depth, int)
    leading = len(indices.shape) - 1
    table = flatten_rows(data, depth)
    number = _row_numbers(data, indices, depth)
    rows = flatten_rows(updates, leading) if leading else updates.unsqueeze(0)
    tail = rank - depth
    number = number.unsqueeze(*range(1, 1 + tail)) if tail else number
    where = b.op(std.Expand, number, rows.sizes())
    # onnxruntime combines no halves; float32 holds all of them and rounds once.
    kind = data.dtype
    wide = ir.DataType.FLOAT if kind in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else kind
    table, rows = table.cast(wide), rows.cast(wide)
    total = b.op(std.ScatterElements, table, where, rows, axis=0, reduction=scatter.reduction).cast(kind)
    result = reshape_to(total, data.sizes()) if depth > 1 else total
    b.set_shape(result, data.shape)
    b.emitter.replace(scatter.output, result.value)
    detach(scatter.node)


def _row_numbers(data: Expr, indices: Expr, depth: int) -> Expr:
    """The number of the row that each entry of `indices` names, as a vector; a negative place counts from the end."""
    b = indices.builder
    indices = indices.cast(INT64)
    if depth == 1:
        return indices.reshape(-1)
    places, sizes = [], [data.size(axis) for axis in range(depth)]
    for axis, size in enumerate(sizes):
        place = indices.take(axis, axis=-1).reshape(-1)
        places.append(b.where(place < 0, place + size, place))
    return row_numbers(places, sizes)
