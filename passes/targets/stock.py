"""What onnxruntime's own kernels lack or compute wrongly, a row each, with the formula that stands for it.

Measured on 1.32, on CPUs, unless a row says otherwise. Every model that leaves lstm-lower, and every one that a session
opens, goes through `StockKernelsPass`, for all providers: what these have no kernel for is the processor's.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.base import Pass
from lstm_lower.passes.decompositions.fourier import is_inexact
from lstm_lower.passes.decompositions.recurrent import with_time_first
from lstm_lower.passes.formulas.indices import within
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.formulas.rows import INT64, flatten_rows, reshape_to, row_numbers
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.means import is_of_nothing, mean_by_count
from lstm_lower.passes.targets.legalize import DecomposeForTargetPass
from lstm_lower.passes.targets.table import Lack, Target


def ordered_scatter(scatter: std.ScatterND, b: Builder) -> list[Expr]:
    """Rows, numbered over the axes that `indices` speaks of, combined along one axis by ScatterElements."""
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
    return [b.set_shape(result, data.shape)]


def _row_numbers(data: Expr, indices: Expr, depth: int) -> Expr:
    """The number of the row that each entry of `indices` names, as a vector; a negative place counts from the end.

    A place beyond the end of an axis, which ScatterND refuses, would be in another row: it is looked up first.
    """
    indices = indices.cast(INT64)
    if depth == 1:
        return indices.reshape(-1)
    places, sizes = [], [data.size(axis) for axis in range(depth)]
    for axis, size in enumerate(sizes):
        places.append(within(indices.take(axis, axis=-1).reshape(-1), size))
    return row_numbers(places, sizes)


def _combines(scatter: std.ScatterND) -> bool:
    """Whether it does, and enough is known of the operands: ranks, and the size of the last axis of `indices`."""
    table, places = scatter.shape(0), scatter.shape(1)
    if scatter.reduction == "none" or table is None or not places:
        return False
    depth, known = places[-1], scatter.shape(2) is not None and None not in map(scatter.dtype, range(3))
    return known and isinstance(depth, int) and 0 < depth <= len(table)


def _writes_over(view: std.BatchNormalization) -> bool:
    """Whether new statistics, of known types and a known rank, come to lie in the memory of the old ones."""
    dtypes = [view.facts.dtype(value) for value in view.node.inputs]
    if not view.training_mode or view.rank() is None or None in dtypes:
        return False
    # Halves are cast: what the kernel makes of them is never an output itself.
    is_cast = any(dtype in COMPUTE_DTYPES for dtype in dtypes)
    return is_cast or not all(value.is_graph_output() for value in view.node.outputs[1:3])


def _may_be(name: str) -> Callable[[ir.Node], bool]:
    """Whether an attribute of a node in a function, which may stand for a caller's, is given and not the number 0."""

    def holds(node: ir.Node) -> bool:
        attribute = node.attributes.get(name)
        return attribute is not None and (attribute.is_ref() or attribute.value != 0)

    return holds


def _is_inexact(view: std.Standard) -> bool:
    return is_inexact(view.node, view.facts)


STOCK = Target(
    "onnxruntime",
    lacks=(
        # Updates are divided among threads without care that two of them may meet at one place: with two threads,
        # 3,200 rows added into 27 lose some in one run of a few (1.31; reported for 1.16 as microsoft/onnxruntime issue
        # 18048). A gradient of an embedding is just that. ScatterElements adds in order, on one thread.
        Lack(
            std.ScatterND,
            "that combines",
            _combines,
            silent=True,
            formula=ordered_scatter,
            suspected=_may_be("reduction"),
        ),
        # The new running mean and variance are written into the memory of the old ones wherever they are no outputs of
        # the graph. That may be an initializer, which optimisation has joined with an equal scale, or the caller's
        # array: results change from run to run.
        Lack(
            std.BatchNormalization,
            "whose new statistics are no outputs",
            _writes_over,
            silent=True,
            suspected=_may_be("training_mode"),
        ),
        # It follows the operator's function in onnx, which gives 1 with the probability of 0, and merges two of one
        # operand.
        Lack(std.Bernoulli, silent=True, suspected=lambda _: True),
        # Digits are lost with lengths that are no powers of two.
        *(
            Lack(op, "of a length that may be no power of two", _is_inexact, silent=True, suspected=lambda _: True)
            for op in (std.DFT, std.STFT)
        ),
        # Zeros; ONNX leaves open what it is, and NumPy's and PyTorch's is NaN.
        Lack(std.ReduceMean, "of nothing", is_of_nothing, silent=True, formula=mean_by_count),
        Lack(
            std.Recurrent,
            "with the batch first",
            lambda view: view.layout != 0,
            formula=with_time_first,
            suspected=_may_be("layout"),
        ),
    ),
)


class StockKernelsPass(DecomposeForTargetPass):
    """Writes what onnxruntime's own kernels lack or compute otherwise by formulas, at every nesting level.

    Precondition: ranks and dtypes are known; other nodes stay as they are.
    """

    def __init__(self, *ops: type[std.Standard]) -> None:
        """Prepares.

        Args:
            ops: the operators to look for; none for all.
        """
        super().__init__(STOCK)
        self.ops = ops or (std.Standard,)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites."""
        if not any(map(self._is_lacking, all_nodes(model.graph))):
            return ir.passes.PassResult(model, modified=False)
        return super().call(model)

    def _is_lacking(self, node: ir.Node) -> bool:
        return _is_concerned(node.op_type) and _holds(node, self.context.space.facts, self.ops)

    def ensures(self, model: ir.Model) -> None:
        """None of them is left of which enough is known.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        facts = Facts.of(model)
        for node in all_nodes(model.graph):
            if _is_concerned(node.op_type) and _holds(node, facts, self.ops):
                raise ir.passes.PostconditionError(f"{node.op_type} '{node_label(node)}' is none that onnxruntime runs")


@functools.cache
def _is_concerned(op_type: str) -> bool:
    """Whether any row is about an operator."""
    kind = std.VIEWS.get(op_type)
    return kind is not None and any(issubclass(kind, lack.op) for lack in STOCK.lacks)


def _holds(node: ir.Node, facts: Facts, ops: tuple[type[std.Standard], ...]) -> bool:
    view = facts.view(node)
    return view is not None and isinstance(view, ops) and STOCK.fault(view) is not None


class InlineForKernelsPass(Pass):
    """Inlines functions that hold what `StockKernelsPass` may have to write, of which only their callers know enough.

    Precondition: the model is well formed.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inlines all functions or none.

        Raises:
            InvalidModelError: see `InlineFunctionsPass`.
            UnsupportedOpError: see `InlineFunctionsPass`.
        """
        nodes = itertools.chain(all_nodes(model.graph), *map(all_nodes, model.functions.values()))
        if not model.functions or not any(map(_is_suspected, nodes)):
            return ir.passes.PassResult(model, modified=False)
        return InlineFunctionsPass().share(self.context)(model)


def _is_suspected(node: ir.Node) -> bool:
    return _is_concerned(node.op_type) and any(
        lack.op.matches(node) and lack.suspected is not None and lack.suspected(node) for lack in STOCK.lacks
    )
