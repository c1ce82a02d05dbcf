"""Contraction layout: a product that sums over many rows takes its smaller operand transposed beforehand.

A weight's gradient `a' @ g` sums over steps and batch, both of which are rows of the two operands. onnxruntime's
product on CPUs transposes its first operand in small blocks, once for every panel of columns of the second. Laid out
once, it is read as it lies. Time of [R,K]' @ [R,N] on one thread of an AMD EPYC, layout included, by that without it:

    R 3200, K 64,  N 512     0.90        R 3200, K 257, N 512     0.80
    R 3200, K 128, N 512     0.83        R 3200, K 129, N 1024    0.77
    R 1600, K 257, N 512     0.86        R 640,  K 1025, N 2048   0.75

Weights of inputs and of states are both summed with the gradients of the gates. Laid out, their operands stand below
each other, and one product packs the gradients once: 0.82 to 0.88 of the time of two products of which the one with a
bias is laid out (R 3200; K 64 and 128, N 384 and 512; K 256 and 256, N 1024), down to 0.73 of two that are not.

The layout is made by a Transpose of three axes, the first of size 1, and a Flatten: a Transpose of two axes would be
taken back into the product by the runtime (MatmulTransposeFusion), and one of the sequence itself be joined with others
before it. The product is a MatMul, because a Transpose behind a Gemm would be taken in, too (GemmTransposeFusion).

A bias gradient is the sum of the same rows. onnxruntime's ReduceSum over leading axes on CPUs does not share its work
among threads, its product does. As a row of ones times `g` the sum took 0.67 to 0.98 of the time on one thread, 0.30 to
0.73 on two, from 160 rows of 128 to 6,400 of 2,048 (16,000 rows of 256: 1.3 on one, 0.36 on two). Where an operand is
laid out anyhow, the row of ones is appended to it, and the sum is one more row of the product: both take 0.81 (K 128,
N 512) and 0.87 (K 128, N 384) of the time.

Precondition: outside loop bodies, in a graph that holds a loop: `Gemm(a, g, transA=1)` with nothing added, or a MatMul
whose first operand is a Transpose of a matrix, or a ReduceSum over all axes but the last of at least `LEAST_SUMMED`
elements, unknown sizes counted as 64; float32; `a` no wider than `g`, and `g` at least `LEAST_COLUMNS` wide,
since what the layout costs does not depend on the other operand's width. It does not shrink with more threads
either: a runtime of many gains less. `LEAST_JOINED` columns are enough where products, or a product and a sum, become
one. They do where the operands of all of them are there before the first, or are rearrangements of what is there.

Postcondition: no more products than before. Runs after all other passes, which would not see through the layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.views.loop_pass import AroundLoops, LoopPass, graphs_with_loops

LEAST_COLUMNS = 512
LEAST_JOINED = 384
LEAST_ROWS = 64
LEAST_SUMMED = 20_000
MATRIX = 2
# Nodes, one behind the other, that are repeated so that a product can stand where another one stands.
MOST_MOVES = 4
# What leaves the elements in their order.
LAYING_TOGETHER = (std.Flatten, std.Reshape, std.Squeeze, std.Unsqueeze, std.Identity)


@dataclasses.dataclass(frozen=True)
class _Contraction:
    """`rows' @ others`, or the sum of the rows of `others`.

    Attributes:
        node: the product, or the sum.
        rows: [R, K]; `None` for the ones of a sum.
        others: [R, N]; of a sum with all axes but the last as its rows.
    """

    node: ir.Node
    rows: ir.Value | None
    others: ir.Value


class ContractionLayout(AroundLoops, LoopPass):
    """Transposes the smaller operands of products over many rows in advance, and joins products with one matrix."""

    def around(self, graph: ir.Graph) -> bool:
        """Lays operands of one graph's products out."""
        places = {node: place for place, node in enumerate(graph)}
        alike: dict[Hashable, list[_Contraction]] = {}
        for node in graph:
            if (contraction := _contraction(self.facts, node)) is not None:
                alike.setdefault(_matrix(self.facts, contraction.others), []).append(contraction)
        groups = [group for each in alike.values() for group in self._groups(each, places)]
        for group in groups:
            self._write(graph, group, places)
        return bool(groups)

    def _groups(self, alike: list[_Contraction], places: Mapping[ir.Node, int]) -> list[list[_Contraction]]:
        """Products and sums with one matrix, as those that can stand where the first of them stands."""
        groups: list[list[_Contraction]] = []
        while alike:
            first, *alike = alike
            if (reason := _reason_against(self.facts, first, LEAST_JOINED)) is not None:
                self.refuse(first.node, reason)
                continue
            group = [first, *(other for other in alike if self._joins(other, first, places))]
            # A product alone must gain more by it.
            if len(group) > 1 or self._pays(first):
                groups.append(group)
                alike = [other for other in alike if other not in group]
        return groups

    def _joins(self, other: _Contraction, first: _Contraction, places: Mapping[ir.Node, int]) -> bool:
        """Whether a product or sum can become part of an earlier one."""
        if _reason_against(self.facts, other, LEAST_JOINED) is not None:
            return False
        return other.rows is None or _is_made_before(other.rows, first.node, places)

    def ensures(self, model: ir.Model) -> None:
        """No product or sum is left that would gain by it.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        super().ensures(model)
        for graph in graphs_with_loops(model):
            for contraction in (c for node in graph if (c := _contraction(self.facts, node)) is not None):
                if _reason_against(self.facts, contraction) is None:
                    wanted = f"its operand laid out for a product, got it of '{node_label(contraction.node)}'"
                    raise self.broken(contraction.node, wanted)

    def _pays(self, contraction: _Contraction) -> bool:
        reason = _reason_against(self.facts, contraction)
        if reason is not None:
            self.refuse(contraction.node, reason)
        return reason is None

    def _write(self, graph: ir.Graph, group: list[_Contraction], places: Mapping[ir.Node, int]) -> None:
        first = group[0].node
        e = Builder(self.context.space, graph, before=first, scope=first.name or "contraction")
        operands = [_remade(e, x.rows, places[first], places) for x in group if x.rows is not None]
        others, sums = _as_matrix(e, group[0].others), len(operands) < len(group)
        parts = [_laid_out(e, rows) for rows in operands]
        if sums:
            one = ir.Tensor(np.ones(1, np.float32), dtype=ir.DataType.FLOAT)
            row = e.concat([e.ints(1), e.size(others, 0)], axis=0)
            parts.append(e.op(std.ConstantOfShape, row, value=one).value)
        product = e.op(std.MatMul, e.concat(parts, axis=0), others)
        made = [product]
        if len(parts) > 1:
            sizes = [*(e.size(rows, 1) for rows in operands), *([e.ints(1)] if sums else [])]
            made = list(e.node(std.Split, [product, e.concat(sizes, axis=0)], len(parts), axis=0).outputs)
        products = iter(made)
        for x in group:
            e.replace(x.node.outputs[0], self._of_sum(e, x.node, made[-1]) if x.rows is None else next(products))
        for x in group:
            detach(x.node)

    def _of_sum(self, e: Builder, node: ir.Node, row: ir.Value) -> ir.Value:
        """A row of sums [1, N] in the shape of what a sum makes."""
        total = std.ReduceSum(node, self.facts)
        return e.unsqueeze(row, *range(len(total.axes or ()) - 1)) if total.keepdims else e.squeeze(row, 0)


def _as_matrix(e: Builder, value: ir.Value) -> ir.Value:
    """A tensor with all axes but the last laid together."""
    rank = e.facts.rank(value)
    assert rank is not None
    return value if rank == MATRIX else e.op(std.Flatten, value, axis=rank - 1)


def _laid_out(e: Builder, rows: ir.Value) -> ir.Value:
    """The transpose [K, R] of an operand, as the runtime leaves it alone."""
    return e.op(std.Flatten, e.transpose(e.unsqueeze(rows, 0), (2, 0, 1)), axis=1)


def _matrix(facts: Facts, value: ir.Value) -> Hashable:
    """A key of a matrix: the same for all that are one tensor with all axes but the last laid together."""
    shape = facts.shape(value)
    columns = None if shape is None else shape[-1]
    while isinstance(columns, int) and columns and isinstance(view := facts.maker(value), LAYING_TOGETHER):
        before = facts.shape(view.data)
        if not before or before[-1] != columns:
            break
        value = view.data
    return value, columns


def _is_made_before(
    value: ir.Value, node: ir.Node, places: Mapping[ir.Node, int], most_moves: int = MOST_MOVES
) -> bool:
    """Whether a value, or what it is the same elements of, is there before a node."""
    maker = value.producer()
    if maker is None or places.get(maker, -1) < places[node]:
        return True
    if not most_moves or not (std.Moving.matches(maker) or std.Constant.matches(maker)):
        return False
    return all(_is_made_before(x, node, places, most_moves - 1) for x in maker.inputs if x is not None)


def _remade(e: Builder, value: ir.Value, place: int, places: Mapping[ir.Node, int]) -> ir.Value:
    """A value as it is there at an earlier place, see `_is_made_before`."""
    maker = value.producer()
    if maker is None or places.get(maker, -1) < place:
        return value
    operands = [x if x is None else _remade(e, x, place, places) for x in maker.inputs]
    return e.repeat(maker, operands)[maker.outputs.index(value)]


def _contraction(facts: Facts, node: ir.Node) -> _Contraction | None:
    """The product over rows, or the sum of them, that a node is."""
    match facts.view(node):
        case std.ReduceSum(axes=tuple() as axes, data=data) if _sums_rows(facts, data, axes):
            return _Contraction(node, None, data)
        case std.Gemm(trans_a=1, trans_b=0, alpha=1.0, c=None, a=rows, b=others):
            return _Contraction(node, rows, others)
        case std.MatMul(a=a, b=others):
            turned = facts.maker(a)
            if isinstance(turned, std.Transpose) and turned.perm == (1, 0) and facts.rank(others) == 2:
                return _Contraction(node, turned.data, others)
    return None


def _sums_rows(facts: Facts, data: ir.Value, axes: tuple[int, ...]) -> bool:
    """Whether a sum is a large one over all axes of a tensor but the last."""
    rank = facts.rank(data)
    if rank is None or rank < MATRIX or sorted(axes) != list(range(rank - 1)):
        return False
    return facts.dtype(data) == ir.DataType.FLOAT and facts.elements(data) >= LEAST_SUMMED


def _reason_against(facts: Facts, contraction: _Contraction, least: int = LEAST_COLUMNS) -> str | None:
    """Why a product is left alone, `None` where it gains; `least` is the width of the second operand that pays."""
    if contraction.rows is None:
        return None
    if facts.dtype(contraction.rows) != ir.DataType.FLOAT:
        return "only products of float32 are known to gain by another layout"
    own, other = facts.shape(contraction.rows), facts.shape(contraction.others)
    if own is None or other is None:
        return "the sizes of its operands are not known"
    (rows, width), (_, columns) = own, other
    if isinstance(rows, int) and rows < LEAST_ROWS:
        return "it sums over few rows"
    if isinstance(width, int) and isinstance(columns, int) and columns >= least and 0 < width <= columns:
        return None
    return "laying its first operand out is not known to cost less than it spares"
